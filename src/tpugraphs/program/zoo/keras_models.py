"""Image classifiers of keras.applications on the JAX backend, untrained: each as its `keras.applications` page says."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from tpugraphs.errors import BadRequest
from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.training import cross_entropy
from tpugraphs.program.zoo.values import Value, Values

_CLASSES = 1000
_SIZE = 224
_ONES = ("gamma", "moving_variance", "variance")
_RATE, _MOMENTUM = 0.01, 0.9


def make(values: Values, *, mode: str, batch: int, model: str, size: int = _SIZE) -> Made:
    """The model named as in keras.applications, without its softmax: that of an untrained model would hide its input.

    Training also gives the new statistics of the batch norms, and seeds of dropouts.
    """
    keras_model = _build(model, size)
    trainable = [_draw(values, variable) for variable in keras_model.trainable_variables]
    others = [_draw(values, variable) for variable in keras_model.non_trainable_variables]
    shape = (batch, size, size, 3)
    images = values.uniform(*shape, high=255.0) if _wants_pixels(keras_model) else values.normal(*shape)

    def infer(weights: tuple[list[Any], list[Any]], images: Any) -> Any:
        return keras_model.stateless_call(*weights, images, training=False)[0]

    def loss(trainable: list[Any], others: list[Any], images: Any, labels: Any) -> tuple[Any, list[Any]]:
        logits, others = keras_model.stateless_call(trainable, others, images, training=True)
        return cross_entropy(logits, labels), others

    def step(state: dict[str, Any], others: list[Any], images: Any, labels: Any) -> tuple[Any, ...]:
        """As `training.sgd_step`, with the variables that are not trained passed on."""
        weights = state["weights"]
        (value, others), gradients = jax.value_and_grad(loss, has_aux=True)(weights, others, images, labels)
        velocity = [_MOMENTUM * v + g for v, g in zip(state["velocity"], gradients, strict=True)]
        weights = [w - _RATE * v for w, v in zip(weights, velocity, strict=True)]
        return {"weights": weights, "velocity": velocity}, others, value

    if mode == "inference":
        return Made(infer, ((trainable, others), images), weights=trainable)
    state = {"weights": trainable, "velocity": values.like(trainable)}
    return Made(step, (state, others, images, values.integers(_CLASSES, batch)), weights=trainable)


@lru_cache(maxsize=1)
def _build(model: str, size: int) -> Any:
    """The keras model, none of its variables given a value: that would take a hundred times as long.

    Keras keeps a list of such variables, by thread, to fill them at its next chance; so the thread that built ends.
    """
    keras = _keras_on_jax(model)

    def build() -> Any:
        with keras.StatelessScope(initialize_variables=False):
            return getattr(keras.applications, model)(
                input_shape=(size, size, 3), weights=None, classes=_CLASSES, classifier_activation=None
            )

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(build).result()


def _draw(values: Values, variable: Any) -> Value:
    """A variable's first value, by its name and shape: scales are one, kernels random, all else zero."""
    shape = tuple(variable.shape)
    if variable.name in _ONES:
        return values.ones(*shape)
    if len(shape) < 2:
        return values.full(0, *shape, dtype=np.dtype(variable.dtype))
    depthwise = len(shape) == 4 and shape[-1] == 1
    return values.weight(*shape, fan_in=shape[0] * shape[1] if depthwise else None)


def _wants_pixels(keras_model: Any) -> bool:
    """Whether the model itself begins by bringing pixels from 0 to 255 to another scale."""
    return any(type(layer).__name__ in ("Rescaling", "Normalization") for layer in keras_model.layers)


def _keras_on_jax(model: str) -> Any:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    try:
        import keras
    except ImportError as error:
        raise BadRequest(f"{model} needs keras: install it with `pip install 'tpugraphs[zoo]'`") from error
    if keras.backend.backend() != "jax":
        raise BadRequest(f"{model} needs keras on JAX, but it runs on {keras.backend.backend()}; set KERAS_BACKEND=jax")
    return keras
