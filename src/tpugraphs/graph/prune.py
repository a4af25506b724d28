"""Smaller graphs for models: what lies near the configurable nodes, and what lies between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tpugraphs.errors import BadRequest
from tpugraphs.graph.graph import Graph
from tpugraphs.types import Array

UNREACHED = np.iinfo(np.int64).max


def within_hops(graph: Graph, hops: int, nodes: Sequence[int] | Array | None = None) -> NDArray[np.bool_]:
    """Which nodes are at most so many edges, in either direction, away from the given (the configurable) nodes."""
    return distances(graph, _sources(graph, nodes), most=hops) <= hops


def between(graph: Graph, nodes: Sequence[int] | Array | None = None) -> NDArray[np.bool_]:
    """Which nodes lie on a shortest path, along the data, from one of the given nodes to a nearest other one.

    From each node the way is followed towards its producers until the first other given node is met; the given nodes
    themselves are kept. So the order and distance of configurable nodes survive, and everything else goes.
    """
    sources = _sources(graph, nodes)
    n, given = graph.num_nodes, np.zeros(graph.num_nodes, bool)
    given[sources] = True
    keep = given.copy()
    starts, producers = _by_consumer(graph)
    parent = np.full(n, -1, np.int64)
    for source in sources.tolist():
        seen, frontier, met = {source}, [source], None
        while frontier and met is None:
            following = []
            for node in frontier:
                for producer in producers[starts[node] : starts[node + 1]].tolist():
                    if producer in seen:
                        continue
                    seen.add(producer)
                    parent[producer] = node
                    if given[producer]:
                        met = producer
                        break
                    following.append(producer)
                if met is not None:
                    break
            frontier = following
        while met is not None and met != source:
            keep[met] = True
            met = int(parent[met])
    return keep


def distances(graph: Graph, sources: Array, most: int | None = None) -> NDArray[np.int64]:
    """How many edges each node is away from the nearest source, taken both ways; UNREACHED if no way leads there."""
    n = graph.num_nodes
    consumer, producer = graph.edge_index[:, 0].astype(np.int64), graph.edge_index[:, 1].astype(np.int64)
    distance = np.full(n, UNREACHED, np.int64)
    distance[sources] = 0
    frontier = np.zeros(n, bool)
    frontier[sources] = True
    step = 0
    while frontier.any() and (most is None or step < most):
        step += 1
        reached = np.zeros(n, bool)
        reached[producer[frontier[consumer]]] = True
        reached[consumer[frontier[producer]]] = True
        frontier = reached & (distance == UNREACHED)
        distance[frontier] = step
    return distance


def subgraph(graph: Graph, keep: NDArray[np.bool_]) -> Graph:
    """The official arrays of these nodes and the edges among them; ids of configurable nodes and splits follow."""
    if keep.shape != (graph.num_nodes,):
        raise BadRequest(f"prune: expected a mask of {graph.num_nodes} nodes, found shape {keep.shape}")
    place = np.cumsum(keep) - 1
    edges = graph.edge_index[keep[graph.edge_index].all(axis=1)]
    ids, kept_before = graph.node_config_ids, np.concatenate(([0], np.cumsum(keep)))
    if ids is not None and not keep[ids].all():
        raise BadRequest("prune: the mask leaves out configurable nodes")
    kept = np.flatnonzero(keep)
    return Graph(
        node_opcode=graph.node_opcode[kept],
        node_feat=graph.node_feat[kept],
        edge_index=place[edges].astype(graph.edge_index.dtype),
        node_splits=None if graph.node_splits is None else np.unique(kept_before[graph.node_splits])[None],
        node_config_ids=None if ids is None else place[ids].astype(ids.dtype),
    )


def _sources(graph: Graph, nodes: Sequence[int] | Array | None) -> NDArray[np.int64]:
    chosen = graph.node_config_ids if nodes is None else np.asarray(nodes, np.int64)
    if chosen is None or not len(chosen):
        raise BadRequest("prune: this graph has no configurable nodes; say which nodes matter")
    return np.asarray(chosen, np.int64)


def _by_consumer(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Edges sorted by consumer: where each consumer's producers start, and the producers."""
    order = np.argsort(graph.edge_index[:, 0], kind="stable")
    counts = np.bincount(graph.edge_index[:, 0], minlength=graph.num_nodes)
    return np.concatenate(([0], np.cumsum(counts))), graph.edge_index[order, 1].astype(np.int64)
