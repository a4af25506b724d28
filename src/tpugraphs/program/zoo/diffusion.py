"""The U-Net of denoising diffusion (DDPM, arXiv 2006.11239): given a noisy image and its time, it finds the noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tpugraphs.errors import BadRequest
from tpugraphs.program.zoo.layers import (
    convolution,
    convolution_weights,
    dense,
    dense_weights,
    norm_weights,
)
from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.training import adam_step
from tpugraphs.program.zoo.values import Values

Weights = dict[str, Any]

TIMES = 1000
BETA = np.linspace(1e-4, 0.02, TIMES)
KEPT = np.cumprod(1 - BETA)  # the paper's alpha with a bar: what is left of the image's variance at each time


def make(
    values: Values,
    *,
    mode: str,
    batch: int,
    image: int = 32,
    colours: int = 3,
    base: int = 128,
    multipliers: Sequence[int] = (1, 2, 2, 2),
    blocks: int = 2,
    attention_at: Sequence[int] = (16,),
    steps: int = 4,
) -> Made:
    """The defaults are the paper's for CIFAR-10. `attention_at` lists image sizes; `steps` is of mode "sample"."""
    weights = unet_weights(values, image, colours, base, multipliers, blocks, attention_at)
    shape = (batch, image, image, colours)
    if mode == "inference":
        return Made(unet, (weights, values.normal(*shape), values.integers(TIMES, batch)), weights=weights)
    if mode == "sample":
        return Made(sample, (weights, values.normal(*shape), values.normal(steps, *shape)), weights=weights)
    if mode == "train":
        images = values.uniform(*shape, low=-1)
        return adam_step(values, loss, weights, images, values.normal(*shape), values.integers(TIMES, batch))
    raise BadRequest(f"diffusion: no mode {mode}; there are inference, sample and train")


def loss(weights: Weights, images: jax.Array, noise: jax.Array, times: jax.Array) -> jax.Array:
    """How well the noise is found that was put on the images (the paper's algorithm 1)."""
    kept = jnp.asarray(KEPT, jnp.float32)[times][:, None, None, None]
    noisy = jnp.sqrt(kept) * images + jnp.sqrt(1 - kept) * noise
    return ((unet(weights, noisy, times) - noise) ** 2).mean()


