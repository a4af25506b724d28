"""Networks on graphs: GCN (arXiv 1609.02907), GraphSAGE (1706.02216), message passing by edge networks (1704.01212)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise, repeat
from typing import Any

import jax
import jax.numpy as jnp

from tpugraphs.errors import BadRequest
from tpugraphs.program.zoo.layers import (
    batch_norm,
    dense,
    dense_weights,
    mlp,
    mlp_weights,
    norm_statistics,
    norm_weights,
)
from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.training import adam_step, cross_entropy
from tpugraphs.program.zoo.values import Values

Weights = dict[str, Any]
Graph = dict[str, Any]
"""`nodes` [graphs, nodes, features]; `senders` and `receivers` [graphs, edges]; `edges` [graphs, edges, features]."""


def make(
    values: Values,
    *,
    mode: str,
    batch: int,
    network: str = "gcn",
    nodes: int = 2708,
    edges: int = 10556,
    features: int = 1433,
    width: int = 16,
    layers: int = 2,
    outputs: int = 7,
    normalised: bool = False,
    edge_features: int = 5,
    edge_width: int = 128,
) -> Made:
    """`batch` graphs of `nodes` nodes and `edges` directed edges. The defaults are GCN's for Cora.

    "gcn" and "sage" classify nodes, with batch normalisation if `normalised`. "mpnn" predicts real numbers for a whole
    graph: its `layers` are rounds of messages with the same weights; the `edge_` options are its alone.
    """
    graph: Graph = {
        "nodes": values.normal(batch, nodes, features),
        "senders": values.integers(nodes, batch, edges),
        "receivers": values.integers(nodes, batch, edges),
    }
    if network == "mpnn":
        graph["edges"] = values.normal(batch, edges, edge_features)
        weights = message_weights(values, features, edge_features, edge_width, width, outputs)
        return _message_passing(values, mode, weights, graph, layers, values.normal(batch, outputs))
    networks: dict[str, Callable[..., jax.Array]] = {"gcn": gcn, "sage": sage}
    if network not in networks:
        raise BadRequest(f"graph_network: no network {network}; there are gcn, sage and mpnn")
    classify = networks[network]
    widths = [features, *[width] * (layers - 1), outputs]
    normed = widths[1:-1] if normalised else []
    weights = {
        "layers": mlp_weights(values, *widths),
        "neighbours": [values.weight(*pair) for pair in pairwise(widths)] if network == "sage" else [],
        "norms": [norm_weights(values, channels) for channels in normed],
    }

    def loss(weights: Weights, graph: Graph, labels: jax.Array) -> jax.Array:
        return cross_entropy(classify(weights, repeat(None), graph), labels.reshape(-1))

    if mode == "inference":
        statistics = [norm_statistics(values, channels) for channels in normed]
        return Made(classify, (weights, statistics, graph), weights=weights)
    if mode == "train":
        return adam_step(values, loss, weights, graph, values.integers(outputs, batch, nodes))
    raise BadRequest(f"graph_network: no mode {mode}; there are inference and train")


def united(graph: Graph) -> tuple[jax.Array, jax.Array, jax.Array]:
    """All graphs as one: nodes [all nodes, features], senders and receivers [all edges]."""
    graphs, nodes, features = graph["nodes"].shape
    first = nodes * jnp.arange(graphs, dtype=jnp.int32)[:, None]
    senders, receivers = ((graph[name] + first).reshape(-1) for name in ("senders", "receivers"))
    return graph["nodes"].reshape(-1, features), senders, receivers


# Classifiers of nodes


def gcn(weights: Weights, statistics: Iterable[Weights | None], graph: Graph) -> jax.Array:
    """X' = D^-1/2 (A + 1) D^-1/2 X W + b, where D counts the edges that arrive."""
    x, senders, receivers = united(graph)
    count = len(x)
    selves = jnp.arange(count, dtype=jnp.int32)
    senders, receivers = jnp.concatenate([senders, selves]), jnp.concatenate([receivers, selves])
    root = jax.lax.rsqrt(jax.ops.segment_sum(jnp.ones(len(receivers)), receivers, count))
    coefficients = (root[senders] * root[receivers])[:, None]
    moments = iter(statistics)
    for index, layer in enumerate(weights["layers"]):
        sent = (x @ layer["kernel"])[senders] * coefficients
        x = jax.ops.segment_sum(sent, receivers, count) + layer["bias"]
        x = between(weights, index, x, moments)
    return x


