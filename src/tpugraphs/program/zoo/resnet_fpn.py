"""ResNet-50 and -101 (He 2015, 1512.03385), batch norms frozen, and feature pyramids on them (Lin 2016, 1612.03144)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from tpugraphs.program.zoo.values import Value, Values

STAGE_CHANNELS = (256, 512, 1024, 2048)
"""Of the four stages of the ResNet, C2 to C5."""
_BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
_STEM_CHANNELS = 64
_SMALL_SCALE = 0.2


def resnet_parameters(values: Values, depth: int) -> tuple[Any, Any]:
    """The kernels, and in a tree of the same shape the frozen batch norms."""
    stages, inputs = [], _STEM_CHANNELS
    for blocks, outputs in zip(_BLOCKS[depth], STAGE_CHANNELS, strict=True):
        later = [_block_parameters(values, outputs, outputs, first=False) for _ in range(blocks - 1)]
        stages.append([_block_parameters(values, inputs, outputs, first=True), *later])
        inputs = outputs
    weights = {"stem": kernel(values, 7, 7, 3, _STEM_CHANNELS), "stages": stages}
    return weights, jax.tree_util.tree_map_with_path(partial(_frozen_norm, values), weights)


def _block_parameters(values: Values, inputs: int, outputs: int, *, first: bool) -> dict[str, Any]:
    narrow = outputs // 4
    block = {
        "reduce": kernel(values, 1, 1, inputs, narrow),
        "spatial": kernel(values, 3, 3, narrow, narrow),
        "expand": kernel(values, 1, 1, narrow, outputs),
    }
    return {**block, "shortcut": kernel(values, 1, 1, inputs, outputs)} if first else block


def _frozen_norm(values: Values, path: tuple[Any, ...], weight: Value) -> dict[str, Any]:
    """What the batch norm after a kernel is once its statistics no longer change.

    Its scale is small after the stem and at the end of each branch, so that the sums of all branches stay in bounds.
    """
    scale = _SMALL_SCALE if path[-1].key in ("stem", "expand") else 1.0
    channels = weight.shape[-1]
    return {"scale": values.full(scale, channels), "shift": values.zeros(channels)}


def resnet(weights: Any, frozen: Any, image: jax.Array) -> list[jax.Array]:
    """The last feature map of each of the four stages, at strides 4, 8, 16 and 32."""
    x = jax.nn.relu(_normalise(frozen["stem"], convolve(image, weights["stem"], stride=2)))
    x = max_pool(x, window=3, border=1)
    features = []
    for number, (blocks, norms) in enumerate(zip(weights["stages"], frozen["stages"], strict=True)):
        for position, (block, norm) in enumerate(zip(blocks, norms, strict=True)):
            x = _bottleneck(block, norm, x, stride=2 if number > 0 and position == 0 else 1)
        features.append(x)
    return features


def _bottleneck(weights: Any, frozen: Any, x: jax.Array, *, stride: int) -> jax.Array:
    """Version 1.5: the stride is in the 3x3 convolution."""
    y = jax.nn.relu(_normalise(frozen["reduce"], convolve(x, weights["reduce"])))
    y = jax.nn.relu(_normalise(frozen["spatial"], convolve(y, weights["spatial"], stride=stride)))
    y = _normalise(frozen["expand"], convolve(y, weights["expand"]))
    if "shortcut" in weights:
        x = _normalise(frozen["shortcut"], convolve(x, weights["shortcut"], stride=stride))
    return jax.nn.relu(x + y)


def _normalise(frozen: Any, x: jax.Array) -> jax.Array:
    return x * frozen["scale"] + frozen["shift"]


def pyramid_parameters(values: Values, inputs: Sequence[int], channels: int) -> dict[str, Any]:
    """For feature maps of so many `inputs` channels, the finest first; all levels of the pyramid have `channels`."""
    return {
        "lateral": [affine_parameters(values, 1, 1, below, channels) for below in inputs],
        "smooth": [affine_parameters(values, 3, 3, channels, channels) for _ in inputs],
    }


def pyramid(weights: Any, features: Sequence[jax.Array]) -> list[jax.Array]:
    """Each map plus the coarser one above it, the finest first."""
    laterals = [affine_convolve(w, x) for w, x in zip(weights["lateral"], features, strict=True)]
    merged = [laterals[-1]]
    for lateral in reversed(laterals[:-1]):
        merged.append(lateral + _double(merged[-1]))
    return [affine_convolve(w, x) for w, x in zip(weights["smooth"], reversed(merged), strict=True)]


def _double(x: jax.Array) -> jax.Array:
    """Nearest-neighbour upsampling by two."""
    batch, height, width, channels = x.shape
    x = jnp.broadcast_to(x[:, :, None, :, None], (batch, height, 2, width, 2, channels))
    return x.reshape(batch, 2 * height, 2 * width, channels)


def max_pool(x: jax.Array, *, window: int, border: int) -> jax.Array:
    """Of stride two."""
    padding = ((0, 0), (border, border), (border, border), (0, 0))
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, window, window, 1), (1, 2, 2, 1), padding)


def convolve(x: jax.Array, kernel: jax.Array, *, stride: int = 1) -> jax.Array:
    """With as many zeros on each side of the image as keep its size at stride one."""
    border = (kernel.shape[0] - 1) // 2
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), [(border, border)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def affine_parameters(values: Values, *shape: int) -> dict[str, Any]:
    """A kernel of this shape (or a matrix), and a bias."""
    return {"kernel": kernel(values, *shape), "bias": values.zeros(shape[-1])}


def kernel(values: Values, *shape: int) -> Value:
    """Half of what comes in was cut off by a ReLU: the other half must be twice as strong."""
    return values.weight(*shape, fan_in=math.prod(shape[:-1]) // 2)


def affine_convolve(weights: Any, x: jax.Array, *, stride: int = 1) -> jax.Array:
    return convolve(x, weights["kernel"], stride=stride) + weights["bias"]


def dense(weights: Any, x: jax.Array) -> jax.Array:
    return x @ weights["kernel"] + weights["bias"]
