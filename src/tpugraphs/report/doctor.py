"""Whether a machine is fit for measuring, as tables."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tpugraphs.measure.doctor import Finding, Severity, findings, findings_of_test, percent, ranges, verdict
from tpugraphs.measure.machine import MachineFacts
from tpugraphs.measure.noise import SAMPLES, SelfTest
from tpugraphs.report.tables import plain_table, time_of

_STYLES: dict[Severity, str] = {"bad": "bold red", "warning": "yellow", "note": "", "good": "green"}
"""The worst first."""
_LEGEND = (
    "default again: the ratio of a second build, in truth 1; another program: the ratio with an option changed. "
    "tell apart: 19 of 20 comparisons of configs that differ by this much come out right"
)


def machine(facts: MachineFacts) -> RenderableType:
    """What is known of the machine, and what to do about it."""
    return Group(Text("This machine", style="bold"), _listed(findings(facts)))


def self_test(test: SelfTest) -> RenderableType:
    """What was measured, what it means, and the verdict."""
    head = Text(f"Self-test: {test.program} on {test.target}, {time_of(test.default_ns)} a call, {test.seconds:.0f} s")
    head.stylize("bold")
    parts = [head, _places(test), _processes(test), _resolution(test), Text(_LEGEND, style="dim")]
    return Group(*parts, _listed(findings_of_test(test)), Text(verdict(test), style="bold"))


def _listed(found: Iterable[Finding]) -> RenderableType:
    order = list(_STYLES)
    table = Table(box=box.SIMPLE, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in sorted(found, key=lambda finding: order.index(finding.severity)):
        told = Text(one.found)
        if one.todo:
            told.append(f"\n→ {one.todo}", style="cyan")
        table.add_row(Text(one.severity, style=_STYLES[one.severity]), one.what, told)
    return table


def _places(test: SelfTest) -> RenderableType:
    table = plain_table("", "main thread on", "one call", "deviation", "at ticks", "")
    for one in test.pinnings:
        name = "any processor" if one.processors is None else f"processor {ranges(one.processors)}"
        ticks = "unknown" if one.tick_share is None else percent(one.tick_share)
        chosen = "steadiest" if one == test.pinning else ""
        table.add_row(name, time_of(one.median_ns), percent(one.spread), ticks, chosen)
    return table


def _processes(test: SelfTest) -> RenderableType:
    table = plain_table("", "process", "default", "default again", "another program")
    for number, process in enumerate(test.processes, 1):
        other = f"{median(process.other):.4f}" if process.other else "–"
        table.add_row(str(number), time_of(process.default_ns), f"{median(process.again):.4f}", other)
    return table


def _resolution(test: SelfTest) -> RenderableType:
    several = len(test.processes)
    table = plain_table("", "samples", "tell apart, in one process", f"in {several} processes")
    for samples in SAMPLES:
        table.add_row(str(samples), percent(test.tells_apart(samples)), percent(test.tells_apart(samples, several)))
    return table
