"""The verbs about measuring. Heavy imports stay inside them, so that `--help` is quick."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tpugraphs.cli.shared import BAD_INPUT, INTERRUPTED, show

if TYPE_CHECKING:
    from tpugraphs.measure.noise import SelfTest

_TEST_S, _TEST_PROCESSES = 100.0, 5
_QUICK_S, _QUICK_PROCESSES = 18.0, 3


def collect(
    space: str,
    /,
    *,
    programs: Annotated[list[str], Parameter(consume_multiple=True, negative="")],
    into: Path | None = None,
    configs: int = 100,
    search: str = "random",
    target: str = "xla:cpu",
    budget: str | None = None,
    seed: int = 0,
    transposes: Annotated[bool, Parameter(negative="")] = False,
    limit: str = "5m",
    arg: Annotated[list[str] | None, Parameter(negative="")] = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Measure many configs of many programs, and write each down.

    A config is compiled in a process of its own, its results are compared with the default's, and then it is timed in
    turns with the default. Whatever stops it, the same command goes on where it stopped. For good figures let nothing
    else run meanwhile; `tpugraphs doctor` tells how steady the machine is.

    Parameters
    ----------
    space
        What varies: layout, form, flags, several with commas between, or joint for all of them.
    programs
        Programs of the zoo by name, variant or family, with * for anything (`resnet*`, `*/train/*`), tier:small, a
        MODULE.py:FUNCTION, a StableHLO or an HLO file. Several may follow.
    into
        The folder of the journal, new or one to go on with.
    configs
        How many of each program, the default aside.
    search
        random draws them, a quarter anywhere and the others near the default; default lets them evolve from it.
    target
        The compiler and device: xla:cpu, or xla:gpu and xla:tpu where jax finds one; iree:llvm-cpu with the extra.
    budget
        How long it may take in all, such as 90s, 20m, 8h; each program gets an equal share of what is left.
    seed
        Of configs, inputs and orders. Another seed is another set of configs.
    transposes
        Vary the layouts of transposes too, not only of convolutions, dots and reshapes.
    limit
        What a default may take to compile and run; limits for its configs follow from what it takes.
    arg
        An example argument of MODULE.py:FUNCTION, such as f32[8,128]; once for each.
    dry_run
        Only tell what there is to vary and about how long it would take.
    """
    from tpugraphs.cli.progress import live, status
    from tpugraphs.errors import BadRequest
    from tpugraphs.measure.collect import BEFORE, BROKEN, STOPPED
    from tpugraphs.measure.collect import collect as carry_out
    from tpugraphs.measure.journal import read_runs
    from tpugraphs.measure.planning import Wanted, estimate
    from tpugraphs.program.selection import select_programs
    from tpugraphs.report import collecting
    from tpugraphs.space.product import spaces_named
    from tpugraphs.tuning.loop import seconds

    wanted = Wanted(spaces_named(space), target, search, configs, seed, transposes=transposes, limit_s=seconds(limit))
    budget_s = seconds(budget) if budget is not None else None
    selected = select_programs(programs, arguments=tuple(arg or ()))
    if dry_run:
        found = []
        with status("estimating") as tell:
            for number, one in enumerate(selected):
                tell(one.name, number / len(selected))
                found.append(estimate(one, wanted))
        show(collecting.estimates(found))
        return 0
    if into is None:
        raise BadRequest("--into: expected the folder that the journal goes to, or goes on in")
    about = {"spaces": wanted.spaces, "target": target, "search": search, "configs": configs, "seed": seed}
    with live(collecting.watching) as watch:
        results = carry_out(selected, wanted, into, budget_s=budget_s, watch=watch, about=about)
    show(collecting.collected(results, read_runs(into), into))
    if any(one.ending == STOPPED for one in results):
        print("stopped; what was measured is kept, and the same command goes on", file=sys.stderr)
        return INTERRUPTED
    if all(one.ending == BEFORE for one in results):
        print("all of it was measured before: ask for more with --configs, or others with --seed", file=sys.stderr)
    return BAD_INPUT if all(one.ending == BROKEN for one in results) else 0