def sage(weights: Weights, statistics: Iterable[Weights | None], graph: Graph) -> jax.Array:
    """x' = W x + b + V (the mean of the neighbours' x)."""
    x, senders, receivers = united(graph)
    count = len(x)
    degrees = jnp.maximum(jax.ops.segment_sum(jnp.ones(len(receivers)), receivers, count), 1)[:, None]
    moments = iter(statistics)
    for index, (layer, neighbours) in enumerate(zip(weights["layers"], weights["neighbours"], strict=True)):
        mean = jax.ops.segment_sum(x[senders], receivers, count) / degrees
        x = between(weights, index, dense(layer, x) + mean @ neighbours, moments)
    return x


def between(weights: Weights, index: int, x: jax.Array, moments: Any) -> jax.Array:
    """What follows every layer but the last."""
    if index == len(weights["layers"]) - 1:
        return x
    return jax.nn.relu(batch_norm(weights["norms"][index], x, next(moments)) if weights["norms"] else x)


# Message passing


def message_weights(
    values: Values, features: int, edge_features: int, edge_width: int, width: int, outputs: int
) -> Weights:
    return {
        "embed": dense_weights(values, features, width),
        "edge": mlp_weights(values, edge_features, edge_width, width * width),
        "bias": values.zeros(width),
        "update": {
            "message": dense_weights(values, width, 3 * width),
            "state": dense_weights(values, width, 3 * width),
        },
        "gate": mlp_weights(values, 2 * width, width, outputs),
        "readout": mlp_weights(values, width, width, outputs),
    }


def _message_passing(values: Values, mode: str, weights: Weights, graph: Graph, rounds: int, targets: Any) -> Made:
    def infer(weights: Weights, graph: Graph) -> jax.Array:
        return message_passing(weights, graph, rounds)

    def loss(weights: Weights, graph: Graph, targets: jax.Array) -> jax.Array:
        return ((infer(weights, graph) - targets) ** 2).mean()

    if mode == "inference":
        return Made(infer, (weights, graph), weights=weights)
    if mode == "train":
        return adam_step(values, loss, weights, graph, targets)
    raise BadRequest(f"graph_network: no mode {mode}; there are inference and train")


def message_passing(weights: Weights, graph: Graph, rounds: int) -> jax.Array:
    """Messages A(e) h, where the edge network A makes a matrix of the edge's features; a gated sum over the nodes."""
    x, senders, receivers = united(graph)
    first = state = jax.nn.relu(dense(weights["embed"], x))
    count, width = state.shape
    edges = graph["edges"].reshape(len(senders), -1)
    matrices = mlp(weights["edge"], edges).reshape(-1, width, width) / jnp.sqrt(width)
    for _ in range(rounds):
        messages = jnp.einsum("eij,ej->ei", matrices, state[senders])
        arrived = jax.ops.segment_sum(messages, receivers, count) + weights["bias"]
        state = gated_update(weights["update"], arrived, state)
    gate = jax.nn.sigmoid(mlp(weights["gate"], jnp.concatenate([state, first], axis=1)))
    readout = gate * mlp(weights["readout"], state)
    graphs, nodes, _ = graph["nodes"].shape
    return jax.ops.segment_sum(readout, jnp.repeat(jnp.arange(graphs), nodes), graphs)


def gated_update(weights: Weights, message: jax.Array, state: jax.Array) -> jax.Array:
    """A gated recurrent unit."""
    given = jnp.split(dense(weights["message"], message), 3, axis=1)
    kept = jnp.split(dense(weights["state"], state), 3, axis=1)
    reset, update = (jax.nn.sigmoid(a + b) for a, b in zip(given[:2], kept[:2], strict=True))
    candidate = jnp.tanh(given[2] + reset * kept[2])
    return (1 - update) * candidate + update * state
