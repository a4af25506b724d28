"""BERT (Devlin 2018, arXiv 1810.04805), ALBERT (1909.11942), ELECTRA (2003.10555), talking heads (2003.02436)."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from tpugraphs.program.zoo.attention import (
    Weights,
    attention,
    attention_weights,
    dense,
    dense_weights,
    embed,
    embedding_weights,
    feed_forward,
    feed_forward_weights,
    gelu,
    layer_norm,
    norm_weights,
    padding_bias,
)
from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.training import adam_step, cross_entropy
from tpugraphs.program.zoo.values import Values

Model = Literal["bert", "albert", "electra", "talking-heads"]
EPSILON = 1e-12
TYPES = 2
PREDICTED = 0.15
"""The part of the tokens that the masked language model has to guess."""


def make(
    values: Values,
    *,
    mode: str,
    batch: int,
    model: Model = "bert",
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    intermediate: int | None = None,
    vocabulary: int | None = None,
    embedding: int | None = None,
    positions: int = 512,
    tokens: int = 128,
    shared_layers: bool | None = None,
    talking_heads: bool | None = None,
    pooler: bool = True,
) -> Made:
    """What is left out is as in the model of that name; the intermediate width is four times the width."""
    intermediate = intermediate or 4 * width
    vocabulary = vocabulary or (30_000 if model == "albert" else 30_522)
    embedding = embedding or (128 if model == "albert" else width)
    shared_layers = model == "albert" if shared_layers is None else shared_layers
    gated = model == "talking-heads"  # as published on TF-Hub
    talking_heads = gated if talking_heads is None else talking_heads
    weights: Weights = {
        "embedding": _embedding_weights(values, vocabulary, max(positions, tokens), embedding, width),
        "layers": [
            _layer_weights(values, width, heads, intermediate, talking_heads=talking_heads, gated=gated)
            for _ in range(1 if shared_layers else layers)
        ],
    }
    if mode == "train":  # the pooler would see no gradient
        weights["head"] = _head_weights(values, vocabulary, embedding, width)
    elif pooler:
        weights["pooler"] = dense_weights(values, width, width)

    def infer(weights: Weights, tokens: jax.Array, types: jax.Array, mask: jax.Array) -> dict[str, jax.Array]:
        x = encode(weights, layers, tokens, types, mask)
        return {"hidden": x, "pooled": jnp.tanh(dense(weights["pooler"], x[:, 0]))} if pooler else {"hidden": x}

    def loss(weights: Weights, *batch: jax.Array) -> jax.Array:
        tokens, types, mask, masked, labels = batch
        x = jnp.take_along_axis(encode(weights, layers, tokens, types, mask), masked[..., None], axis=1)
        return cross_entropy(guess(weights["head"], x, weights["embedding"]["tokens"]), labels)

    text = tuple(values.integers(below, batch, tokens) for below in (vocabulary, TYPES, 2))  # some tokens are absent
    if mode == "train":
        guesses = max(1, round(PREDICTED * tokens))
        targets = (values.integers(tokens, batch, guesses), values.integers(vocabulary, batch, guesses))
        return adam_step(values, loss, weights, *text, *targets)
    return Made(infer, (weights, *text), weights=weights)


def encode(weights: Weights, layers: int, tokens: jax.Array, types: jax.Array, mask: jax.Array) -> jax.Array:
    """The last hidden state. Shared layers come round again."""
    x = _embed(weights["embedding"], tokens, types)
    bias = padding_bias(mask > 0)
    for index in range(layers):
        layer = weights["layers"][index % len(weights["layers"])]
        x = layer_norm(layer["attention_norm"], x + attention(layer["attention"], x, x, bias), EPSILON)
        x = layer_norm(layer["feed_forward_norm"], x + feed_forward(layer["feed_forward"], x, gelu), EPSILON)
    return x


def guess(weights: Weights, x: jax.Array, table: jax.Array) -> jax.Array:
    """Logits of the words behind the masked positions, by the embedding read backwards."""
    return layer_norm(weights["norm"], gelu(dense(weights["dense"], x)), EPSILON) @ table.T + weights["bias"]


def _layer_weights(
    values: Values, width: int, heads: int, intermediate: int, *, talking_heads: bool, gated: bool
) -> Weights:
    return {
        "attention": attention_weights(values, width, heads, talking_heads=talking_heads),
        "attention_norm": norm_weights(values, width),
        "feed_forward": feed_forward_weights(values, width, intermediate, gated=gated),
        "feed_forward_norm": norm_weights(values, width),
    }


def _embedding_weights(values: Values, vocabulary: int, positions: int, embedding: int, width: int) -> Weights:
    weights: Weights = {
        "tokens": embedding_weights(values, vocabulary, embedding),
        "positions": embedding_weights(values, positions, embedding),
        "types": embedding_weights(values, TYPES, embedding),
        "norm": norm_weights(values, embedding),
    }
    return weights if embedding == width else weights | {"project": dense_weights(values, embedding, width)}


def _embed(weights: Weights, tokens: jax.Array, types: jax.Array) -> jax.Array:
    x = embed(weights["tokens"], tokens) + embed(weights["types"], types) + weights["positions"][: tokens.shape[1]]
    x = layer_norm(weights["norm"], x, EPSILON)
    return dense(weights["project"], x) if "project" in weights else x


def _head_weights(values: Values, vocabulary: int, embedding: int, width: int) -> Weights:
    return {
        "dense": dense_weights(values, width, embedding),
        "norm": norm_weights(values, embedding),
        "bias": values.zeros(vocabulary),
    }
