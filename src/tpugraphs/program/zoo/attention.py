"""Layers that transformers share: dense, norms, embeddings, multi-head attention (Vaswani 2017, arXiv 1706.03762)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tpugraphs.program.zoo.values import Values

Weights = dict[str, Any]
FORBIDDEN = -1e9
"""Added to a score that must not count; finite, so that a row where nothing counts has a mean and no NaN."""


def dense_weights(values: Values, inputs: int, outputs: int, *, bias: bool = True) -> Weights:
    kernel = {"kernel": values.weight(inputs, outputs)}
    return kernel | {"bias": values.zeros(outputs)} if bias else kernel


def dense(weights: Weights, x: jax.Array) -> jax.Array:
    return x @ weights["kernel"] + weights["bias"] if "bias" in weights else x @ weights["kernel"]


def norm_weights(values: Values, width: int, *, shift: bool = True) -> Weights:
    scale = {"scale": values.ones(width)}
    return scale | {"shift": values.zeros(width)} if shift else scale


def layer_norm(weights: Weights, x: jax.Array, epsilon: float = 1e-6) -> jax.Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = jnp.square(centred).mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + epsilon) * weights["scale"] + weights["shift"]


def rms_norm(weights: Weights, x: jax.Array, epsilon: float = 1e-6) -> jax.Array:
    """A layer norm that leaves the mean where it is (Zhang 2019, arXiv 1910.07467)."""
    return x * jax.lax.rsqrt(jnp.square(x).mean(axis=-1, keepdims=True) + epsilon) * weights["scale"]


def embedding_weights(values: Values, count: int, width: int) -> Any:
    """A table whose transpose gives logits of unit size."""
    return values.weight(count, width, fan_in=width)


def embed(table: jax.Array, tokens: jax.Array) -> jax.Array:
    return jnp.take(table, tokens, axis=0, mode="clip")


def patch_weights(values: Values, patch: int, width: int) -> Weights:
    return {"kernel": values.weight(patch, patch, 3, width), "bias": values.zeros(width)}


def patches(weights: Weights, images: jax.Array) -> jax.Array:
    """(batch, height, width, 3) to one token per patch: (batch, patches, width)."""
    kernel = weights["kernel"]
    numbers = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(images, kernel, kernel.shape[:2], "VALID", dimension_numbers=numbers)
    return x.reshape(x.shape[0], -1, x.shape[-1]) + weights["bias"]


def feed_forward_weights(
    values: Values, width: int, intermediate: int, *, bias: bool = True, gated: bool = False
) -> Weights:
    weights = {
        "up": dense_weights(values, width, intermediate, bias=bias),
        "down": dense_weights(values, intermediate, width, bias=bias),
    }
    return weights | {"gate": dense_weights(values, width, intermediate, bias=bias)} if gated else weights


def feed_forward(weights: Weights, x: jax.Array, activation: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """Two dense layers; with a gate, the activation of one product multiplies another (Shazeer 2020, 2002.05202)."""
    if "gate" in weights:
        return dense(weights["down"], activation(dense(weights["gate"], x)) * dense(weights["up"], x))
    return dense(weights["down"], activation(dense(weights["up"], x)))


def gelu(x: jax.Array) -> jax.Array:
    """x Φ(x), by the error function."""
    return jax.nn.gelu(x, approximate=False)


def gelu_tanh(x: jax.Array) -> jax.Array:
    """x Φ(x), by the hyperbolic tangent."""
    return jax.nn.gelu(x, approximate=True)


def attention_weights(
    values: Values, width: int, heads: int, *, bias: bool = True, talking_heads: bool = False
) -> Weights:
    """One projection each for query, key, value and output; their shapes say how many heads there are."""
    depth = width // heads
    weights: Weights = {}
    for name in ("query", "key", "value"):
        weights[name] = {"kernel": values.weight(width, heads, depth, fan_in=width)}
        if bias:
            weights[name]["bias"] = values.zeros(heads, depth)
    weights["out"] = out_weights(values, width, heads, bias=bias)
    if talking_heads:
        weights["talk"] = {"scores": values.weight(heads, heads), "shares": values.weight(heads, heads)}
    return weights


def attention(
    weights: Weights, x: jax.Array, memory: jax.Array, bias: jax.Array | None = None, *, scaled: bool = True
) -> jax.Array:
    """What each position of `x` takes from `memory`, which is `x` itself in self-attention."""
    query = project_heads(weights["query"], x)
    key = project_heads(weights["key"], memory)
    value = project_heads(weights["value"], memory)
    return merge_heads(weights["out"], attend(query, key, value, bias, scaled=scaled, talk=weights.get("talk")))


def self_attention_weights(values: Values, width: int, heads: int) -> Weights:
    """Query, key and value come from one product."""
    depth = width // heads
    return {
        "kernel": values.weight(width, 3, heads, depth, fan_in=width),
        "bias": values.zeros(3, heads, depth),
        "out": out_weights(values, width, heads),
    }


def self_attention(weights: Weights, x: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    return merge_heads(weights["out"], attend(*query_key_value(weights, x), bias))


def query_key_value(weights: Weights, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Three of (batch, tokens, heads, depth)."""
    query, key, value = jnp.moveaxis(jnp.einsum("btd,dshk->btshk", x, weights["kernel"]) + weights["bias"], 2, 0)
    return query, key, value


