"""Layers that families share: dense, convolution, batch normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax

from tpugraphs.program.zoo.values import Values

Weights = dict[str, Any]
Padding = str | Sequence[tuple[int, int]]


def dense_weights(values: Values, inputs: int, outputs: int, *, bias: bool = True) -> Weights:
    kernel = {"kernel": values.weight(inputs, outputs)}
    return kernel | {"bias": values.zeros(outputs)} if bias else kernel


def dense(weights: Weights, x: jax.Array) -> jax.Array:
    return x @ weights["kernel"] + weights["bias"] if "bias" in weights else x @ weights["kernel"]


def mlp_weights(values: Values, *widths: int) -> list[Weights]:
    return [dense_weights(values, inputs, outputs) for inputs, outputs in pairwise(widths)]


def mlp(layers: Sequence[Weights], x: jax.Array) -> jax.Array:
    """Rectified between the layers, not after the last."""
    for layer in layers[:-1]:
        x = jax.nn.relu(dense(layer, x))
    return dense(layers[-1], x)


def convolution_weights(values: Values, size: int, inputs: int, outputs: int) -> Weights:
    return {"kernel": values.weight(size, size, inputs, outputs), "bias": values.zeros(outputs)}


def convolution(weights: Weights, x: jax.Array, *, stride: int = 1, padding: Padding = "SAME") -> jax.Array:
    layout = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, weights["kernel"], (stride, stride), padding, dimension_numbers=layout)
    return y + weights["bias"]


def transposed_convolution(weights: Weights, x: jax.Array, *, stride: int) -> jax.Array:
    """Makes images `stride` times as high and wide; without a bias where there is none."""
    layout = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_transpose(x, weights["kernel"], (stride, stride), "SAME", dimension_numbers=layout)
    return y + weights["bias"] if "bias" in weights else y


def norm_weights(values: Values, channels: int, *, shift: bool = True) -> Weights:
    scale = {"scale": values.ones(channels)}
    return scale | {"shift": values.zeros(channels)} if shift else scale


def norm_statistics(values: Values, channels: int) -> Weights:
    """The moving moments that batch normalisation uses after training."""
    return {"mean": values.zeros(channels), "variance": values.ones(channels)}


def batch_norm(weights: Weights, x: jax.Array, moments: Weights | None) -> jax.Array:
    """Over all axes but the last, the channels; in training no moments are given, and the batch's own count."""
    if moments is None:
        axes = tuple(range(x.ndim - 1))
        moments = {"mean": x.mean(axes), "variance": x.var(axes)}
    scale = weights["scale"] * jax.lax.rsqrt(moments["variance"] + 1e-5)
    return (x - moments["mean"]) * scale + weights["shift"]
