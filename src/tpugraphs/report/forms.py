"""The forms of a program's nodes, where its time goes and what each form would cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tpugraphs.graph import Costs
from tpugraphs.program import Program, mlir
from tpugraphs.report.graphs import scaled
from tpugraphs.report.tables import time_of
from tpugraphs.space.forms import FORMS
from tpugraphs.space.forms.estimates import NodeForms

_MOST_ROWS = 20


def forms(
    program: Program, found: Sequence[NodeForms], spent_ns: Mapping[str, float], *, every: bool = False
) -> RenderableType:
    """Nodes by the time they take, each with its forms."""
    total = sum(spent_ns.values())
    order = sorted(found, key=lambda node: -spent_ns.get(node.tag, 0.0))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("node", overflow="fold")
    for heading in ("time", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("form")
    for heading in ("FLOPs", "bytes"):
        table.add_column(heading, justify="right", no_wrap=True)
    for node in order if every else order[:_MOST_ROWS]:
        ns = spent_ns.get(node.tag)
        share = "" if ns is None or not total else f"{ns / total:.1%}"
        own = (scaled(node.own.flops), f"{scaled(node.own.bytes_accessed)}B")
        label = f"{mlir.short(node.tag)} {node.description}"
        table.add_row(label, time_of(ns) if ns is not None else "", share, "default", *own, style="bold")
        for name, costs in node.forms.items():
            table.add_row("", "", "", f"{name}: {FORMS[name].label}", *_relative(costs, node.own))
    if len(order) > _MOST_ROWS and not every:
        table.add_row(f"… and {len(order) - _MOST_ROWS:,} more (--all lists them)", style="dim")
    without = len(program.nodes) - len(found)
    seen = sum(spent_ns.get(node.tag, 0.0) for node in found)
    told = f"{len(found)} of {len(program.nodes)} nodes have other forms"
    told += f" and take {seen / total:.0%} of the time" if total else ""
    told += f"; {without} have just the default." if without else "."
    return Group(Text(program.name, style="bold"), table, Text(told), Text(_LEGEND, style="dim"))


_LEGEND = "FLOPs and bytes by XLA's analysis of the node alone, before fusion; of a form as multiples of the default's."


def _relative(costs: Costs, own: Costs) -> tuple[str, str]:
    return _times(costs.flops, own.flops), _times(costs.bytes_accessed, own.bytes_accessed)


def _times(value: float, own: float) -> str:
    return f"× {value / own:.2f}" if own else scaled(value)
