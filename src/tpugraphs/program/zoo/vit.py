"""The Vision Transformer (Dosovitskiy 2020, arXiv 2010.11929)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tpugraphs.program.zoo.attention import (
    Weights,
    dense,
    dense_weights,
    embedding_weights,
    feed_forward,
    feed_forward_weights,
    gelu,
    layer_norm,
    norm_weights,
    patch_weights,
    patches,
    self_attention,
    self_attention_weights,
)
from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.training import adam_step, cross_entropy
from tpugraphs.program.zoo.values import Values


def make(
    values: Values,
    *,
    mode: str,
    batch: int,
    image: int = 224,
    patch: int = 16,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    intermediate: int | None = None,
    classes: int = 1000,
) -> Made:
    """The intermediate width is four times the width unless given."""
    weights: Weights = {
        "patches": patch_weights(values, patch, width),
        "class": values.weight(1, 1, width, fan_in=width),
        "positions": embedding_weights(values, (image // patch) ** 2 + 1, width),
        "layers": [
            {
                "attention_norm": norm_weights(values, width),
                "attention": self_attention_weights(values, width, heads),
                "feed_forward_norm": norm_weights(values, width),
                "feed_forward": feed_forward_weights(values, width, intermediate or 4 * width),
            }
            for _ in range(layers)
        ],
        "norm": norm_weights(values, width),
        "head": dense_weights(values, width, classes),
    }
    images = values.normal(batch, image, image, 3)
    if mode == "train":
        return adam_step(values, loss, weights, images, values.integers(classes, batch))
    return Made(classify, (weights, images), weights=weights)


def classify(weights: Weights, images: jax.Array) -> jax.Array:
    """Logits, read off a token that stands before the patches."""
    x = patches(weights["patches"], images)
    first = jnp.broadcast_to(weights["class"], (x.shape[0], 1, x.shape[2]))
    x = jnp.concatenate([first, x], axis=1) + weights["positions"]
    for layer in weights["layers"]:
        x = x + self_attention(layer["attention"], layer_norm(layer["attention_norm"], x))
        x = x + feed_forward(layer["feed_forward"], layer_norm(layer["feed_forward_norm"], x), gelu)
    return dense(weights["head"], layer_norm(weights["norm"], x[:, 0]))


def loss(weights: Weights, images: jax.Array, labels: jax.Array) -> jax.Array:
    return cross_entropy(classify(weights, images), labels)
