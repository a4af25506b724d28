"""U-Nets for images (Ronneberger 2015, 1505.04597) and for volumes (Cicek 2016, 1606.06650), with borders kept."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.training import cross_entropy, sgd_step
from tpugraphs.program.zoo.values import Values

_EPSILON = 1e-5
_MOMENTUM = 0.99


def make(
    values: Values,
    *,
    mode: str,
    batch: int,
    dims: int = 2,
    size: int = 512,
    channels: int = 64,
    depth: int = 4,
    inputs: int = 1,
    classes: int = 2,
) -> Made:
    """`channels` come out of the first convolution; `depth` times the sides are halved, so 2**depth divides `size`.

    The net for volumes differs from that for images: in each block the second convolution, not the first, doubles the
    channels; upsampling keeps them and has no bias; and convolutions are followed by a normalisation.
    As published: dims=2, channels=64, depth=4, and dims=3, channels=32, depth=3, inputs=3, classes=3.
    """
    weights = _parameters(values, dims, channels, depth, inputs, classes)
    image = values.normal(batch, *[size] * dims, inputs)
    if mode == "inference":
        return Made(_unet, (weights, image), weights=weights)
    labels = values.integers(classes, batch, *[size] * dims)
    return sgd_step(values, _loss, weights, image, labels, momentum=_MOMENTUM)


def _loss(weights: Any, image: jax.Array, labels: jax.Array) -> jax.Array:
    return cross_entropy(_unet(weights, image), labels)


def _parameters(values: Values, dims: int, channels: int, depth: int, inputs: int, classes: int) -> dict[str, Any]:
    volumes = dims == 3
    down, outputs = [], inputs
    for level in range(depth + 1):
        first = channels * 2**level
        down.append(_block(values, dims, outputs, first, 2 * first if volumes else first))
        outputs = down[-1][-1]["bias"].shape[0]
    up = []
    for block in reversed(down[:-1]):
        skipped = block[-1]["bias"].shape[0]
        risen = outputs if volumes else skipped
        kernel = values.weight(*[2] * dims, outputs, risen, fan_in=outputs)
        rise = {"kernel": kernel} if volumes else {"kernel": kernel, "bias": values.zeros(risen)}
        up.append({"rise": rise, "block": _block(values, dims, risen + skipped, skipped, skipped)})
        outputs = skipped
    return {"down": down, "up": up, "classes": _affine(values, dims, 1, outputs, classes)}


def _block(values: Values, dims: int, *widths: int) -> list[dict[str, Any]]:
    return [_affine(values, dims, 3, *pair) for pair in pairwise(widths)]


def _affine(values: Values, dims: int, window: int, inputs: int, outputs: int) -> dict[str, Any]:
    return {"kernel": values.weight(*[window] * dims, inputs, outputs), "bias": values.zeros(outputs)}


def _unet(weights: Any, x: jax.Array) -> jax.Array:
    """Logits of each pixel: down through the blocks, and up again past what each of them saw."""
    skipped = []
    for block in weights["down"][:-1]:
        skipped.append(_convolve_twice(block, x))
        x = _halve(skipped[-1])
    x = _convolve_twice(weights["down"][-1], x)
    for level, seen in zip(weights["up"], reversed(skipped), strict=True):
        x = _convolve_twice(level["block"], jnp.concatenate([seen, _rise(level["rise"], x)], axis=-1))
    return _convolve(x, weights["classes"]["kernel"]) + weights["classes"]["bias"]


def _convolve_twice(block: Any, x: jax.Array) -> jax.Array:
    for layer in block:
        x = _convolve(x, layer["kernel"])
        x = jax.nn.relu((_normalise(x) if x.ndim == 5 else x) + layer["bias"])
    return x


def _normalise(x: jax.Array) -> jax.Array:
    """Of each volume and channel for itself; its scale would be the next convolution's."""
    x = x - x.mean(axis=(1, 2, 3), keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(axis=(1, 2, 3), keepdims=True) + _EPSILON)


def _convolve(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, kernel, (1,) * (x.ndim - 2), "SAME", dimension_numbers=_layout(x))


def _rise(weights: Any, x: jax.Array) -> jax.Array:
    """Every pixel becomes a square, or a cube, of side two."""
    x = jax.lax.conv_transpose(x, weights["kernel"], (2,) * (x.ndim - 2), "VALID", dimension_numbers=_layout(x))
    return x + weights["bias"] if "bias" in weights else x


def _halve(x: jax.Array) -> jax.Array:
    window = (1, *[2] * (x.ndim - 2), 1)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")


def _layout(x: jax.Array) -> tuple[str, str, str]:
    return ("NHWC", "HWIO", "NHWC") if x.ndim == 4 else ("NDHWC", "DHWIO", "NDHWC")
