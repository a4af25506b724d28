"""WaveNet (arXiv 1609.03499): dilated causal convolutions with gates predict the next sample of a waveform."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tpugraphs.errors import BadRequest
from tpugraphs.program.zoo.autoencoder import dense, dense_weights
from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.training import adam_step, cross_entropy
from tpugraphs.program.zoo.values import Values

Weights = dict[str, Any]
State = dict[str, Any]


def make(
    values: Values,
    *,
    mode: str,
    batch: int,
    samples: int = 1024,
    blocks: int = 2,
    layers: int = 10,
    residual: int = 64,
    gate: int = 64,
    skip: int = 256,
    classes: int = 256,
) -> Made:
    """`blocks` times `layers` convolutions of width two; dilations double from 1 within a block.

    Mode "decode" takes one sample of each waveform and the state that the samples before it left.
    """
    weights = {
        "embed": values.weight(2, classes, residual, fan_in=2),
        "layers": [layer_weights(values, residual, gate, skip) for _ in range(blocks * layers)],
        "hidden": dense_weights(values, skip, skip),
        "head": dense_weights(values, skip, classes),
    }
    dilations = [2**layer for layer in range(layers)] * blocks

    def infer(weights: Weights, waveform: jax.Array) -> jax.Array:
        return whole_waveform(weights, waveform, dilations)

    def loss(weights: Weights, waveform: jax.Array) -> jax.Array:
        return cross_entropy(whole_waveform(weights, waveform[:, :-1], dilations), waveform[:, 1:])

    if mode == "inference":
        return Made(infer, (weights, values.integers(classes, batch, samples)), weights=weights)
    if mode == "train":
        return adam_step(values, loss, weights, values.integers(classes, batch, samples + 1))
    if mode == "decode":
        state = {
            "step": values.integers(1),
            "previous": values.full(classes // 2, batch, dtype="int32"),
            "queues": [values.zeros(batch, dilation, residual) for dilation in dilations],
        }
        return Made(one_sample, (weights, state, values.integers(classes, batch)), weights=weights)
    raise BadRequest(f"wavenet: no mode {mode}; there are inference, train and decode")


def layer_weights(values: Values, residual: int, gate: int, skip: int) -> Weights:
    return {
        "kernel": values.weight(2, residual, 2 * gate),  # of the sample `dilation` ago, and of the present one
        "bias": values.zeros(2 * gate),
        "residual": dense_weights(values, gate, residual),
        "skip": dense_weights(values, gate, skip),
    }


def whole_waveform(weights: Weights, waveform: jax.Array, dilations: list[int]) -> jax.Array:
    """Classes [batch, samples] to logits of each sample's successor."""
    silence = weights["embed"].shape[1] // 2
    previous = jnp.pad(waveform[:, :-1], ((0, 0), (1, 0)), constant_values=silence)
    x = weights["embed"][0][previous] + weights["embed"][1][waveform]  # a causal convolution of one-hot vectors
    skips = []
    for layer, dilation in zip(weights["layers"], dilations, strict=True):
        x, skip = gated(layer, x, causal_convolution(layer, x, dilation))
        skips.append(skip)
    return output(weights, skips)


def causal_convolution(layer: Weights, x: jax.Array, dilation: int) -> jax.Array:
    past_only = [(dilation, 0)]
    layout = ("NWC", "WIO", "NWC")
    return jax.lax.conv_general_dilated(
        x, layer["kernel"], (1,), past_only, rhs_dilation=(dilation,), dimension_numbers=layout
    )


def gated(layer: Weights, x: jax.Array, convolved: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The next layer's input, and this layer's part of the output."""
    signal, gate = jnp.split(convolved + layer["bias"], 2, axis=-1)
    z = jnp.tanh(signal) * jax.nn.sigmoid(gate)
    return x + dense(layer["residual"], z), dense(layer["skip"], z)


def output(weights: Weights, skips: list[jax.Array]) -> jax.Array:
    hidden = dense(weights["hidden"], jax.nn.relu(sum(skips[1:], skips[0])))
    return dense(weights["head"], jax.nn.relu(hidden))


def one_sample(weights: Weights, state: State, sample: jax.Array) -> tuple[State, jax.Array]:
    """Classes [batch] to logits of their successors, each layer's queue being a ring of its last inputs."""
    x = weights["embed"][0][state["previous"]] + weights["embed"][1][sample]
    skips, queues = [], []
    for layer, queue in zip(weights["layers"], state["queues"], strict=True):
        slot = state["step"] % queue.shape[1]
        past = jax.lax.dynamic_index_in_dim(queue, slot, axis=1, keepdims=False)
        queues.append(jax.lax.dynamic_update_index_in_dim(queue, x, slot, axis=1))
        x, skip = gated(layer, x, past @ layer["kernel"][0] + x @ layer["kernel"][1])
        skips.append(skip)
    return {"step": state["step"] + 1, "previous": sample, "queues": queues}, output(weights, skips)
