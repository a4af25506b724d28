"""An encoder with a mixture of experts in every other layer, each token seeing one: Switch (Fedus 2021, 2101.03961)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from tpugraphs.program.zoo.attention import (
    RELATIVE_BUCKETS,
    Weights,
    attention,
    attention_weights,
    embed,
    embedding_weights,
    feed_forward,
    feed_forward_weights,
    norm_weights,
    padding_bias,
    relative_bias,
    rms_norm,
)
from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.training import adam_step, cross_entropy
from tpugraphs.program.zoo.values import Values

BALANCE = 0.01
"""The weight of the loss that spreads the tokens over the experts."""


def make(
    values: Values,
    *,
    mode: str,
    batch: int,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    intermediate: int | None = None,
    experts: int = 8,
    capacity_factor: float = 1.25,
    expert_every: int = 2,
    vocabulary: int = 32_128,
    tokens: int = 128,
) -> Made:
    """The encoder of T5 otherwise; an expert takes `capacity_factor` times its even share of a sequence at most."""
    intermediate = intermediate or 4 * width
    capacity = math.ceil(tokens * capacity_factor / experts)
    weights: Weights = {
        "tokens": embedding_weights(values, vocabulary, width),
        "distances": values.weight(RELATIVE_BUCKETS, heads),
        "layers": [
            _layer_weights(values, width, heads, intermediate, 0 if number % expert_every else experts)
            for number in range(1, layers + 1)
        ],
        "norm": norm_weights(values, width, shift=False),
    }

    def infer(weights: Weights, tokens: jax.Array, mask: jax.Array) -> jax.Array:
        return encode(weights, tokens, mask, capacity)[0]

    def loss(weights: Weights, tokens: jax.Array, mask: jax.Array, labels: jax.Array) -> jax.Array:
        x, imbalance = encode(weights, tokens, mask, capacity)
        return cross_entropy(x @ weights["tokens"].T, labels) + BALANCE * imbalance

    text = values.integers(vocabulary, batch, tokens), values.integers(2, batch, tokens)
    if mode == "train":  # to restore the words of a damaged text
        return adam_step(values, loss, weights, *text, values.integers(vocabulary, batch, tokens))
    return Made(infer, (weights, *text), weights=weights)


def encode(weights: Weights, tokens: jax.Array, mask: jax.Array, capacity: int) -> tuple[jax.Array, jax.Array]:
    """The last hidden state, and how unevenly the experts were loaded."""
    x = embed(weights["tokens"], tokens)
    bias = relative_bias(weights["distances"], tokens.shape[1], causal=False) + padding_bias(mask > 0)
    imbalance = jnp.zeros(())
    for layer in weights["layers"]:
        y = rms_norm(layer["attention_norm"], x)
        x = x + attention(layer["attention"], y, y, bias)
        y = rms_norm(layer["feed_forward_norm"], x)
        if "router" in layer:
            y, uneven = switch(layer, y, capacity)
            imbalance = imbalance + uneven
        else:
            y = feed_forward(layer["feed_forward"], y, jax.nn.relu)
        x = x + y
    return rms_norm(weights["norm"], x), imbalance


def _layer_weights(values: Values, width: int, heads: int, intermediate: int, experts: int) -> Weights:
    weights: Weights = {
        "attention_norm": norm_weights(values, width, shift=False),
        "attention": attention_weights(values, width, heads, bias=False),
        "feed_forward_norm": norm_weights(values, width, shift=False),
    }
    if not experts:
        return weights | {"feed_forward": feed_forward_weights(values, width, intermediate, bias=False)}
    return weights | {
        "router": values.weight(width, experts),
        "up": values.weight(experts, width, intermediate, fan_in=width),
        "down": values.weight(experts, intermediate, width, fan_in=intermediate),
    }


def switch(weights: Weights, x: jax.Array, capacity: int) -> tuple[jax.Array, jax.Array]:
    """Each token through the expert that its router likes best, unless that expert is full: then nothing is added.

    In the einsums: b batch, t tokens, d width, e experts, c places at an expert, f intermediate.
    """
    shares = jax.nn.softmax(x @ weights["router"], axis=-1)
    chosen = jax.nn.one_hot(jnp.argmax(shares, axis=-1), shares.shape[-1])  # (b, t, e)
    uneven = shares.shape[-1] * (chosen.mean(axis=1) * shares.mean(axis=1)).sum(axis=-1).mean()
    place = (jnp.cumsum(chosen, axis=1) * chosen).sum(axis=-1).astype(jnp.int32) - 1  # in the queue, from 0
    dispatch = chosen[..., None] * jax.nn.one_hot(place, capacity)[:, :, None]  # (b, t, e, c); too late is all zeros
    combine = dispatch * shares.max(axis=-1)[..., None, None]
    taken = jnp.einsum("btec,btd->becd", dispatch, x)
    inner = jax.nn.relu(jnp.einsum("becd,edf->becf", taken, weights["up"]))
    given = jnp.einsum("becf,efd->becd", inner, weights["down"])
    return jnp.einsum("btec,becd->btd", combine, given), uneven
