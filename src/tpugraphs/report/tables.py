"""What the command line shows: evaluations, collections, graphs, as rich tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tpugraphs.data.collection import Collection
from tpugraphs.data.packed import PackedGraph
from tpugraphs.data.verifying import Checked
from tpugraphs.graph.opcodes import opcode_name
from tpugraphs.metrics.evaluator import Evaluation, GraphScore
from tpugraphs.types import GraphSummary

_BLOCKS = " ▁▂▃▄▅▆▇█"
_BINS = 32
_MOST_ROWS = 40


def evaluation(result: Evaluation, *, every: bool = False) -> RenderableType:
    """A row a graph, then each metric over the graphs with its interval: the official ones and the noise-aware ones."""
    ks, most = list(result.graphs[0].top_k), len(result.graphs) if every else _MOST_ROWS
    headings = ("configs", *(f"top-{k}" for k in ks), "OPA", "tau-b", "noise", "OPA beyond")
    table = plain_table(f"{result.collection} · {result.split} · {result.rows}", "graph", *headings)
    for graph in result.graphs[:most]:
        table.add_row(*_graph_cells(graph))
    _say_rest(table, len(result.graphs), most)
    return Group(table, _metrics(result), *(Text(note, style="dim") for note in _notes(result)))


def _metrics(result: Evaluation) -> RenderableType:
    table = plain_table("", "metric", "value", "95 % interval", "graphs")
    for metric, estimate in result.summary.items():
        figure = _percent if metric.startswith("top") else "{:.4f}".format
        low, high = estimate.low, estimate.high
        interval = "–" if low is None or high is None else f"{figure(low)} to {figure(high)}"
        table.add_row(metric, figure(estimate.value), interval, f"{estimate.graphs:,}")
    return table if result.summary else Text("no graph could be ranked", style="yellow")


def collections(found: Sequence[Collection | str]) -> RenderableType:
    """A row a collection; a sentence for one that cannot be opened."""
    table = plain_table("Collections", "collection", "train", "valid", "test", "configs", "nodes", "")
    sentences = []
    for item in found:
        if isinstance(item, str):
            sentences.append(Text(item, style="red"))
            continue
        rows = item.table()
        counts = [sum(row.split == split for row in rows) for split in ("train", "valid", "test")]
        configs = sum(row.configs for row in rows)
        nodes = sum(row.nodes for row in rows)
        note = "synthetic" if item.synthetic else ""
        table.add_row(item.name, *(f"{count:,}" for count in counts), f"{configs:,}", f"{nodes:,}", note)
    return Group(*([table] if table.row_count else []), *sentences)


def collection(ds: Collection, *, every: bool = False) -> RenderableType:
    """Ranges over a collection, then a row a graph."""
    rows, most = ds.table(), len(ds) if every else _MOST_ROWS
    headings = ("split", "nodes", "config.", "configs", "unique", "best", "spread", "noise")
    table = plain_table(f"{ds}{' · synthetic, not measured' if ds.synthetic else ''}", "graph", *headings)
    for row in rows[:most]:
        table.add_row(
            row.name,
            row.split,
            f"{row.nodes:,}",
            f"{row.configurable_nodes:,}",
            f"{row.configs:,}",
            f"{row.unique_configs:,}",
            time_of(row.best_ns),
            "–" if row.spread is None else f"{row.spread:.3f}",
            _percent(row.noise_floor),
        )
    _say_rest(table, len(rows), most)
    legend = (
        "config.: configurable nodes; spread: worst over best; noise: 95 % of repeats of one config agree within it"
    )
    return Group(_ranges(rows), table, Text(legend, style="dim"))


def graph(one: PackedGraph, of: str) -> RenderableType:
    """Everything at a glance about one graph of a collection: sizes, opcodes, run times, noise."""
    row = one.summary
    table = Table(title=f"{row.name} · {of}", title_justify="left", title_style="bold", box=None, show_header=False)
    table.add_row("split", row.split)
    table.add_row("nodes, edges", f"{row.nodes:,}, {row.edges:,}")
    if "node_config_ids" in one.schema.keys:
        table.add_row("configurable nodes", f"{row.configurable_nodes:,} ({_histogram(one, one.node_config_ids)})")
    table.add_row("opcodes", _histogram(one))
    share = 1 - row.unique_configs / row.configs
    table.add_row("configs", f"{row.configs:,}, {row.unique_configs:,} unique ({share:.1%} repeated or alike)")
    if row.labelled:
        table.add_row("run time", f"{time_of(row.best_ns)} to {time_of(row.worst_ns)}, worst / best {row.spread:.4f}")
        noise = f"{_percent(row.noise_floor)} (95 % of {row.repeat_pairs:,} pairs of repeats are closer)"
        table.add_row("noise floor", noise if row.noise_floor is not None else "unknown: no config was repeated")
        table.add_row("fast → slow", runtime_histogram(one.relative_runtime))
    else:
        table.add_row("run time", "withheld (zeros)")
    stored = sum(record.bytes for record in one.files.manifest.files.values())
    plain = one.files.config_header.nbytes
    table.add_row("stored", f"{_bytes(stored)}; the config features alone would be {_bytes(plain)} as they are")
    return table


def verification(checked: Sequence[Checked]) -> RenderableType:
    """A row a collection, then every problem in a sentence."""
    table = plain_table("Verified", "collection", "graphs", "size", "result")
    for item in checked:
        bad = len(item.problems)
        result = Text("whole", style="green") if not bad else Text(f"{bad} problem{'s'[: bad - 1]}", style="red")
        table.add_row(item.collection, f"{item.graphs:,}", _bytes(item.bytes), result)
    return table


def runtime_histogram(runtime: NDArray[np.float64]) -> str:
    """Counts of configs from the fastest to the slowest, on a log scale of run time, as one line of bars."""
    logs = np.log(runtime)
    if logs.min() == logs.max():
        return f"all {len(runtime):,} the same"
    counts = np.histogram(logs, bins=_BINS)[0]
    levels = np.ceil(counts / counts.max() * (len(_BLOCKS) - 1)).astype(int)
    return "▕" + "".join(_BLOCKS[level] for level in levels) + f"▏ tallest bar {counts.max():,}"


def plain_table(title: str, first: str, *others: str) -> Table:
    """Figures to the right and never cut short; where the terminal is narrow, the first column folds."""
    table = Table(
        title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    table.add_column(first, overflow="fold", min_width=9)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _say_rest(table: Table, count: int, most: int) -> None:
    if count > most:
        table.add_row(f"… and {count - most:,} more (--all lists them)", style="dim")


def _graph_cells(graph: GraphScore) -> list[str | Text]:
    if graph.undefined:
        return [graph.graph, f"{graph.configs:,}", Text(graph.undefined, style="yellow")]
    beyond = graph.opa_beyond_noise
    return [
        graph.graph,
        f"{graph.configs:,}",
        *(_percent(error) for error in graph.top_k.values()),
        f"{graph.opa:.4f}",
        f"{graph.tau:.4f}",
        _percent(graph.noise_floor),
        "–" if beyond is None else f"{beyond:.4f}",
    ]


def _notes(result: Evaluation) -> list[str]:
    notes = [
        "top-K: slowdown of the best of the K configs scored lowest. OPA: share of pairs in the right order, graphs "
        "weighted by pairs. Beyond noise: only pairs that differ by more than the graph's noise floor."
    ]
    if result.undefined:
        notes.append("in no mean: " + ", ".join(f"{name} ({why})" for name, why in result.undefined.items()))
    constant = [graph.graph for graph in result.graphs if graph.constant_scores and not graph.undefined]
    if constant:
        notes.append(f"all scores equal, counted as tau-b 0: {', '.join(constant)}")
    if result.missing:
        shown = ", ".join(result.missing[:5]) + (", …" if len(result.missing) > 5 else "")
        notes.append(f"not scored: {len(result.missing)} of the split's graphs ({shown})")
    beyond, ranked = result.summary.get("OPA beyond noise"), len(result.graphs) - len(result.undefined)
    if beyond is None:
        notes.append("beyond noise: unknown, no graph has repeated configs")
    elif beyond.graphs < ranked:
        notes.append(f"beyond noise: over the {beyond.graphs} of {ranked} graphs whose noise floor is known")
    return notes


def _ranges(rows: Sequence[GraphSummary]) -> RenderableType:
    lines = [f"{len(rows):,} graphs"]
    for name in ("nodes", "edges", "configurable_nodes", "configs"):
        values = [getattr(row, name) for row in rows]
        if rows and max(values):
            mean = sum(values) / len(values)
            lines.append(f"{name.replace('_', ' ')} {min(values):,} to {max(values):,} (mean {mean:,.0f})")
    total = sum(row.configs for row in rows)
    if total:
        unique = sum(row.unique_configs for row in rows)
        lines.append(f"{total:,} graph-config pairs, {unique:,} unique")
    return Text(" · ".join(lines))


def _histogram(one: PackedGraph, nodes: NDArray[np.intp] | slice = slice(None)) -> str:
    opcodes, counts = np.unique(one.node_opcode[nodes], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    shown = [f"{opcode_name(int(opcodes[i]))} {counts[i]:,}" for i in order[:12]]
    rest = int(counts[order[12:]].sum())
    return ", ".join([*shown, *([f"others {rest:,}"] if rest else [])])


def time_of(ns: float | None) -> str:
    if ns is None:
        return "–"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3f} {unit}"
    return f"{ns:.0f} ns"


def count_of(number: int) -> str:
    """In full, or its size where nobody reads the digits."""
    return f"{number:,}" if number < 10**9 else f"{float(number):.1e}"


def _percent(share: float | None) -> str:
    if share is None:
        return "–"
    return f"{100 * share:.4f} %" if 0 < abs(share) < 0.001 else f"{100 * share:.2f} %"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
