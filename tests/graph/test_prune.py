"""Pruning keeps the configurable nodes, what is near them, and the shortest ways between them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpugraphs.errors import BadRequest
from tpugraphs.graph import NODE_FEATURES, Graph, between, subgraph, within_hops


def graph_of(edges: list[tuple[int, int]], nodes: int, ids: list[int]) -> Graph:
    features = np.zeros((nodes, len(NODE_FEATURES)), np.float32)
    features[:, 0] = np.arange(nodes)
    return Graph(
        node_opcode=np.arange(nodes, dtype=np.uint8),
        node_feat=features,
        edge_index=np.array(edges, np.int64).reshape(-1, 2),
        node_splits=np.array([[0, nodes // 2, nodes]]),
        node_config_ids=np.array(ids, np.int64),
    )


CHAIN = graph_of([(i + 1, i) for i in range(9)], 10, [2, 6])


def test_hops_go_both_ways() -> None:
    assert np.flatnonzero(within_hops(CHAIN, 0)).tolist() == [2, 6]
    assert np.flatnonzero(within_hops(CHAIN, 1)).tolist() == [1, 2, 3, 5, 6, 7]
    assert np.flatnonzero(within_hops(CHAIN, 2, [0])).tolist() == [0, 1, 2]


def test_between_keeps_the_shortest_way_and_nothing_else() -> None:
    assert np.flatnonzero(between(CHAIN)).tolist() == [2, 3, 4, 5, 6]
    detour = graph_of([(1, 0), (2, 1), (5, 2), (3, 0), (5, 3), (4, 3)], 6, [0, 5])
    assert np.flatnonzero(between(detour)).tolist() == [0, 3, 5]


def test_a_subgraph_keeps_ids_edges_and_splits_in_step() -> None:
    small = subgraph(CHAIN, between(CHAIN))
    assert small.node_opcode.tolist() == [2, 3, 4, 5, 6]
    assert small.node_feat[:, 0].tolist() == [2, 3, 4, 5, 6]
    assert small.edge_index.tolist() == [[1, 0], [2, 1], [3, 2], [4, 3]]
    assert small.node_config_ids is not None
    assert small.node_config_ids.tolist() == [0, 4]
    assert small.node_splits is not None
    assert small.node_splits.tolist() == [[0, 3, 5]]


@given(data=st.data())
def test_hops_agree_with_walking(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(2, 15))
    edges = data.draw(st.lists(st.tuples(st.integers(1, nodes - 1), st.integers(0, nodes - 1)), max_size=25))
    edges = sorted({(max(pair), min(pair)) for pair in edges if pair[0] != pair[1]})
    graph = graph_of(edges, nodes, [data.draw(st.integers(0, nodes - 1))])
    hops, reached = data.draw(st.integers(0, 4)), set(graph.node_config_ids.tolist())  # pyright: ignore
    for _ in range(hops):
        reached |= {b for a, b in edges if a in reached} | {a for a, b in edges if b in reached}
    assert set(np.flatnonzero(within_hops(graph, hops)).tolist()) == reached


def test_what_cannot_be_pruned_is_said() -> None:
    with pytest.raises(BadRequest, match="this graph has no configurable nodes; say which nodes matter"):
        within_hops(graph_of([(1, 0)], 2, []), 1)
    with pytest.raises(BadRequest, match="the mask leaves out configurable nodes"):
        subgraph(CHAIN, np.arange(10) < 5)
    with pytest.raises(BadRequest, match="expected a mask of 10 nodes"):
        subgraph(CHAIN, np.ones(3, bool))
