"""Conformer (Gulati 2020, arXiv 2005.08100): speech to wordpieces by attention and convolution, with a CTC loss."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from tpugraphs.program.zoo.attention import (
    FORBIDDEN,
    Weights,
    attention_weights,
    dense,
    dense_weights,
    feed_forward,
    feed_forward_weights,
    layer_norm,
    merge_heads,
    norm_weights,
    project_heads,
    sinusoids,
)
from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.training import adam_step
from tpugraphs.program.zoo.values import Values

BLANK = 0
EPSILON = 1e-5
Statistics = dict[str, jax.Array]
"""The mean and the variance of each channel."""


def make(
    values: Values,
    *,
    mode: str,
    batch: int,
    layers: int = 16,
    width: int = 144,
    heads: int = 4,
    kernel: int = 32,
    mels: int = 80,
    vocabulary: int = 1024,
    frames: int = 400,
    pieces: int = 16,
) -> Made:
    """From `frames` of `mels` to a quarter of the frames; in training, `pieces` words are to be found there.

    The batch norms use running statistics in inference and the batch's own in training, which leaves the former as
    they are. The head is one dense layer, where the paper has a recurrent transducer.
    """
    weights: Weights = {
        "subsample": {
            "first": {"kernel": values.weight(3, 3, 1, width), "bias": values.zeros(width)},
            "second": {"kernel": values.weight(3, 3, width, width), "bias": values.zeros(width)},
            "out": dense_weights(values, math.ceil(mels / 4) * width, width),
        },
        "layers": [_layer_weights(values, width, heads, kernel) for _ in range(layers)],
        "head": dense_weights(values, width, vocabulary + 1),
    }
    speech = values.normal(batch, frames, mels)
    if mode == "train":
        return adam_step(values, ctc_loss, weights, speech, values.integers(vocabulary, batch, pieces))
    statistics = [{"mean": values.zeros(width), "variance": values.ones(width)} for _ in range(layers)]
    return Made(recognise, (weights, statistics, speech), weights=weights)


def _layer_weights(values: Values, width: int, heads: int, kernel: int) -> Weights:
    depth = width // heads
    return {
        "first_norm": norm_weights(values, width),
        "first": feed_forward_weights(values, width, 4 * width),
        "attention_norm": norm_weights(values, width),
        "attention": attention_weights(values, width, heads)
        | {
            "distance": {"kernel": values.weight(width, heads, depth, fan_in=width)},
            "by_content": values.zeros(heads, depth),
            "by_distance": values.zeros(heads, depth),
        },
        "convolution_norm": norm_weights(values, width),
        "widen": dense_weights(values, width, 2 * width),
        "depthwise": {"kernel": values.weight(kernel, 1, width, fan_in=kernel), "bias": values.zeros(width)},
        "batch_norm": norm_weights(values, width),
        "pointwise": dense_weights(values, width, width),
        "second_norm": norm_weights(values, width),
        "second": feed_forward_weights(values, width, 4 * width),
        "norm": norm_weights(values, width),
    }


def recognise(weights: Weights, statistics: list[Statistics] | None, speech: jax.Array) -> jax.Array:
    """Logits of blank and wordpieces, for each fourth frame."""
    x = subsample(weights["subsample"], speech)
    tokens, width = x.shape[1:]
    distances = sinusoids(jnp.arange(tokens - 1, -tokens, -1.0), width)  # of the key before the query
    for index, layer in enumerate(weights["layers"]):
        x = x + 0.5 * feed_forward(layer["first"], layer_norm(layer["first_norm"], x), jax.nn.silu)
        x = x + relative_attention(layer["attention"], layer_norm(layer["attention_norm"], x), distances)
        given = None if statistics is None else statistics[index]
        x = x + convolution(layer, layer_norm(layer["convolution_norm"], x), given)
        x = x + 0.5 * feed_forward(layer["second"], layer_norm(layer["second_norm"], x), jax.nn.silu)
        x = layer_norm(layer["norm"], x)
    return dense(weights["head"], x)


def subsample(weights: Weights, speech: jax.Array) -> jax.Array:
    """The spectrogram as an image, halved twice each way."""
    x = speech[..., None]
    for name in ("first", "second"):
        x = jax.lax.conv_general_dilated(
            x, weights[name]["kernel"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + weights[name]["bias"])
    return dense(weights["out"], x.reshape(*x.shape[:2], -1))


def relative_attention(weights: Weights, x: jax.Array, distances: jax.Array) -> jax.Array:
    """Scores by what a key holds and by how far away it is, as in Transformer-XL (Dai 2019, arXiv 1901.02860)."""
    query, key, value = (project_heads(weights[name], x) for name in ("query", "key", "value"))
    distance = jnp.einsum("rd,dhk->rhk", distances, weights["distance"]["kernel"])
    by_content = jnp.einsum("bqhk,bmhk->bhqm", query + weights["by_content"], key)
    by_distance = _by_key(jnp.einsum("bqhk,rhk->bhqr", query + weights["by_distance"], distance))
    shares = jax.nn.softmax((by_content + by_distance) / math.sqrt(query.shape[-1]), axis=-1)
    return merge_heads(weights["out"], jnp.einsum("bhqm,bmhk->bqhk", shares, value))


def _by_key(scores: jax.Array) -> jax.Array:
    """From (..., query, 2 · tokens - 1 distances) to (..., query, key).

    The row of query i has key j at tokens - 1 - i + j. One more column, and rows of one less than that many columns
    shift each row by one more than the row above it.
    """
    *outer, tokens, distances = scores.shape
    padded = jnp.pad(scores, [(0, 0)] * (len(outer) + 1) + [(1, 0)]).reshape(*outer, distances + 1, tokens)
    return padded[..., 1:, :].reshape(*outer, tokens, distances)[..., :tokens]


def convolution(layer: Weights, x: jax.Array, statistics: Statistics | None) -> jax.Array:
    x = jax.nn.glu(dense(layer["widen"], x))
    x = jax.lax.conv_general_dilated(
        x,
        layer["depthwise"]["kernel"],
        (1,),
        "SAME",
        dimension_numbers=("NWC", "WIO", "NWC"),
        feature_group_count=x.shape[-1],
    )
    x = jax.nn.silu(batch_norm(layer["batch_norm"], x + layer["depthwise"]["bias"], statistics))
    return dense(layer["pointwise"], x)


def batch_norm(weights: Weights, x: jax.Array, statistics: Statistics | None) -> jax.Array:
    if statistics is None:
        statistics = {"mean": x.mean(axis=(0, 1)), "variance": x.var(axis=(0, 1))}
    scaled = (x - statistics["mean"]) * jax.lax.rsqrt(statistics["variance"] + EPSILON)
    return scaled * weights["scale"] + weights["shift"]


def ctc_loss(weights: Weights, speech: jax.Array, pieces: jax.Array) -> jax.Array:
    """-log of the probability that the frames, without repeats and blanks, spell the pieces (Graves 2006).

    `reached` is by state: blank, first piece, blank, second piece, ..., blank. A frame stays in its state, moves on
    by one, or skips the blank between two different pieces.
    """
    logs = jax.nn.log_softmax(recognise(weights, None, speech))
    batch, count = pieces.shape
    spelled = jnp.full((batch, 2 * count + 1), BLANK).at[:, 1::2].set(pieces + 1)
    emitted = jnp.take_along_axis(logs, spelled[:, None], axis=-1).swapaxes(0, 1)  # (frames, batch, states)
    skips = (spelled != BLANK) & (spelled != jnp.roll(spelled, 2, axis=1))

    def late(reached: jax.Array, by: int) -> jax.Array:
        return jnp.pad(reached[:, :-by], ((0, 0), (by, 0)), constant_values=FORBIDDEN)

    def step(reached: jax.Array, emitted: jax.Array) -> tuple[jax.Array, None]:
        skipped = jnp.where(skips, late(reached, 2), FORBIDDEN)
        return jnp.logaddexp(jnp.logaddexp(reached, late(reached, 1)), skipped) + emitted, None

    first = jnp.where(jnp.arange(2 * count + 1) < 2, emitted[0], FORBIDDEN)
    last, _ = jax.lax.scan(step, first, emitted[1:])
    return -jnp.logaddexp(last[:, -1], last[:, -2]).mean() / count
