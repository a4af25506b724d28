"""Training steps: gradients of a loss, and the update of an optimiser, as one pure function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.values import Values

Loss = Callable[..., jax.Array]


def sgd_step(values: Values, loss: Loss, weights: Any, *batch: Any, rate: float = 0.01, momentum: float = 0.9) -> Made:
    """A step of stochastic gradient descent with momentum on `loss(weights, *batch)`."""

    def step(state: dict[str, Any], *batch: Any) -> tuple[dict[str, Any], jax.Array]:
        value, gradients = jax.value_and_grad(loss)(state["weights"], *batch)
        velocity = jax.tree.map(lambda v, g: momentum * v + g, state["velocity"], gradients)
        updated = jax.tree.map(lambda w, v: w - rate * v, state["weights"], velocity)
        return {"weights": updated, "velocity": velocity}, value

    return Made(step, ({"weights": weights, "velocity": values.like(weights)}, *batch), weights=weights)


def adam_step(values: Values, loss: Loss, weights: Any, *batch: Any, rate: float = 1e-4) -> Made:
    """A step of Adam on `loss(weights, *batch)`."""
    first_decay, second_decay, epsilon = 0.9, 0.999, 1e-8

    def step(state: dict[str, Any], *batch: Any) -> tuple[dict[str, Any], jax.Array]:
        value, gradients = jax.value_and_grad(loss)(state["weights"], *batch)
        count = state["count"] + 1
        mean = jax.tree.map(lambda m, g: first_decay * m + (1 - first_decay) * g, state["mean"], gradients)
        square = jax.tree.map(lambda s, g: second_decay * s + (1 - second_decay) * g * g, state["square"], gradients)
        scale = rate * jnp.sqrt(1 - second_decay**count) / (1 - first_decay**count)
        updated = jax.tree.map(lambda w, m, s: w - scale * m / (jnp.sqrt(s) + epsilon), state["weights"], mean, square)
        return {"weights": updated, "mean": mean, "square": square, "count": count}, value

    state = {"weights": weights, "mean": values.like(weights), "square": values.like(weights), "count": values.zeros()}
    return Made(step, (state, *batch), weights=weights)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean over everything but the classes, which come last."""
    logs = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.take_along_axis(logs, labels[..., None], axis=-1).mean()
