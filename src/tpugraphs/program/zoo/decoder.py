"""A pre-norm decoder of text: GPT-2 (Radford 2019, "Language models are unsupervised multitask learners")."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tpugraphs.program.zoo.attention import (
    FORBIDDEN,
    Weights,
    attend,
    causal_bias,
    embed,
    embedding_weights,
    feed_forward,
    feed_forward_weights,
    gelu_tanh,
    layer_norm,
    merge_heads,
    norm_weights,
    query_key_value,
    self_attention,
    self_attention_weights,
)
from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.training import adam_step, cross_entropy
from tpugraphs.program.zoo.values import Values

EPSILON = 1e-5
Cache = list[dict[str, jax.Array]]
"""By layer, the keys and values of the tokens so far: (batch, context, heads, depth)."""


def make(
    values: Values,
    *,
    mode: str,
    batch: int,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    vocabulary: int = 50_257,
    context: int = 1024,
    tokens: int = 128,
) -> Made:
    """Mode "inference" reads a whole prompt of `tokens`, "decode" the next token after a cache of `context`."""
    weights: Weights = {
        "tokens": embedding_weights(values, vocabulary, width),
        "positions": embedding_weights(values, context, width),
        "layers": [
            {
                "attention_norm": norm_weights(values, width),
                "attention": self_attention_weights(values, width, heads),
                "feed_forward_norm": norm_weights(values, width),
                "feed_forward": feed_forward_weights(values, width, 4 * width),
            }
            for _ in range(layers)
        ],
        "norm": norm_weights(values, width),
    }
    if mode == "train":
        text = values.integers(vocabulary, batch, tokens), values.integers(vocabulary, batch, tokens)
        return adam_step(values, next_token_loss, weights, *text)
    if mode == "decode":
        shape = (batch, context, heads, width // heads)
        cache = [{"key": values.normal(*shape), "value": values.normal(*shape)} for _ in range(layers)]
        position = values.full(context // 2, dtype=np.int32)
        return Made(decode, (weights, values.integers(vocabulary, batch), position, cache), weights=weights)
    return Made(read_prompt, (weights, values.integers(vocabulary, batch, tokens)), weights=weights)


def read_prompt(weights: Weights, tokens: jax.Array) -> jax.Array:
    """Logits of the token after the last."""
    return _logits(weights, _read(weights, tokens)[:, -1])


def next_token_loss(weights: Weights, tokens: jax.Array, following: jax.Array) -> jax.Array:
    return cross_entropy(_logits(weights, _read(weights, tokens)), following)


def decode(weights: Weights, token: jax.Array, position: jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
    """Logits of the token after `token`, which stands at `position`, and the cache with it."""
    x = embed(weights["tokens"], token)[:, None] + jax.lax.dynamic_slice_in_dim(weights["positions"], position, 1)
    bias = jnp.where(jnp.arange(cache[0]["key"].shape[1]) > position, FORBIDDEN, 0.0)
    grown: Cache = []
    for layer, past in zip(weights["layers"], cache, strict=True):
        query, key, value = query_key_value(layer["attention"], layer_norm(layer["attention_norm"], x, EPSILON))
        keys = jax.lax.dynamic_update_slice_in_dim(past["key"], key, position, axis=1)
        entries = jax.lax.dynamic_update_slice_in_dim(past["value"], value, position, axis=1)
        x = x + merge_heads(layer["attention"]["out"], attend(query, keys, entries, bias))
        x = x + _feed_forward(layer, x)
        grown.append({"key": keys, "value": entries})
    return _logits(weights, x[:, 0]), grown


def _read(weights: Weights, tokens: jax.Array) -> jax.Array:
    length = tokens.shape[1]
    x = embed(weights["tokens"], tokens) + weights["positions"][:length]
    bias = causal_bias(length)
    for layer in weights["layers"]:
        x = x + self_attention(layer["attention"], layer_norm(layer["attention_norm"], x, EPSILON), bias)
        x = x + _feed_forward(layer, x)
    return x


def _feed_forward(layer: Weights, x: jax.Array) -> jax.Array:
    return feed_forward(layer["feed_forward"], layer_norm(layer["feed_forward_norm"], x, EPSILON), gelu_tanh)


def _logits(weights: Weights, x: jax.Array) -> jax.Array:
    """By the embedding read backwards."""
    return layer_norm(weights["norm"], x, EPSILON) @ weights["tokens"].T
