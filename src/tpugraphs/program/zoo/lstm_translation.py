"""Translation by stacked LSTMs with attention, like GNMT (Wu 2016, arXiv 1609.08144)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tpugraphs.program.zoo.attention import (
    FORBIDDEN,
    Weights,
    dense,
    dense_weights,
    embed,
    embedding_weights,
)
from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.training import adam_step, cross_entropy
from tpugraphs.program.zoo.values import Values

START = 1
PADDING = 0
State = tuple[jax.Array, jax.Array]
"""What an LSTM gives out and what it keeps, each (batch, width)."""


def make(
    values: Values,
    *,
    mode: str,
    batch: int,
    layers: int = 8,
    width: int = 1024,
    vocabulary: int = 32_320,
    source: int = 32,
    target: int = 32,
) -> Made:
    """At least two layers in the encoder, the first of both directions, and as many in the decoder.

    `source` and `target` are lengths in tokens.
    """
    weights: Weights = {
        "tokens": embedding_weights(values, vocabulary, width),
        "forward": lstm_weights(values, width, width),
        "backward": lstm_weights(values, width, width),
        "encoder": [lstm_weights(values, 2 * width if index == 0 else width, width) for index in range(layers - 1)],
        "attention": {
            "query": dense_weights(values, width, width, bias=False),
            "key": dense_weights(values, width, width, bias=False),
            "bias": values.zeros(width),
            "score": values.weight(width, fan_in=width),
        },
        "decoder": [lstm_weights(values, 2 * width, width) for _ in range(layers)],
        "head": dense_weights(values, width, vocabulary),
    }
    text = values.integers(vocabulary, batch, source), values.integers(vocabulary, batch, target)
    if mode == "train":
        return adam_step(values, loss, weights, *text)
    return Made(translate, (weights, *text), weights=weights)


def loss(weights: Weights, source: jax.Array, target: jax.Array) -> jax.Array:
    return cross_entropy(translate(weights, source, target), target)


def translate(weights: Weights, source: jax.Array, target: jax.Array) -> jax.Array:
    """Logits (batch, target tokens, vocabulary) of each target token, given those before it. Inside, time is first."""
    memory = encode(weights, embed(weights["tokens"], source.T))
    bias = jnp.where(source.T == PADDING, FORBIDDEN, 0.0)
    before = jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=START)
    x, context = decode_first(weights, embed(weights["tokens"], before.T), memory, bias)
    for index, layer in enumerate(weights["decoder"][1:]):
        y = lstm(layer, jnp.concatenate([x, context], axis=-1))
        x = x + y if index > 0 else y
    return dense(weights["head"], x).swapaxes(0, 1)


def encode(weights: Weights, x: jax.Array) -> jax.Array:
    """Residuals from the third layer on."""
    x = jnp.concatenate([lstm(weights["forward"], x), lstm(weights["backward"], x, reverse=True)], axis=-1)
    for index, layer in enumerate(weights["encoder"]):
        y = lstm(layer, x)
        x = x + y if index > 0 else y
    return x


def decode_first(weights: Weights, x: jax.Array, memory: jax.Array, bias: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The layer that looks at the memory: its outputs, and the contexts it saw, which all later layers see too."""
    layer, attention = weights["decoder"][0], weights["attention"]
    keys = dense(attention["key"], memory) + attention["bias"]

    def step(
        carry: tuple[State, jax.Array], x: jax.Array
    ) -> tuple[tuple[State, jax.Array], tuple[jax.Array, jax.Array]]:
        state, context = carry
        state = cell(state, dense(layer["input"], jnp.concatenate([x, context], axis=-1)), layer["recurrent"])
        seen = jnp.tanh(keys + dense(attention["query"], state[0]))  # (source tokens, batch, width)
        shares = jax.nn.softmax(seen @ attention["score"] + bias, axis=0)
        context = jnp.einsum("sb,sbd->bd", shares, memory)
        return (state, context), (state[0], context)

    nothing = jnp.zeros_like(x[0])
    return jax.lax.scan(step, ((nothing, nothing), nothing), x)[1]


def lstm_weights(values: Values, inputs: int, width: int) -> Weights:
    return {"input": dense_weights(values, inputs, 4 * width), "recurrent": values.weight(width, 4 * width)}


def lstm(weights: Weights, x: jax.Array, *, reverse: bool = False) -> jax.Array:
    """(time, batch, inputs) to (time, batch, width); what the inputs add is one product for all times."""

    def step(state: State, given: jax.Array) -> tuple[State, jax.Array]:
        state = cell(state, given, weights["recurrent"])
        return state, state[0]

    nothing = jnp.zeros((x.shape[1], weights["recurrent"].shape[0]))
    return jax.lax.scan(step, (nothing, nothing), dense(weights["input"], x), reverse=reverse)[1]


def cell(state: State, given: jax.Array, recurrent: jax.Array) -> State:
    """Hochreiter and Schmidhuber's cell, with a forget gate."""
    output, kept = state
    enter, forget, candidate, leave = jnp.split(given + output @ recurrent, 4, axis=-1)
    kept = jax.nn.sigmoid(forget) * kept + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
    return jax.nn.sigmoid(leave) * jnp.tanh(kept), kept
