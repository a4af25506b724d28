"""The kernels that a compiler made of a program: what each computes, how it is tiled, where the time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tpugraphs.report.tables import time_of
from tpugraphs.types import Kernel

_MOST_ROWS = 24
_LEGEND = (
    "Loops: r is one that sums. Tiles, loop by loop, 0 where a loop is not cut: what a thread gets / what registers "
    "hold / how far a sum goes at a time."
)


def kernels(title: str, found: Sequence[Kernel], times: Mapping[str, float], *, every: bool = False) -> RenderableType:
    """By the time they take, all places together."""
    total = sum(times.values())
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("kernel", no_wrap=True)
    table.add_column("what", overflow="fold")
    for heading in ("time", "share", "places"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("loops", "tiles", "made by"):
        table.add_column(heading, overflow="fold")
    order = sorted(found, key=lambda kernel: -times.get(kernel.name, 0.0))
    for kernel in order if every else order[:_MOST_ROWS]:
        ns = times.get(kernel.name, 0.0)
        share = f"{ns / total:.1%}" if total else ""
        places = f"{len(kernel.tags):,}"
        tiles = "none" if kernel.tiles is None else str(kernel.tiles)
        table.add_row(kernel.digest, kernel.what, time_of(ns), share, places, _loops(kernel), tiles, kernel.pipeline)
    if len(order) > _MOST_ROWS and not every:
        table.add_row("…", f"{len(order) - _MOST_ROWS:,} more (--all lists them)", style="dim")
    return Group(Text(title, style="bold"), table, Text(_summary(found, times)), Text(_LEGEND, style="dim"))


def _loops(kernel: Kernel) -> str:
    return "×".join(f"{loop.length}{'r' if loop.reduces else ''}" for loop in kernel.loops)


def _summary(found: Sequence[Kernel], times: Mapping[str, float]) -> str:
    tiled = [kernel for kernel in found if kernel.tiles is not None]
    total = sum(times.values())
    share = (
        f", which take {sum(times.get(kernel.name, 0.0) for kernel in tiled) / total:.0%} of the time" if total else ""
    )
    distinct = len({kernel.digest for kernel in found})
    places = sum(len(kernel.tags) for kernel in found)
    return (
        f"{len(found):,} kernels in {places:,} places, {distinct:,} of them distinct; {len(tiled):,} are tiled{share}. "
        f"All kernels together {time_of(total)}."
    )
