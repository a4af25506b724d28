"""A graph as a drawing: SVG, or an HTML page to pan and zoom. Data flows downwards; layouts stand on the edges.

Of a large graph the neighbourhood of its configurable nodes is drawn; what lies between is a dashed edge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np

from tpugraphs.graph import CapturedGraph, opcode_name, within_hops
from tpugraphs.report.page import STYLE, page

MOST_NODES = 150
_BOX_HEIGHT, _ROW, _GAP, _LETTER = 36, 96, 22, 6.6
_MOVES = ("reshape", "transpose", "broadcast", "copy", "slice", "pad", "concatenate", "reverse", "bitcast", "gather")
_INPUTS = ("parameter", "constant", "iota")
_TYPES = ("invalid pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 bf16 c64 c128 tuple opaque token").split()
_SWEEPS = 6


@dataclass(frozen=True, slots=True)
class _Edge:
    """From a producer to a consumer, both drawn."""

    producer: int
    consumer: int
    hidden: int
    """How many nodes of the shortest way between are not drawn."""


def draw_svg(graph: CapturedGraph) -> str:
    """The drawing as an SVG file."""
    drawing, width, height = _drawing(graph)
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style>{drawing}</svg>\n'


def draw_html(graph: CapturedGraph) -> str:
    """The drawing as a page: wheel or +/- to zoom, drag or arrows to move, a box to search."""
    drawing, width, height = _drawing(graph)
    return page(f"{graph.name}, {graph.stage}", _about(graph), drawing, width, height)


def shown_nodes(graph: CapturedGraph) -> list[int]:
    """Which nodes are drawn: all of a small graph, else the heaviest configurable nodes and what is next to them."""
    if graph.num_nodes <= MOST_NODES:
        return list(range(graph.num_nodes))
    ids = graph.node_config_ids
    centres = np.asarray(ids if ids is not None and len(ids) else [graph.num_nodes - 1], np.int64)
    heaviest = centres[np.argsort(-graph.multiply_adds[centres], kind="stable")]
    count = len(heaviest)
    while count > 1 and within_hops(graph, 1, heaviest[:count]).sum() > MOST_NODES:
        count = max(1, count * 3 // 4)
    near = np.flatnonzero(within_hops(graph, 1, heaviest[:count]))
    return sorted({*heaviest[:count].tolist(), *near.tolist()[:MOST_NODES]})


def _about(graph: CapturedGraph) -> str:
    shown = len(shown_nodes(graph))
    part = "all" if shown == graph.num_nodes else f"{shown:,}, around configurable nodes,"
    return f"{part} of {graph.num_nodes:,} nodes; dashed edges pass nodes that are not drawn"


def _drawing(graph: CapturedGraph) -> tuple[str, float, float]:
    nodes = shown_nodes(graph)
    edges = list(_edges(graph, nodes))
    layers = _layers(nodes, edges)
    texts = {node: (_title(graph, node), _shape(graph, node)) for node in nodes}
    widths = {node: max(map(len, texts[node])) * _LETTER + 14 for node in nodes}
    routes = _routes(edges, layers, widths)
    at = _positions(_ordered(layers, routes), widths)
    width = max((x + widths[node] / 2 for node, (x, _) in at.items()), default=0) + _GAP
    height = max((y for _, y in at.values()), default=0) + _BOX_HEIGHT + _GAP
    configurable = set() if graph.node_config_ids is None else set(graph.node_config_ids.tolist())
    told = {one.producer for one in edges if not one.hidden and (len(nodes) <= 60 or one.consumer in configurable)}
    parts = [_edge_svg(edge, [at[stop] for stop in route]) for edge, route in zip(edges, routes, strict=True)]
    parts += [_layout_svg(graph, node, at[node]) for node in sorted(told)]
    parts += [_node_svg(graph, node, at[node], widths[node], texts[node], node in configurable) for node in nodes]
    return "".join(parts), width, height


def _routes(edges: list[_Edge], layers: dict[int, int], widths: dict[int, float]) -> list[list[int]]:
    """The stops of each edge: where it passes a layer it gets a place of its own there, a node below zero."""
    routes, place = [], 0
    for edge in edges:
        route = [edge.producer]
        for level in range(layers[edge.producer] + 1, layers[edge.consumer]):
            place -= 1
            layers[place], widths[place] = level, 0.0
            route.append(place)
        routes.append([*route, edge.consumer])
    return routes


def _edges(graph: CapturedGraph, nodes: list[int]) -> Iterator[_Edge]:
    """Direct edges, and for each drawn node the nearest drawn ones behind those that are not drawn."""
    shown = np.zeros(graph.num_nodes, bool)
    shown[nodes] = True
    order = np.argsort(graph.edge_index[:, 0], kind="stable")
    starts = np.searchsorted(graph.edge_index[order, 0], np.arange(graph.num_nodes + 1))
    producers = graph.edge_index[order, 1]
    for node in nodes:
        seen, frontier, hidden = {node}, [node], 0
        while frontier:
            following = []
            for one in frontier:
                for producer in producers[starts[one] : starts[one + 1]].tolist():
                    if producer in seen:
                        continue
                    seen.add(producer)
                    if shown[producer]:
                        yield _Edge(producer, node, hidden)
                    else:
                        following.append(producer)
            frontier, hidden = following, hidden + 1


def _layers(nodes: list[int], edges: list[_Edge]) -> dict[int, int]:
    """The longest way from an input; inputs stand right above their first consumer."""
    incoming: dict[int, list[int]] = {node: [] for node in nodes}
    outgoing: dict[int, list[int]] = {node: [] for node in nodes}
    for edge in edges:
        incoming[edge.consumer].append(edge.producer)
        outgoing[edge.producer].append(edge.consumer)
    layer: dict[int, int] = {}
    for node in nodes:  # producers come first
        layer[node] = 1 + max((layer.get(producer, 0) for producer in incoming[node]), default=0)
    for node in nodes:
        if not incoming[node] and outgoing[node]:
            layer[node] = min(layer[consumer] for consumer in outgoing[node]) - 1
    return layer


def _ordered(layers: dict[int, int], routes: list[list[int]]) -> list[list[int]]:
    """The nodes of each layer from left to right, each near the middle of its neighbours."""
    rows: dict[int, list[int]] = {}
    for node, layer in layers.items():
        rows.setdefault(layer, []).append(node)
    neighbours: dict[int, list[int]] = {node: [] for node in layers}
    for route in routes:
        for above, below in pairwise(route):
            neighbours[below].append(above)
            neighbours[above].append(below)
    levels = sorted(rows)
    place = {node: index - len(rows[level]) / 2 for level in levels for index, node in enumerate(rows[level])}
    for sweep in range(_SWEEPS):
        for level in levels if sweep % 2 == 0 else levels[::-1]:
            middle = {node: _mean([place[other] for other in neighbours[node]], place[node]) for node in rows[level]}
            rows[level].sort(key=lambda node: middle[node])
            place.update({node: index - len(rows[level]) / 2 for index, node in enumerate(rows[level])})
    return [rows[level] for level in levels]


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _positions(rows: list[list[int]], widths: dict[int, float]) -> dict[int, tuple[float, float]]:
    """The middle of each box's top; rows are centred."""
    lengths = [sum(widths[node] + _GAP for node in row) for row in rows]
    middle = max(lengths, default=0) / 2 + _GAP
    at: dict[int, tuple[float, float]] = {}
    for index, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        x = middle - length / 2
        for node in row:
            at[node] = (x + (widths[node] + _GAP) / 2, _GAP + index * _ROW)
            x += widths[node] + _GAP
    return at


