"""Click-through models: DLRM (arXiv 1906.00091), and the same with the cross layers of DCN-v2 (2008.13535)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tpugraphs.errors import BadRequest
from tpugraphs.program.zoo.layers import mlp, mlp_weights
from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.training import sgd_step
from tpugraphs.program.zoo.values import Values

Weights = dict[str, Any]

CRITEO_ROWS = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
"""How many values each categorical feature has in the Criteo Kaggle dataset."""


def make(
    values: Values,
    *,
    mode: str,
    batch: int,
    rows: Sequence[int] = CRITEO_ROWS,
    most_rows: int = 40_000,
    bag: int = 1,
    dense_features: int = 13,
    dimension: int = 16,
    bottom: Sequence[int] = (512, 256, 64),
    top: Sequence[int] = (512, 256),
    interaction: str = "dot",
    cross_layers: int = 3,
    cross_rank: int = 0,
) -> Made:
    """The defaults are DLRM's for Criteo Kaggle, but ids are taken to be hashed into `most_rows` at most.

    `bag` is the number of ids of each sparse feature; `interaction` is "dot" or "dcn"; a `cross_rank` of 0 means full.
    """
    rows = [min(count, most_rows) for count in rows]
    vectors = len(rows) + 1
    if interaction == "dot":
        joined = dimension + vectors * (vectors - 1) // 2
        cross = []
    elif interaction == "dcn":
        joined = vectors * dimension
        cross = [cross_weights(values, joined, cross_rank) for _ in range(cross_layers)]
    else:
        raise BadRequest(f"recommender: no interaction {interaction}; there are dot and dcn")
    weights = {
        "bottom": mlp_weights(values, dense_features, *bottom, dimension),
        "tables": [values.weight(count, dimension, fan_in=dimension) for count in rows],
        "cross": cross,
        "top": mlp_weights(values, joined, *top, 1),
    }
    features = values.normal(batch, dense_features)
    bags = [values.integers(count, batch, bag) for count in rows]
    if mode == "inference":
        return Made(predict, (weights, features, bags), weights=weights)
    if mode == "train":
        clicks = values.integers(2, batch)
        return sgd_step(values, binary_cross_entropy, weights, features, bags, clicks)
    raise BadRequest(f"recommender: no mode {mode}; there are inference and train")


def cross_weights(values: Values, width: int, rank: int) -> Weights:
    """A full matrix, or two thin ones whose product it is."""
    kernels = [values.weight(width, rank), values.weight(rank, width)] if rank else [values.weight(width, width)]
    return {"kernels": kernels, "bias": values.zeros(width)}


def click_logits(weights: Weights, features: jax.Array, bags: list[jax.Array]) -> jax.Array:
    x = jax.nn.relu(mlp(weights["bottom"], features))
    sums = [table[ids].sum(axis=1) for table, ids in zip(weights["tables"], bags, strict=True)]
    vectors = jnp.stack([x, *sums], axis=1)  # [batch, 1 + tables, dimension]
    joined = cross(weights["cross"], vectors) if weights["cross"] else dot_interaction(vectors)
    return mlp(weights["top"], joined)[:, 0]


def dot_interaction(vectors: jax.Array) -> jax.Array:
    """The dense features' vector, and the dot product of every pair of vectors."""
    products = jnp.einsum("bid,bjd->bij", vectors, vectors)
    i, j = np.tril_indices(vectors.shape[1], k=-1)
    return jnp.concatenate([vectors[:, 0], products[:, i, j]], axis=1)


def cross(layers: list[Weights], vectors: jax.Array) -> jax.Array:
    """x_{l+1} = x_0 * (W x_l + b) + x_l, elementwise."""
    first = x = vectors.reshape(len(vectors), -1)
    for layer in layers:
        y = x
        for kernel in layer["kernels"]:
            y = y @ kernel
        x = first * (y + layer["bias"]) + x
    return x


def predict(weights: Weights, features: jax.Array, bags: list[jax.Array]) -> jax.Array:
    """The probability of a click."""
    return jax.nn.sigmoid(click_logits(weights, features, bags))


def binary_cross_entropy(weights: Weights, features: jax.Array, bags: list[jax.Array], clicks: jax.Array) -> jax.Array:
    logits = click_logits(weights, features, bags)
    return (jax.nn.softplus(logits) - clicks * logits).mean()
