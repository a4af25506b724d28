"""The verbs. Heavy imports stay inside them, so that `--help` is quick."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from tpugraphs import __version__

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from tpugraphs.data import Collection

app = App(
    name="tpugraphs",
    help="Tensor programs as graphs, how their compilation may vary, what was measured, and which choice is fast.",
    version=__version__,
    suppress_keyboard_interrupt=False,  # `main` has a word to say about it
    help_epilogue="Collections are kept under --root, by default $TPUGRAPHS_ROOT or ~/.cache/tpugraphs.",
)

Root = Annotated[Path | None, Parameter(name="--root", help="Where collections are kept.")]
Split = Annotated[str, Parameter(name="--split", help="train, valid or test.")]
_WIDTH_IN_PIPES = 160


@app.command(name="import")
def import_(
    source: Path,
    /,
    *,
    into: Path | None = None,
    collection: str | None = None,
    split: str | None = None,
    keep_going: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Make packs of official files: npz, or raw protobufs, which are featurised anew.

    An interrupted import goes on where it stopped when the same command is run again.

    Parameters
    ----------
    source
        A folder of the release's npz or pb tree, one of its tar files, or one npz or pb file.
    into
        Where to keep the collections (default: as --root elsewhere).
    collection
        The collection's name, where the paths do not say it.
    split
        The split, where the paths do not say it.
    keep_going
        Pass over bad files and list them at the end; the exit code is then 2.
    """
    from tpugraphs.cli.progress import Bar
    from tpugraphs.data import import_official
    from tpugraphs.data.names import default_root

    root = into or default_root()
    with Bar("importing") as bar:
        report = import_official(source, root, collection=collection, split=split, keep_going=keep_going, progress=bar)
    already = f", {len(report.present)} were there already" if report.present else ""
    _print(f"{len(report.imported)} graphs imported{already}: {', '.join(report.collections) or 'nothing'} in {root}")
    if report.left_out:
        _print(f"{len(report.left_out)} kernels were left out, having fewer than two good runs")
    if report.failed:
        for sentence in report.failed:
            print(f"passed over: {sentence}", file=sys.stderr)
        return 2
    return 0


@app.command
def export(name: str, /, *, into: Path, root: Root = None, split: str | None = None) -> None:
    """Write a collection back as official npz files, into the release's tree below a folder.

    Parameters
    ----------
    name
        The collection, for example layout:xla:random.
    into
        The folder that gets npz/layout/xla/random/...
    split
        Only this split (default: all).
    """
    from tpugraphs.cli.progress import Bar
    from tpugraphs.data import export_official, load

    collection = load(name, split, root=root)
    with Bar("exporting") as bar:
        report = export_official(collection, into, progress=bar)
    count = len(report.written)
    _print(f"{count} files written to {into / 'npz'}, {report.identical} of them byte for byte the imported file")
    if report.present:
        _print(f"{len(report.present)} were there already, byte for byte")