def attend(
    query: jax.Array,  # (batch, tokens, heads, depth)
    key: jax.Array,  # (batch, memory tokens, heads, depth)
    value: jax.Array,
    bias: jax.Array | None = None,  # added to scores of (batch, heads, tokens, memory tokens)
    *,
    scaled: bool = True,
    talk: Weights | None = None,
) -> jax.Array:
    """softmax(query keyᵀ / √depth + bias) value; talking heads mix the heads before and after the softmax."""
    scores = jnp.einsum("bqhk,bmhk->bhqm", query, key)
    if scaled:
        scores = scores / math.sqrt(query.shape[-1])
    if talk is not None:
        scores = jnp.einsum("bhqm,hg->bgqm", scores, talk["scores"])
    if bias is not None:
        scores = scores + bias
    shares = jax.nn.softmax(scores, axis=-1)
    if talk is not None:
        shares = jnp.einsum("bhqm,hg->bgqm", shares, talk["shares"])
    return jnp.einsum("bhqm,bmhk->bqhk", shares, value)


def project_heads(weights: Weights, x: jax.Array) -> jax.Array:
    """To (batch, tokens, heads, depth)."""
    projected = jnp.einsum("btd,dhk->bthk", x, weights["kernel"])
    return projected + weights["bias"] if "bias" in weights else projected


def out_weights(values: Values, width: int, heads: int, *, bias: bool = True) -> Weights:
    kernel = {"kernel": values.weight(heads, width // heads, width)}
    return kernel | {"bias": values.zeros(width)} if bias else kernel


def merge_heads(weights: Weights, mixed: jax.Array) -> jax.Array:
    """From (batch, tokens, heads, depth) back to the width."""
    merged = jnp.einsum("bthk,hkd->btd", mixed, weights["kernel"])
    return merged + weights["bias"] if "bias" in weights else merged


def causal_bias(tokens: int) -> jax.Array:
    """Nobody looks ahead."""
    ahead = jnp.arange(tokens)[None, :] > jnp.arange(tokens)[:, None]
    return jnp.where(ahead, FORBIDDEN, 0.0)


def padding_bias(present: jax.Array) -> jax.Array:
    """Nobody looks where `present` (batch, tokens) is false."""
    return jnp.where(present, 0.0, FORBIDDEN)[:, None, None, :]


def sinusoids(positions: jax.Array, width: int) -> jax.Array:
    """Sines in the first half and cosines in the second, of wavelengths from 2π to 10000 · 2π."""
    rates = jnp.exp(jnp.arange(width // 2) * (-math.log(10_000) / (width // 2)))
    angles = positions[:, None] * rates
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


RELATIVE_BUCKETS = 32
FARTHEST = 128


def relative_bias(table: jax.Array, tokens: int, *, causal: bool) -> jax.Array:
    """The bias of T5 (Raffel 2019, arXiv 1910.10683): learned by (bucket of the distance, head)."""
    distance = jnp.arange(tokens)[None, :] - jnp.arange(tokens)[:, None]  # of the key after the query
    if causal:
        bucket = _bucket(jnp.maximum(-distance, 0), RELATIVE_BUCKETS)
    else:
        half = RELATIVE_BUCKETS // 2
        bucket = jnp.where(distance > 0, half, 0) + _bucket(jnp.abs(distance), half)
    return jnp.moveaxis(embed(table, bucket), -1, 0)  # (heads, tokens, tokens)


def _bucket(distance: jax.Array, buckets: int) -> jax.Array:
    """Short distances have a bucket each; long ones share buckets of growing width."""
    exact = buckets // 2
    steps = jnp.log(jnp.maximum(distance, 1) / exact) / math.log(FARTHEST / exact) * (buckets - exact)
    return jnp.where(distance < exact, distance, jnp.minimum(exact + steps.astype(jnp.int32), buckets - 1))
