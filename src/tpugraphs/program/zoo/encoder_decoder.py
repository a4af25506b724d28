"""The first Transformer (Vaswani 2017, arXiv 1706.03762) and T5 (Raffel 2019, arXiv 1910.10683): text to text."""

from __future__ import annotations

import math
from typing import Literal

import jax
import jax.numpy as jnp

from tpugraphs.program.zoo.attention import (
    RELATIVE_BUCKETS,
    Weights,
    attention,
    attention_weights,
    causal_bias,
    embed,
    embedding_weights,
    feed_forward,
    feed_forward_weights,
    layer_norm,
    norm_weights,
    padding_bias,
    relative_bias,
    rms_norm,
    sinusoids,
)
from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.training import adam_step, cross_entropy
from tpugraphs.program.zoo.values import Values

Style = Literal["transformer", "t5"]
PADDING = 0
"""The token that fills up a source, and that a target starts from."""


def make(
    values: Values,
    *,
    mode: str,
    batch: int,
    style: Style = "transformer",
    layers: int = 6,
    width: int = 512,
    heads: int = 8,
    intermediate: int = 2048,
    vocabulary: int | None = None,
    source: int = 64,
    target: int = 64,
) -> Made:
    """As many layers in the decoder as in the encoder; `source` and `target` are lengths in tokens."""
    vocabulary = vocabulary or (32_128 if style == "t5" else 37_000)
    weights: Weights = {
        "tokens": embedding_weights(values, vocabulary, width),
        "encoder": [_layer_weights(values, style, width, heads, intermediate, cross=False) for _ in range(layers)],
        "decoder": [_layer_weights(values, style, width, heads, intermediate, cross=True) for _ in range(layers)],
    }
    if style == "t5":
        for side in ("encoder", "decoder"):
            weights[f"{side}_distances"] = values.weight(RELATIVE_BUCKETS, heads)
            weights[f"{side}_norm"] = norm_weights(values, width, shift=False)
    translate = _t5 if style == "t5" else _transformer

    def loss(weights: Weights, source: jax.Array, target: jax.Array) -> jax.Array:
        return cross_entropy(translate(weights, source, target), target)

    text = values.integers(vocabulary, batch, source), values.integers(vocabulary, batch, target)
    if mode == "train":
        return adam_step(values, loss, weights, *text)
    return Made(translate, (weights, *text), weights=weights)


def _layer_weights(values: Values, style: Style, width: int, heads: int, intermediate: int, *, cross: bool) -> Weights:
    """T5 has no biases, in its norms neither."""
    bias = style != "t5"
    names = ("attention", "cross_attention") if cross else ("attention",)
    weights = {name: attention_weights(values, width, heads, bias=bias) for name in names}
    weights["feed_forward"] = feed_forward_weights(values, width, intermediate, bias=bias)
    return weights | {f"{name}_norm": norm_weights(values, width, shift=bias) for name in (*names, "feed_forward")}


def _transformer(weights: Weights, source: jax.Array, target: jax.Array) -> jax.Array:
    """Logits of each target token, given those before it."""

    def place(tokens: jax.Array) -> jax.Array:
        x = embed(weights["tokens"], tokens) * math.sqrt(weights["tokens"].shape[1])
        return x + sinusoids(jnp.arange(tokens.shape[1]), x.shape[-1])

    present = padding_bias(source != PADDING)
    memory = _stack("transformer", weights["encoder"], place(source), present)
    bias = causal_bias(target.shape[1])
    x = _stack("transformer", weights["decoder"], place(_shifted(target)), bias, memory, present)
    return x @ weights["tokens"].T


def _t5(weights: Weights, source: jax.Array, target: jax.Array) -> jax.Array:
    """Logits of each target token, given those before it."""
    table = weights["tokens"]
    present = padding_bias(source != PADDING)
    near = relative_bias(weights["encoder_distances"], source.shape[1], causal=False)
    memory = _stack("t5", weights["encoder"], embed(table, source), near + present)
    memory = rms_norm(weights["encoder_norm"], memory)
    near = relative_bias(weights["decoder_distances"], target.shape[1], causal=True)
    bias = near + causal_bias(target.shape[1])
    x = _stack("t5", weights["decoder"], embed(table, _shifted(target)), bias, memory, present)
    return rms_norm(weights["decoder_norm"], x) / math.sqrt(table.shape[1]) @ table.T


def _stack(
    style: Style,
    layers: list[Weights],
    x: jax.Array,
    bias: jax.Array,
    memory: jax.Array | None = None,
    memory_bias: jax.Array | None = None,
) -> jax.Array:
    """An encoder, or with a memory to look at, a decoder. T5 norms what enters a sublayer, the first Transformer what
    leaves it, and T5 leaves the scale of the scores to its weights."""
    t5 = style == "t5"

    def before(norm: Weights, x: jax.Array) -> jax.Array:
        return rms_norm(norm, x) if t5 else x

    def after(norm: Weights, x: jax.Array) -> jax.Array:
        return x if t5 else layer_norm(norm, x)

    for layer in layers:
        norm = layer["attention_norm"]
        y = before(norm, x)
        x = after(norm, x + attention(layer["attention"], y, y, bias, scaled=not t5))
        if memory is not None:
            norm = layer["cross_attention_norm"]
            mixed = attention(layer["cross_attention"], before(norm, x), memory, memory_bias, scaled=not t5)
            x = after(norm, x + mixed)
        norm = layer["feed_forward_norm"]
        x = after(norm, x + feed_forward(layer["feed_forward"], before(norm, x), jax.nn.relu))
    return x


def _shifted(target: jax.Array) -> jax.Array:
    """What the decoder sees: each token one place later."""
    return jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=PADDING)
