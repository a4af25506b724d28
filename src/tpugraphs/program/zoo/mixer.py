"""MLP-Mixer (Tolstikhin 2021, arXiv 2105.01601): dense layers over the patches, then over the channels."""

from __future__ import annotations

import jax

from tpugraphs.program.zoo.attention import (
    Weights,
    dense,
    dense_weights,
    feed_forward,
    feed_forward_weights,
    gelu,
    layer_norm,
    norm_weights,
    patch_weights,
    patches,
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
    token_mixing: int | None = None,
    channel_mixing: int | None = None,
    classes: int = 1000,
) -> Made:
    """The inner widths of the two mixings are half and four times the width unless given."""
    weights: Weights = {
        "patches": patch_weights(values, patch, width),
        "layers": [
            {
                "tokens_norm": norm_weights(values, width),
                "tokens": feed_forward_weights(values, (image // patch) ** 2, token_mixing or width // 2),
                "channels_norm": norm_weights(values, width),
                "channels": feed_forward_weights(values, width, channel_mixing or 4 * width),
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
    """Logits from the mean over the patches."""
    x = patches(weights["patches"], images)
    for layer in weights["layers"]:
        across = layer_norm(layer["tokens_norm"], x).swapaxes(1, 2)  # (batch, channels, tokens)
        x = x + feed_forward(layer["tokens"], across, gelu).swapaxes(1, 2)
        x = x + feed_forward(layer["channels"], layer_norm(layer["channels_norm"], x), gelu)
    return dense(weights["head"], layer_norm(weights["norm"], x).mean(axis=1))


def loss(weights: Weights, images: jax.Array, labels: jax.Array) -> jax.Array:
    return cross_entropy(classify(weights, images), labels)
