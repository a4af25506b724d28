"""PointNet (arXiv 1612.00593): classifies a set of points by shared perceptrons, learned rotations and a maximum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any

import jax
import jax.numpy as jnp

from tpugraphs.errors import BadRequest
from tpugraphs.program.zoo.layers import batch_norm, dense, dense_weights, norm_statistics, norm_weights
from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.training import adam_step, cross_entropy
from tpugraphs.program.zoo.values import Values

Weights = dict[str, Any]
Moments = Iterator[Weights | None]
"""The moving moments of batch normalisation, in the order of use; None for the batch's own."""


def make(
    values: Values,
    *,
    mode: str,
    batch: int,
    points: int = 1024,
    classes: int = 40,
    transforms: bool = True,
    shrink: int = 1,
) -> Made:
    """The paper's widths, divided by `shrink`; without `transforms` it is the paper's baseline.

    Training wants a batch of two or more: the last layers are normalised over the batch alone.
    """
    features, wider, widest, half, quarter = (width // shrink for width in (64, 128, 1024, 512, 256))
    weights: Weights = {
        "local": normed_weights(values, 3, features, features),
        "wide": normed_weights(values, features, features, wider, widest),
        "top": normed_weights(values, widest, half, quarter),
        "head": dense_weights(values, quarter, classes),
    }
    if transforms:
        for name, size in ("input_transform", 3), ("feature_transform", features):
            weights[name] = {
                "local": normed_weights(values, size, features, wider, widest),
                "top": normed_weights(values, widest, half, quarter),
                "matrix": dense_weights(values, quarter, size * size),
            }
    clouds = values.normal(batch, points, 3)
    if mode == "inference":
        order = [(features, wider, widest, half, quarter)] if transforms else []  # of each transform
        widths = [*order, (features, features), *order, (features, wider, widest, half, quarter)]
        statistics = [norm_statistics(values, width) for part in widths for width in part]
        return Made(infer, (weights, statistics, clouds), weights=weights)
    if mode == "train":
        return adam_step(values, loss, weights, clouds, values.integers(classes, batch))
    raise BadRequest(f"point_cloud: no mode {mode}; there are inference and train")


def normed_weights(values: Values, *widths: int) -> list[Weights]:
    return [{**dense_weights(values, *pair), "norm": norm_weights(values, pair[1])} for pair in pairwise(widths)]


def normed(layers: Sequence[Weights], x: jax.Array, moments: Moments) -> jax.Array:
    """The same perceptron for every point."""
    for layer in layers:
        x = jax.nn.relu(batch_norm(layer["norm"], dense(layer, x), next(moments)))
    return x


def transform(weights: Weights, x: jax.Array, moments: Moments) -> jax.Array:
    """A square matrix for each cloud: the identity, and what a small PointNet adds to it."""
    size = x.shape[-1]
    pooled = normed(weights["local"], x, moments).max(axis=1)
    matrix = dense(weights["matrix"], normed(weights["top"], pooled, moments))
    return matrix.reshape(-1, size, size) + jnp.eye(size)


def pointnet(
    weights: Weights, clouds: jax.Array, statistics: Iterable[Weights | None]
) -> tuple[jax.Array, jax.Array | None]:
    """Logits, and the matrices that turned the features."""
    moments, turn = iter(statistics), None
    x = clouds  # [batch, points, 3]
    if "input_transform" in weights:
        x = x @ transform(weights["input_transform"], x, moments)
    x = normed(weights["local"], x, moments)
    if "feature_transform" in weights:
        turn = transform(weights["feature_transform"], x, moments)
        x = x @ turn
    pooled = normed(weights["wide"], x, moments).max(axis=1)
    return dense(weights["head"], normed(weights["top"], pooled, moments)), turn


def infer(weights: Weights, statistics: list[Weights], clouds: jax.Array) -> jax.Array:
    return pointnet(weights, clouds, statistics)[0]


def loss(weights: Weights, clouds: jax.Array, labels: jax.Array) -> jax.Array:
    """Cross-entropy, and how far the feature transform is from orthogonal."""
    logits, turn = pointnet(weights, clouds, repeat(None))
    if turn is None:
        return cross_entropy(logits, labels)
    skew = jnp.eye(turn.shape[-1]) - turn @ turn.swapaxes(1, 2)
    return cross_entropy(logits, labels) + 0.001 * (skew**2).sum(axis=(1, 2)).mean()