@app.command
def info(
    name: str | None = None,
    graph: str | None = None,
    /,
    *,
    root: Root = None,
    split: str | None = None,
    every: Annotated[bool, Parameter(name="--all", negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Show what is there: all collections, one collection, or one graph.

    Parameters
    ----------
    name
        A collection, or the name of a graph in any collection; without it, all collections are listed.
    graph
        A graph of the collection.
    split
        Only this split of the collection (default: all).
    every
        List every graph of a large collection.
    json
        Print a collection's table as JSON.
    """
    from tpugraphs.data import load
    from tpugraphs.report import tables

    if name is None:
        _print(tables.collections(_all_collections(root)))
    elif ":" not in name and os.sep not in name:
        for home in _collections_with(name, root):
            _print(tables.graph(home[name], home.name))
    else:
        collection = load(name, split, root=root)
        if graph is not None:
            _print(tables.graph(collection[graph], collection.name))
        elif json:
            _print_json(collection)
        else:
            _print(tables.collection(collection, every=every))


@app.command
def verify(root: Path | None = None, /) -> int:
    """Check every checksum and invariant of the collections under a folder.

    Parameters
    ----------
    root
        The folder (default: as --root elsewhere), or the folder of one collection.
    """
    from tpugraphs.data import verify_root
    from tpugraphs.data.names import default_root
    from tpugraphs.report import tables

    checked = verify_root(root or default_root())
    _print(tables.verification(checked))
    for item in checked:
        for problem in item.problems:
            print(problem, file=sys.stderr)
    return 2 if any(item.problems for item in checked) else 0


@app.command
def evaluate(
    scores: str,
    name: str,
    /,
    *,
    root: Root = None,
    split: Split = "valid",
    rows: str | None = None,
    noise_floor: float | None = None,
    every: Annotated[bool, Parameter(name="--all", negative="")] = False,
    save: Path | None = None,
) -> None:
    """Judge a ranking by the official metrics, and by noise-aware ones beside them.

    Parameters
    ----------
    scores
        A file of scores, lower is faster: .json with {graph: [score, ...]}, or .npz with an array per graph.
        Or a ranker that knows nothing, for comparison: random, feature-sum.
    name
        The collection, for example layout:xla:random.
    rows
        "official" ranks only the configs the release's evaluation lists, read from eval_indices/ under the root;
        a path names such a file elsewhere.
    noise_floor
        Use this noise floor (a log ratio, 0.01 is about 1 %) in place of the graphs' own.
    every
        List every graph of a large split.
    save
        Write the whole evaluation to this JSON file.
    """
    from tpugraphs.metrics import Evaluator
    from tpugraphs.metrics.scores import EXPECTED, read_scores
    from tpugraphs.model import TRIVIAL_RANKERS
    from tpugraphs.report import tables

    evaluator = Evaluator(name, split=split, root=root, rows=rows, noise_floor=noise_floor)
    if scores in TRIVIAL_RANKERS:
        ranker = TRIVIAL_RANKERS[scores]
        given = {graph.name: ranker(graph, evaluator.rows(graph.name)) for graph in evaluator.collection}
    elif Path(scores).is_file():
        given = read_scores(Path(scores))
    else:
        from tpugraphs.errors import BadRequest

        raise BadRequest(f"{scores}: no such file; expected {EXPECTED}, or one of {', '.join(TRIVIAL_RANKERS)}")
    result = evaluator.evaluate(given)
    _print(tables.evaluation(result, every=every))
    if save:
        result.save(save)
        _print(f"saved to {save}")


@app.command
def synth(*, into: Path, graphs: int = 10, configs: int = 600, seed: int = 0) -> None:
    """Make a synthetic layout and a synthetic tile collection, as official npz files, for trying things out.

    Their run times come from a formula with noise; nothing in them was measured.

    Parameters
    ----------
    into
        The folder that gets npz/layout/synthetic/... and npz/tile/synthetic/...
    graphs
        How many graphs each.
    configs
        About how many configs a graph.
    seed
        Same seed, same files.
    """
    from tpugraphs.data.synthetic import write_synthetic

    written = write_synthetic(into, graphs=graphs, configs=configs, seed=seed)
    _print(f"{len(written)} synthetic files written to {into / 'npz'}; next: tpugraphs import {into} --into ROOT")


@app.command
def tune(
    source: str,
    /,
    *,
    target: str = "xla:cpu",
    budget: str = "2m",
    arg: Annotated[list[str] | None, Parameter(negative="")] = None,
    save: Path | None = None,
    seed: int = 0,
) -> None:
    """Make a program faster, and prove it.

    The search measures in a process of its own, compares every config's results with the default's, and ends with
    a paired re-measurement of the best in several fresh processes. Ctrl-C ends the search and shows what was found.

    Parameters
    ----------
    source
        MODULE.py:FUNCTION, a StableHLO file, or a program of the zoo such as mobilenetv2 (`tpugraphs programs`).
    target
        The compiler and device; so far xla:cpu.
    budget
        How long it may take, the proof included: 90s, 2m, 1h.
    arg
        An example argument of the function, such as f32[8,128]; once for each. Without it, FUNCTION_args() of the
        module makes them.
    save
        Write the outcome to this folder, for tpugraphs.Outcome.load.
    seed
        Of inputs and orders.
    """
    import time

    from tpugraphs.cli.progress import watched
    from tpugraphs.program import resolve_source
    from tpugraphs.report import tuning
    from tpugraphs.tuning import tune_program
    from tpugraphs.tuning.loop import seconds

    start, limit = time.monotonic(), seconds(budget)
    program = resolve_source(source, arguments=tuple(arg or ()))
    with watched() as watch:
        result = tune_program(program, target=target, budget=limit, seed=seed, watch=watch, start=start)
    _print(tuning.outcome(result))
    if save:
        result.save(save)
        _print(f"saved to {save}")


@app.command
def graph(
    source: str,
    /,
    *,
    stage: str = "lowered",
    arg: Annotated[list[str] | None, Parameter(negative="")] = None,
    module: int | None = None,
    node: int | None = None,
    save: Path | None = None,
    draw: Path | None = None,
) -> None:
    """Show a program as a graph: what it is made of, feature by feature, or drawn.

    Parameters
    ----------
    source
        MODULE.py:FUNCTION, a program of the zoo (`tpugraphs programs`), a file (StableHLO text or bytecode, HLO text,
        a serialized HLO proto, a .pb of the TpuGraphs release), or a folder made by XLA_FLAGS=--xla_dump_to.
    stage
        "lowered", as the frontend hands it over, or "simplified", as it enters XLA's layout assignment.
    arg
        An example argument of the function, such as f32[8,128]; once for each. Without it, FUNCTION_args() of the
        module makes them.
    module
        Which of several modules in a file or dump folder (default: the largest).
    node
        Print the features of this node instead.
    save
        Write the graph to this .npz file, the official arrays under their official names.
    draw
        Draw it to this .svg or .html file.
    """
    from tpugraphs.errors import BadRequest
    from tpugraphs.program import capture
    from tpugraphs.report import graphs

    if draw is not None and draw.suffix not in (".svg", ".html"):
        raise BadRequest(f"--draw {draw}: expected a name that ends in .svg or .html")
    if save is not None and save.suffix != ".npz":
        raise BadRequest(f"--save {save}: expected a name that ends in .npz")
    captured = capture(source, stage=stage, example=tuple(arg or ()), module=module, costs=node is None)
    _print(graphs.graph(captured) if node is None else str(captured.explain(node)))
    if save:
        from tpugraphs.data import save_graph

        save_graph(captured, save)
        _print(f"saved to {save}")
    if draw:
        from tpugraphs.data.files import write_text
        from tpugraphs.report import drawing

        write_text(draw, drawing.draw_svg(captured) if draw.suffix == ".svg" else drawing.draw_html(captured))
        _print(f"drawn to {draw}")


@app.command
def programs(
    pattern: str | None = None,
    /,
    *,
    tier: str | None = None,
    names: Annotated[bool, Parameter(negative="")] = False,
    published: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """List the zoo: programs by family, variant, mode and batch size.

    Parameters
    ----------
    pattern
        Only names or families like this, with * for anything: 'resnet*', '*/train/*'.
    tier
        Only the small tier (runs in less than 150 ms on two cores), medium, or large (more than 10,000 nodes).
    names
        Print bare names, one a line.
    published
        Compare parameters and multiply-adds with published figures, for the variants that have them.
    """
    from fnmatch import fnmatch

    from tpugraphs.errors import BadRequest
    from tpugraphs.program import programs as zoo
    from tpugraphs.report import graphs

    if tier not in (None, "small", "medium", "large"):
        raise BadRequest(f"--tier {tier}: expected small, medium or large")
    wanted = f"*{(pattern or '').lower()}*"
    found = [
        program
        for program in zoo.values()
        if tier in (None, program.tier) and (fnmatch(program.name, wanted) or fnmatch(program.family.lower(), wanted))
    ]
    if not found:
        raise BadRequest(f"{pattern or tier}: no such program; `tpugraphs programs` lists them all")
    if names:
        for program in found:
            print(program.name)
    elif published:
        _print(graphs.published(found))
    else:
        _print(graphs.programs(found))


def _all_collections(root: Path | None) -> list[Collection | str]:
    from tpugraphs.data.collection import collections_under, load
    from tpugraphs.data.names import default_root
    from tpugraphs.errors import BadRequest, TpuGraphsError

    base = root or default_root()
    found: list[Collection | str] = []
    for folder in collections_under(base):
        try:
            found.append(load(folder))
        except TpuGraphsError as error:
            found.append(str(error))
    if not found:
        raise BadRequest(f"{base}: no collection there; make one with `tpugraphs import` or `tpugraphs synth`")
    return found


def _collections_with(name: str, root: Path | None) -> list[Collection]:
    from tpugraphs.errors import BadRequest

    everywhere = [collection for collection in _all_collections(root) if not isinstance(collection, str)]
    found = [collection for collection in everywhere if name in collection]
    if not found:
        names = ", ".join(collection.name for collection in everywhere) or "the collections there"
        raise BadRequest(f"{name}: neither a collection (those have a colon) nor a graph in any of {names}")
    return found


def _print_json(collection: Collection) -> None:
    import json
    from dataclasses import asdict

    print(json.dumps([asdict(row) for row in collection.table()], indent=1))


def _print(what: RenderableType) -> None:
    _console().print(what, soft_wrap=isinstance(what, str), highlight=False, markup=False)


def _console() -> Console:
    from rich.console import Console

    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH_IN_PIPES
    return Console(width=wide)
