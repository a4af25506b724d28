"""A transformer encoder in plain JAX: pre-norm, four layers of six heads, width 384, 128 tokens."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tpugraphs.program.zoo import Made

LAYERS, HEADS, WIDTH, TOKENS, VOCABULARY = 4, 6, 384, 128, 1000
Weights = dict[str, Any]


def encoder() -> Made:
    """Token ids to logits over the vocabulary."""
    rng = np.random.default_rng(0)

    def matrix(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)

    def norm() -> Weights:
        return {"scale": np.ones(WIDTH, np.float32), "shift": np.zeros(WIDTH, np.float32)}

    layers = [
        {
            "norm1": norm(),
            "norm2": norm(),
            "qkv": matrix(WIDTH, 3 * WIDTH),
            "out": matrix(WIDTH, WIDTH),
            "up": matrix(WIDTH, 4 * WIDTH),
            "down": matrix(4 * WIDTH, WIDTH),
        }
        for _ in range(LAYERS)
    ]
    weights = {"embed": matrix(VOCABULARY, WIDTH), "layers": layers, "norm": norm(), "head": matrix(WIDTH, VOCABULARY)}
    tokens = rng.integers(0, VOCABULARY, size=(1, TOKENS)).astype(np.int32)
    return encode, (weights, tokens)


def encode(weights: Weights, tokens: jax.Array) -> jax.Array:
    x = weights["embed"][tokens]
    for layer in weights["layers"]:
        x = x + attention(layer, normalise(layer["norm1"], x))
        x = x + jax.nn.gelu(normalise(layer["norm2"], x) @ layer["up"]) @ layer["down"]
    return normalise(weights["norm"], x) @ weights["head"]


def attention(layer: Weights, x: jax.Array) -> jax.Array:
    batch, tokens, width = x.shape
    query, key, value = jnp.split(x @ layer["qkv"], 3, axis=-1)
    query, key, value = (part.reshape(batch, tokens, HEADS, -1) for part in (query, key, value))
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(width // HEADS)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), value)
    return mixed.reshape(batch, tokens, width) @ layer["out"]


def normalise(weights: Weights, x: jax.Array) -> jax.Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6) * weights["scale"] + weights["shift"]