def runs(
    folder: Path,
    /,
    *,
    every: Annotated[bool, Parameter(name="--all", negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Tell what a journal holds, what in it failed, and which programs are too noisy to trust.

    Parameters
    ----------
    folder
        A folder that `tpugraphs collect --into` made.
    every
        List every kind of failure.
    json
        Print the figures of each program as JSON.
    """
    from tpugraphs.measure.journal import read_runs

    histories = read_runs(folder)
    if json:
        from dataclasses import asdict
        from json import dumps

        from tpugraphs.measure.judging import judge

        print(dumps([asdict(judge(history)) for history in histories.values()], indent=1))
        return
    from tpugraphs.report import collecting

    show(collecting.runs(histories.values(), every=every))


def pack(
    folder: Path,
    /,
    *,
    into: Path,
    name: str | None = None,
    machine: str | None = None,
    splits: Path | None = None,
) -> None:
    """Make a collection of what was measured: a graph a program, a row a measurement.

    Parameters
    ----------
    folder
        One that `tpugraphs collect --into` made.
    into
        The folder that becomes the collection.
    name
        Which of several collections in the journal, such as layout:xla-cpu:random.
    machine
        Of which of several machines: the first digits of its fingerprint.
    splits
        A file of lines FAMILY SPLIT or PROGRAM SPLIT; what it does not name goes by the family's hash, eight in ten
        to train.
    """
    from tpugraphs.cli.progress import status
    from tpugraphs.data.packing import pack_runs, read_splits

    given = read_splits(splits) if splits is not None else None
    with status("packing") as tell:
        packed = pack_runs(folder, into, name=name, machine=machine, splits=given, progress=lambda one: tell(one, 0.0))
    rows = sum(graph.configs for graph in packed.graphs)
    show(f"{packed.collection}: {len(packed.graphs)} graphs, {rows:,} rows; next: tpugraphs info {into.resolve()}")
    for sentence in packed.left_out:
        show(f"left out: {sentence}")


def merge(sources: Annotated[list[Path], Parameter(negative="")], /, *, into: Path) -> None:
    """Put journals of several folders into one, such as those of several machines.

    What is there already stays; a journal that has grown since is brought up to date.

    Parameters
    ----------
    sources
        Folders that `tpugraphs collect --into` made.
    into
        The folder that gets all, new or one that has some.
    """
    from tpugraphs.measure.journal import merge_runs

    for source, count in merge_runs(sources, into).items():
        show(f"{source}: {count} journal files came")


def doctor(
    *,
    quick: Annotated[bool, Parameter(negative="")] = False,
    no_test: Annotated[bool, Parameter(negative="")] = False,
    target: str = "xla:cpu",
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Tell whether this machine is fit for measuring, and what to do about it.

    It looks at the machine for a second, then measures what is known: a program against itself, in fresh processes.
    No setting of the system is changed.

    Parameters
    ----------
    quick
        A self-test of about 20 seconds; else it takes up to two minutes.
    no_test
        Only look.
    target
        The compiler and device that the self-test measures.
    json
        Print facts, findings and self-test as JSON.
    """
    from tpugraphs.measure.doctor import as_dict
    from tpugraphs.measure.machine import look

    if json:
        from json import dumps

        facts = look()
        print(dumps(as_dict(facts, None if no_test else _tested(target, quick)), indent=1))
        return
    from tpugraphs.report import doctor as report

    show(report.machine(look()))
    if not no_test:
        show(report.self_test(_tested(target, quick)))


def _tested(target: str, quick: bool) -> SelfTest:
    from tpugraphs.cli.progress import status
    from tpugraphs.measure.self_test import self_test
    from tpugraphs.target import target_named

    limit_s, processes = (_QUICK_S, _QUICK_PROCESSES) if quick else (_TEST_S, _TEST_PROCESSES)
    with status("self-test") as watch:
        return self_test(target_named(target), limit_s=limit_s, processes=processes, watch=watch)