def _node_svg(
    graph: CapturedGraph,
    node: int,
    at: tuple[float, float],
    width: float,
    texts: tuple[str, str],
    configurable: bool,
) -> str:
    opcode = opcode_name(int(graph.node_opcode[node]))
    kind = "configurable" if configurable else "input" if opcode in _INPUTS else "move" if opcode in _MOVES else "plain"
    x, y = at
    box = f'<rect x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_BOX_HEIGHT}" rx="5"/>'
    lines = (
        f'<text x="{x:.1f}" y="{y + 15:.1f}" class="title">{escape(texts[0])}</text>'
        f'<text x="{x:.1f}" y="{y + 29:.1f}">{escape(texts[1])}</text>'
    )
    return f'<g class="node {kind}"><title>{escape(str(graph.explain(node)))}</title>{box}{lines}</g>'


def _edge_svg(edge: _Edge, stops: list[tuple[float, float]]) -> str:
    x, y = stops[0][0], stops[0][1] + _BOX_HEIGHT
    path = [f"M{x:.1f},{y:.1f}"]
    for next_x, next_y in stops[1:]:
        bend = (next_y - y) / 2
        path.append(f"C{x:.1f},{y + bend:.1f} {next_x:.1f},{next_y - bend:.1f} {next_x:.1f},{next_y:.1f}")
        x, y = next_x, next_y + _BOX_HEIGHT
        if (next_x, next_y) != stops[-1]:
            path.append(f"V{y:.1f}")
    style = ' class="hidden"' if edge.hidden else ""
    drawn = f'<path{style} d="{" ".join(path)}"/>'
    if not edge.hidden:
        return drawn
    (x1, y1), (x2, y2) = stops[-2:]
    at = f'x="{x1 + 0.5 * (x2 - x1):.1f}" y="{(y1 + y2 + _BOX_HEIGHT) / 2 + 3:.1f}"'
    return f'{drawn}<text class="edge" {at}>{edge.hidden} between</text>'


def _layout_svg(graph: CapturedGraph, node: int, at: tuple[float, float]) -> str:
    """The layout of what a node hands on, minor to major, where its edges begin."""
    order = _list(graph, "layout_minor_to_major", node)
    if len(order) < 2:
        return ""
    text = ",".join(map(str, order))
    return f'<text class="edge" x="{at[0]:.1f}" y="{at[1] + _BOX_HEIGHT + 11:.1f}">{{{text}}}</text>'


def _title(graph: CapturedGraph, node: int) -> str:
    opcode = opcode_name(int(graph.node_opcode[node]))
    window = [int(graph.column(f"window_size_{index}")[node]) for index in range(6)]
    size = "x".join(str(length) for length in window if length)
    return f"{size} {opcode}" if size and opcode != "unknown" else opcode


def _shape(graph: CapturedGraph, node: int) -> str:
    elements = int(graph.column("tuple_elements")[node])
    if elements:
        return f"tuple of {elements}"
    kinds = graph.node_feat[node, 2 : 2 + len(_TYPES)]
    kind = _TYPES[int(np.argmax(kinds))] if kinds.any() else "?"
    return f"{kind}[{','.join(map(str, _list(graph, 'shape_dim', node)))}]"


def _list(graph: CapturedGraph, name: str, node: int) -> list[int]:
    values = (int(graph.extended[f"{name}_{index}"][node]) for index in range(6))
    return [value for value in values if value >= 0]
