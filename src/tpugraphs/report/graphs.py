"""A captured graph and the zoo, as tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tpugraphs.graph import OPCODES, CapturedGraph, opcode_name
from tpugraphs.program import ZooProgram, capture
from tpugraphs.report.tables import plain_table

_MOST_OPCODES, _BAR = 18, 32
_PARAMETER = OPCODES.index("parameter")
_UNITS = ("", "k", "M", "G", "T", "P")
STAGES = {
    "lowered": "as lowered, before any pass",
    "simplified": "as it enters XLA's layout assignment",
    "given": "as the file gives it",
}


def graph(captured: CapturedGraph) -> RenderableType:
    """What a program is made of."""
    head = Text(f"{captured.name}: {STAGES.get(captured.stage, captured.stage)}", style="bold")
    facts = Table.grid(padding=(0, 2, 0, 0))
    for name, value in _facts(captured):
        facts.add_row(Text(name, style="dim"), value)
    parts: list[RenderableType] = [head, "", facts, "", _histogram(captured)]
    if captured.unknown_opcodes:
        listed = ", ".join(f"{name} ({count})" for name, count in captured.unknown_opcodes.items())
        parts.append(Text(f"Opcodes unknown to the official table, with id 0: {listed}", style="yellow"))
    return Group(*parts)


def _facts(captured: CapturedGraph) -> Iterable[tuple[str, str]]:
    ids = captured.node_config_ids
    ids = np.zeros(0, np.int64) if ids is None else ids
    kinds = Counter(opcode_name(int(captured.node_opcode[node])) for node in ids)
    listed = ", ".join(f"{count} {name}" for name, count in kinds.most_common())
    yield "nodes", f"{captured.num_nodes:,} in {len(captured.computation_names):,} computations"
    yield "edges", f"{captured.num_edges:,}"
    yield "configurable", f"{len(ids):,}{f' ({listed})' if listed else ''}"
    if captured.parameters is not None:
        yield "parameters", f"{captured.parameters:,}"
    else:
        yield "inputs", _inputs(captured)
    yield "multiply-adds", f"{scaled(float(captured.multiply_adds.sum()))} in convolutions and dots"
    if captured.costs is not None:
        costs = captured.costs
        yield "by XLA's count", f"{scaled(costs.flops)} FLOPs, {scaled(costs.bytes_accessed)}B accessed"


def _inputs(captured: CapturedGraph) -> str:
    parameters = (captured.computation == captured.entry) & (captured.node_opcode == _PARAMETER)
    values = captured.column("shape_dim_product")[parameters].sum()
    return f"{int(parameters.sum()):,} arrays, {scaled(float(values))} values"


def _histogram(captured: CapturedGraph) -> RenderableType:
    counts = Counter(opcode_name(int(opcode)) for opcode in captured.node_opcode)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("opcode")
    table.add_column("nodes", justify="right")
    table.add_column("")
    table.add_column("multiply-adds", justify="right")
    heavy: Counter[str] = Counter()
    for node in np.flatnonzero(captured.multiply_adds).tolist():
        heavy[opcode_name(int(captured.node_opcode[node]))] += captured.multiply_adds[node]
    top = counts.most_common()
    shown = top[:_MOST_OPCODES] + [pair for pair in top[_MOST_OPCODES:] if heavy[pair[0]]]
    for name, count in shown:
        bar = "█" * max(1, round(_BAR * count / top[0][1]))
        table.add_row(name, f"{count:,}", Text(bar, style="cyan"), scaled(heavy[name]) if heavy[name] else "")
    rest = len(top) - len(shown)
    if rest > 0:
        left = captured.num_nodes - sum(count for _, count in shown)
        table.add_row(f"{rest} more", f"{left:,}", "", "")
    return table


def programs(listed: Iterable[ZooProgram]) -> RenderableType:
    """The zoo, a row a variant."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading, whole in (
        ("family", True),
        ("variant", True),
        ("VARIANT/MODE/bBATCH by tier", False),
        ("from", False),
    ):
        table.add_column(heading, no_wrap=whole)
    variants: dict[str, list[ZooProgram]] = {}
    for program in listed:
        variants.setdefault(program.entry.variant, []).append(program)
    family = ""
    for variant, members in variants.items():
        first = members[0]
        table.add_row("" if first.family == family else first.family, variant, _modes(members), first.source)
        family = first.family
    total = sum(map(len, variants.values()))
    families = len({member.family for members in variants.values() for member in members})
    of = f"{families} families" if families != 1 else "1 family"
    tiers = Counter(member.tier for members in variants.values() for member in members)
    counts = ", ".join(f"{tiers[tier]} {tier}" for tier in ("small", "medium", "large") if tiers[tier])
    return Group(table, Text(f"{total} programs of {of}: {counts}", style="dim"))


def _modes(members: list[ZooProgram]) -> str:
    """`small: inference b1 b8, train b1 · large: train b8`."""
    tiers: dict[str, dict[str, list[str]]] = {}
    for member in members:
        tiers.setdefault(member.tier, {}).setdefault(member.mode, []).append(f"b{member.batch}")
    listed = {
        tier: ", ".join(f"{mode} {' '.join(batches)}" for mode, batches in modes.items())
        for tier, modes in tiers.items()
    }
    return " · ".join(f"{tier}: {modes}" for tier, modes in listed.items())


def published(listed: Iterable[ZooProgram]) -> RenderableType:
    """Parameters and multiply-adds counted here, beside published ones."""
    table = plain_table("", "variant", "parameters", "published", "off", "multiply-adds", "published", "off", "by")
    table.columns[-1].no_wrap = False
    seen: set[str] = set()
    for program in listed:
        known = program.published
        if known is None or program.entry.variant in seen or program.mode != "inference" or program.batch != 1:
            continue
        seen.add(program.entry.variant)
        captured = capture(program.as_published())
        cells = _beside(captured.parameters or 0, known.parameters, "{:,.0f}".format)
        cells += _beside(float(captured.multiply_adds.sum()), known.multiply_adds, scaled)
        table.add_row(program.entry.variant, *cells, known.source)
    return table


def _beside(counted: float, known: float | None, show: Callable[[float], str]) -> list[str]:
    if known is None:
        return [show(counted), "–", ""]
    return [show(counted), show(known), f"{100 * (counted / known - 1):+.2f} %"]


def scaled(value: float) -> str:
    """A large number in three digits: 3.86 G."""
    power = 0
    while abs(value) >= 999.5 and power < len(_UNITS) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.3g} {_UNITS[power]}".strip()
