"""The verbs about stored data. Heavy imports stay inside them, so that `--help` is quick."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tpugraphs.cli.shared import Root, Split, show

if TYPE_CHECKING:
    from tpugraphs.data import Collection


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
    show(f"{len(report.imported)} graphs imported{already}: {', '.join(report.collections) or 'nothing'} in {root}")
    if report.left_out:
        show(f"{len(report.left_out)} kernels were left out, having fewer than two good runs")
    if report.failed:
        for sentence in report.failed:
            print(f"passed over: {sentence}", file=sys.stderr)
        return 2
    return 0


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
    show(f"{count} files written to {into / 'npz'}, {report.identical} of them byte for byte the imported file")
    if report.present:
        show(f"{len(report.present)} were there already, byte for byte")


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
        show(tables.collections(_all_collections(root)))
    elif ":" not in name and os.sep not in name:
        for home in _collections_with(name, root):
            show(tables.graph(home[name], home.name))
    else:
        collection = load(name, split, root=root)
        if graph is not None:
            show(tables.graph(collection[graph], collection.name))
        elif json:
            _print_json(collection)
        else:
            show(tables.collection(collection, every=every))


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
    show(tables.verification(checked))
    for item in checked:
        for problem in item.problems:
            print(problem, file=sys.stderr)
    return 2 if any(item.problems for item in checked) else 0


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
    show(tables.evaluation(result, every=every))
    if save:
        result.save(save)
        show(f"saved to {save}")


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
    show(f"{len(written)} synthetic files written to {into / 'npz'}; next: tpugraphs import {into} --into ROOT")


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