def sample(weights: Weights, x: jax.Array, noises: jax.Array) -> jax.Array:
    """The first steps from pure noise towards an image (algorithm 2), one for each of the given noises."""
    times = np.arange(TIMES - 1, TIMES - 1 - len(noises), -1)

    def step(x: jax.Array, now: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        time, beta, kept, noise = now
        found = unet(weights, x, jnp.full(len(x), time))
        mean = (x - beta / jnp.sqrt(1 - kept) * found) / jnp.sqrt(1 - beta)
        return mean + jnp.sqrt(beta) * noise, None

    beta, kept = (jnp.asarray(table[times], jnp.float32) for table in (BETA, KEPT))
    return jax.lax.scan(step, x, (jnp.asarray(times, jnp.int32), beta, kept, noises))[0]


# The U-Net


def unet_weights(
    values: Values,
    image: int,
    colours: int,
    base: int,
    multipliers: Sequence[int],
    blocks: int,
    attention_at: Sequence[int],
) -> Weights:
    time, size, width, skips = 4 * base, image, base, [base]
    weights: Weights = {
        "time": [dense_weights(values, base, time), dense_weights(values, time, time)],
        "stem": convolution_weights(values, 3, colours, base),
        "down": [],
        "up": [],
    }
    last = len(multipliers) - 1
    for index, multiplier in enumerate(multipliers):
        level: Weights = {"blocks": []}
        for _ in range(blocks):
            level["blocks"].append(block_weights(values, width, base * multiplier, time, size in attention_at))
            width = base * multiplier
            skips.append(width)
        if index < last:
            level["resize"] = convolution_weights(values, 3, width, width)
            skips.append(width)
            size //= 2
        weights["down"].append(level)
    weights["middle"] = [block_weights(values, width, width, time, attention) for attention in (True, False)]
    for index, multiplier in reversed(list(enumerate(multipliers))):
        level = {"blocks": []}
        for _ in range(blocks + 1):
            inputs = width + skips.pop()
            level["blocks"].append(block_weights(values, inputs, base * multiplier, time, size in attention_at))
            width = base * multiplier
        if index > 0:
            level["resize"] = convolution_weights(values, 3, width, width)
            size *= 2
        weights["up"].append(level)
    return weights | {"norm": norm_weights(values, base), "head": convolution_weights(values, 3, width, colours)}


def unet(weights: Weights, x: jax.Array, times: jax.Array) -> jax.Array:
    first, second = weights["time"]
    embedding = waves(times, first["kernel"].shape[0])
    time = dense(second, jax.nn.swish(dense(first, embedding)))
    x = convolution(weights["stem"], x)
    skips = [x]
    for level in weights["down"]:
        for layer in level["blocks"]:
            x = block(layer, x, time)
            skips.append(x)
        if "resize" in level:
            x = convolution(level["resize"], x, stride=2)
            skips.append(x)
    for layer in weights["middle"]:
        x = block(layer, x, time)
    for level in weights["up"]:
        for layer in level["blocks"]:
            x = block(layer, jnp.concatenate([x, skips.pop()], axis=-1), time)
        if "resize" in level:
            x = convolution(level["resize"], x.repeat(2, axis=1).repeat(2, axis=2))
    return convolution(weights["head"], jax.nn.swish(group_norm(weights["norm"], x)))


def waves(times: jax.Array, width: int) -> jax.Array:
    """Sines and cosines of the time, their periods in geometric progression."""
    frequencies = np.exp(-np.log(10_000) * np.arange(width // 2) / (width // 2 - 1)).astype(np.float32)
    angles = times[:, None].astype(jnp.float32) * frequencies
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=1)


def block_weights(values: Values, inputs: int, outputs: int, time: int, attention: bool) -> Weights:
    """A residual block, and self-attention after it where asked."""
    weights = {
        "norm1": norm_weights(values, inputs),
        "convolution1": convolution_weights(values, 3, inputs, outputs),
        "time": dense_weights(values, time, outputs),
        "norm2": norm_weights(values, outputs),
        "convolution2": convolution_weights(values, 3, outputs, outputs),
    }
    if inputs != outputs:
        weights["shortcut"] = dense_weights(values, inputs, outputs)
    if attention:
        names = ("query", "key", "value", "out")
        projections = {name: dense_weights(values, outputs, outputs) for name in names}
        weights["attention"] = {"norm": norm_weights(values, outputs), **projections}
    return weights


def block(weights: Weights, x: jax.Array, time: jax.Array) -> jax.Array:
    y = convolution(weights["convolution1"], jax.nn.swish(group_norm(weights["norm1"], x)))
    y = y + dense(weights["time"], jax.nn.swish(time))[:, None, None]
    y = convolution(weights["convolution2"], jax.nn.swish(group_norm(weights["norm2"], y)))
    y = y + (dense(weights["shortcut"], x) if "shortcut" in weights else x)
    return attend(weights["attention"], y) if "attention" in weights else y


def attend(weights: Weights, x: jax.Array) -> jax.Array:
    """Every pixel looks at every pixel; one head."""
    batch, height, width, channels = x.shape
    pixels = group_norm(weights["norm"], x).reshape(batch, height * width, channels)
    query, key, value = (dense(weights[name], pixels) for name in ("query", "key", "value"))
    scores = jax.nn.softmax(jnp.einsum("bqc,bkc->bqk", query, key) / np.sqrt(channels), axis=-1)
    mixed = dense(weights["out"], jnp.einsum("bqk,bkc->bqc", scores, value))
    return x + mixed.reshape(x.shape)


def group_norm(weights: Weights, x: jax.Array) -> jax.Array:
    """32 groups as in the paper, or fewer so that a group has four channels."""
    channels = x.shape[-1]
    groups = min(32, channels // 4)
    grouped = x.reshape(*x.shape[:-1], groups, channels // groups)
    mean = grouped.mean(axis=(1, 2, 4), keepdims=True)
    variance = grouped.var(axis=(1, 2, 4), keepdims=True)
    normal = (grouped - mean) * jax.lax.rsqrt(variance + 1e-6)
    return normal.reshape(x.shape) * weights["scale"] + weights["shift"]
