"""Graphs for people: summaries, tables of the zoo, drawings."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console, RenderableType

import tpugraphs as tg
from tests.kit.programs import depthwise_net, net_arguments
from tpugraphs.report import drawing, graphs


def shown(what: RenderableType) -> str:
    console = Console(width=160, file=io.StringIO())
    console.print(what)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture(scope="module")
def small() -> tg.CapturedGraph:
    return tg.capture(depthwise_net, *net_arguments(8), costs=True)


@pytest.fixture(scope="module")
def large() -> tg.CapturedGraph:
    def deep(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(40):
            x = jnp.tanh(x @ w) * 2 + 1
        return x

    return tg.capture(deep, np.ones((4, 8), np.float32), np.ones((8, 8), np.float32))


def test_a_summary_names_what_a_program_is_made_of(small: tg.CapturedGraph) -> None:
    text = shown(graphs.graph(small))
    assert "depthwise_net: as lowered, before any pass" in text
    assert f"{small.num_nodes:,} in {len(small.computation_names)} computations" in text
    assert "4 (3 convolution, 1 dot)" in text
    assert f"{small.parameters:,}" in text
    assert "FLOPs" in text
    assert re.search(r"convolution +3 +█", text)


def test_opcodes_that_nobody_knows_are_named(small: tg.CapturedGraph) -> None:
    from dataclasses import replace

    assert "entangle (3)" in shown(graphs.graph(replace(small, unknown_opcodes={"entangle": 3}, parameters=None)))


def test_the_zoo_is_listed_by_family() -> None:
    text = shown(graphs.programs(tg.programs.values()))
    assert f"{len(tg.programs)} programs of {len(tg.programs.families)} families" in text
    assert all(family in text for family in tg.programs.families)


@pytest.mark.parametrize(
    ("value", "expected"), [(0, "0"), (999, "999"), (999.6, "1 k"), (3.858e9, "3.86 G"), (1e15, "1 P")]
)
def test_large_numbers_are_scaled(value: float, expected: str) -> None:
    assert graphs.scaled(value) == expected


def test_a_small_graph_is_drawn_whole(small: tg.CapturedGraph) -> None:
    assert drawing.shown_nodes(small) == list(range(small.num_nodes))
    svg = ElementTree.fromstring(drawing.draw_svg(small))
    boxes = svg.findall(".//{http://www.w3.org/2000/svg}rect")
    assert len(boxes) == small.num_nodes
    places = [tuple(float(box.get(key) or 0) for key in ("x", "y", "width", "height")) for box in boxes]
    for index, (x, y, width, height) in enumerate(places):
        for x2, y2, width2, height2 in places[index + 1 :]:
            apart = x + width <= x2 or x2 + width2 <= x or y + height <= y2 or y2 + height2 <= y
            assert apart, "no box covers another"
    text = "".join(svg.itertext())
    assert "3x3 convolution" in text
    assert "{3,2,1,0}" in text, "layouts stand on the edges"


def test_of_a_large_graph_the_configurable_nodes_are_drawn(large: tg.CapturedGraph) -> None:
    nodes = drawing.shown_nodes(large)
    assert len(nodes) <= drawing.MOST_NODES < large.num_nodes
    assert large.node_config_ids is not None
    assert len(set(nodes) & set(large.node_config_ids.tolist())) > 10
    page = drawing.draw_html(large)
    assert " between</text>" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", ""), "nothing is fetched"
    assert f"of {large.num_nodes:,} nodes" in page


def test_names_cannot_break_out_of_a_page(small: tg.CapturedGraph) -> None:
    from dataclasses import replace

    page = drawing.draw_html(replace(small, name="</title><script>alert(1)</script>"))
    assert "<script>alert" not in page
