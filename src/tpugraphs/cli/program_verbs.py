"""The verbs about programs. Heavy imports stay inside them, so that `--help` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tpugraphs.cli.shared import show


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
        MODULE.py:FUNCTION, a StableHLO or HLO file, or a program of the zoo such as mobilenetv2 (`tpugraphs programs`).
    target
        The compiler and device: xla:cpu, or iree:llvm-cpu with the extra.
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

    from tpugraphs.cli.progress import live
    from tpugraphs.program import resolve_source
    from tpugraphs.report import tuning
    from tpugraphs.tuning import tune_program
    from tpugraphs.tuning.loop import seconds

    start, limit = time.monotonic(), seconds(budget)
    program = resolve_source(source, arguments=tuple(arg or ()))
    with live(tuning.watching) as watch:
        result = tune_program(program, target=target, budget=limit, seed=seed, watch=watch, start=start)
    show(tuning.outcome(result))
    if save:
        result.save(save)
        show(f"saved to {save}")


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
    show(graphs.graph(captured) if node is None else str(captured.explain(node)))
    if save:
        from tpugraphs.data import save_graph

        save_graph(captured, save)
        show(f"saved to {save}")
    if draw:
        from tpugraphs.files import write_text
        from tpugraphs.report import drawing

        write_text(draw, drawing.draw_svg(captured) if draw.suffix == ".svg" else drawing.draw_html(captured))
        show(f"drawn to {draw}")


def forms(
    source: str,
    /,
    *,
    arg: Annotated[list[str] | None, Parameter(negative="")] = None,
    apply: Path | None = None,
    save: Path | None = None,
    no_times: Annotated[bool, Parameter(negative="")] = False,
    every: Annotated[bool, Parameter(name="--all", negative="")] = False,
) -> None:
    """Show in which other ways a program's nodes can be written, or write it so.

    Parameters
    ----------
    source
        MODULE.py:FUNCTION, a StableHLO or HLO file, or a program of the zoo (`tpugraphs programs`).
    arg
        An example argument of the function, such as f32[8,128]; once for each.
    apply
        A JSON file of a config, such as {"node3.form": "dots"}, or with the program that it is for:
        {"program": "<hash>", "config": {...}}. The program is written so, with --save.
    save
        Where the rewritten StableHLO goes.
    no_times
        Do not run the program: no times, no shares.
    every
        List every node of a large program.
    """
    from tpugraphs.errors import BadRequest
    from tpugraphs.program import resolve_source

    if (apply is None) != (save is None):
        raise BadRequest("--apply CONFIG.json and --save OUT.mlir go together")
    program = resolve_source(source, arguments=tuple(arg or ()))
    if apply is not None and save is not None:
        from tpugraphs.files import write_text
        from tpugraphs.space.applying import rewritten_text

        write_text(save, rewritten_text(program, apply))
        show(f"written to {save}")
        return
    from tpugraphs.measure.profiling import node_times
    from tpugraphs.report import forms as report
    from tpugraphs.space.forms.estimates import estimated
    from tpugraphs.target import target_named

    found = estimated(program)
    spent = {} if no_times else node_times(program, target_named("xla:cpu"))
    show(report.forms(program, found, spent, every=every))
    show(f"program {program.digest}")


def kernels(
    source: str,
    /,
    *,
    target: str = "iree:llvm-cpu",
    arg: Annotated[list[str] | None, Parameter(negative="")] = None,
    every: Annotated[bool, Parameter(name="--all", negative="")] = False,
) -> None:
    """Show which kernels a compiler makes of a program, how they are tiled, and how long each takes in place.

    Parameters
    ----------
    source
        MODULE.py:FUNCTION, a StableHLO or HLO file, or a program of the zoo (`tpugraphs programs`).
    target
        The compiler and device: iree:llvm-cpu, which comes with the extra iree.
    arg
        An example argument of the function, such as f32[8,128]; once for each.
    every
        List every kernel of a large program.
    """
    from tpugraphs.measure.profiling import kernel_times
    from tpugraphs.program import resolve_source
    from tpugraphs.report import kernels as report
    from tpugraphs.target import target_named

    compiler = target_named(target)
    program = resolve_source(source, arguments=tuple(arg or ()))
    found, times = kernel_times(program, compiler)
    show(report.kernels(f"{program.name} on {compiler.name}", found, times, every=every))


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
        show(graphs.published(found))
    else:
        show(graphs.programs(found))
