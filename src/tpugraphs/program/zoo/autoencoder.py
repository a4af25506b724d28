"""Images from a latent vector: a variational autoencoder (arXiv 1312.6114), the generator of DCGAN (1511.06434)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp

from tpugraphs.errors import BadRequest
from tpugraphs.program.zoo.layers import (
    Weights,
    batch_norm,
    convolution,
    convolution_weights,
    dense,
    dense_weights,
    norm_statistics,
    norm_weights,
    transposed_convolution,
)
from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.training import adam_step
from tpugraphs.program.zoo.values import Values


def make(
    values: Values,
    *,
    mode: str,
    batch: int,
    network: str = "vae",
    image: int = 28,
    colours: int = 1,
    channels: Sequence[int] = (32, 64),
    hidden: int = 16,
    latent: int = 2,
    kernel: int = 3,
) -> Made:
    """`channels` of the strided convolutions, from the image's side to the latent one; `hidden` is the autoencoder's.

    The defaults are the autoencoder for MNIST of the Keras examples.
    """
    noise = values.normal(batch, latent)
    if network == "dcgan" and mode == "inference":
        generator, statistics = generator_weights(values, image, colours, channels, latent, kernel)
        return Made(generate, (generator, statistics, noise), weights=generator)
    weights = autoencoder_weights(values, image, colours, channels, hidden, latent, kernel)
    images = values.uniform(batch, image, image, colours)
    if network == "vae" and mode == "inference":
        return Made(reconstruct, (weights, images, noise), weights=weights)
    if network == "vae" and mode == "train":
        return adam_step(values, negative_evidence, weights, images, noise)
    raise BadRequest(f"autoencoder: no network {network} with mode {mode}; there are vae (inference, train) and dcgan")


# The variational autoencoder


def autoencoder_weights(
    values: Values, image: int, colours: int, channels: Sequence[int], hidden: int, latent: int, kernel: int
) -> Weights:
    size = image >> len(channels)
    flat = size * size * channels[-1]
    upwards = [channels[-1], *reversed(channels)]
    return {
        "encoder": [convolution_weights(values, kernel, *pair) for pair in pairwise([colours, *channels])],
        "hidden": dense_weights(values, flat, hidden),
        "mean": dense_weights(values, hidden, latent),
        "log_variance": dense_weights(values, hidden, latent),
        "project": dense_weights(values, latent, flat),
        "decoder": [convolution_weights(values, kernel, *pair) for pair in pairwise(upwards)],
        "head": convolution_weights(values, kernel, channels[0], colours),
    }


def encode(weights: Weights, images: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and log variance of q(z|x)."""
    x = images
    for layer in weights["encoder"]:
        x = jax.nn.relu(convolution(layer, x, stride=2))
    x = jax.nn.relu(dense(weights["hidden"], x.reshape(len(x), -1)))
    return dense(weights["mean"], x), dense(weights["log_variance"], x)


def decode(weights: Weights, z: jax.Array) -> jax.Array:
    """Logits of p(x|z), every pixel a Bernoulli variable."""
    x = jax.nn.relu(dense(weights["project"], z))
    deepest = weights["decoder"][0]["kernel"].shape[2]
    size = round((x.shape[1] / deepest) ** 0.5)
    x = x.reshape(len(z), size, size, deepest)
    for layer in weights["decoder"]:
        x = jax.nn.relu(transposed_convolution(layer, x, stride=2))
    return transposed_convolution(weights["head"], x, stride=1)


def reparametrise(mean: jax.Array, log_variance: jax.Array, noise: jax.Array) -> jax.Array:
    return mean + jnp.exp(log_variance / 2) * noise


def reconstruct(weights: Weights, images: jax.Array, noise: jax.Array) -> jax.Array:
    return jax.nn.sigmoid(decode(weights, reparametrise(*encode(weights, images), noise)))


def negative_evidence(weights: Weights, images: jax.Array, noise: jax.Array) -> jax.Array:
    """The negative of the evidence's lower bound: KL(q(z|x) || N(0, 1)) - E log p(x|z), mean over the batch."""
    mean, log_variance = encode(weights, images)
    logits = decode(weights, reparametrise(mean, log_variance, noise))
    divergence = 0.5 * (jnp.exp(log_variance) + mean**2 - 1 - log_variance).sum()
    surprise = (jax.nn.softplus(logits) - images * logits).sum()
    return (divergence + surprise) / len(images)


# The generator of DCGAN


def generator_weights(
    values: Values, image: int, colours: int, channels: Sequence[int], latent: int, kernel: int
) -> tuple[Weights, list[Weights]]:
    """The generator's weights, and the moving moments of its batch normalisations."""
    size = image >> len(channels)
    upwards = list(reversed(channels))
    weights = {
        "project": values.weight(latent, size, size, upwards[0], fan_in=latent),
        "layers": [values.weight(kernel, kernel, *pair) for pair in pairwise([*upwards, colours])],
        "norms": [norm_weights(values, width) for width in upwards],
    }
    return weights, [norm_statistics(values, width) for width in upwards]


def generate(weights: Weights, statistics: list[Weights], z: jax.Array) -> jax.Array:
    x = jnp.einsum("bz,zhwc->bhwc", z, weights["project"])
    for norm, moments, kernel in zip(weights["norms"], statistics, weights["layers"], strict=True):
        x = jax.nn.relu(batch_norm(norm, x, moments))
        x = transposed_convolution({"kernel": kernel}, x, stride=2)
    return jnp.tanh(x)
