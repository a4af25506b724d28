"""Image classifiers of keras.applications on the JAX backend, untrained, one image of 224x224."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tpugraphs.errors import BadRequest
from tpugraphs.program.zoo import Made

_SIZE = 224


def inference(model_name: str) -> Made:
    """The model's inference step as a function of weights and image."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    try:
        import keras
    except ImportError as error:
        raise BadRequest(f"{model_name} needs keras: install it with `pip install 'tpugraphs[zoo]'`") from error
    if keras.backend.backend() != "jax":
        raise BadRequest(
            f"{model_name} needs keras on JAX, but it runs on {keras.backend.backend()}; set KERAS_BACKEND=jax"
        )
    keras.utils.set_random_seed(0)
    model: Any = getattr(keras.applications, model_name)(input_shape=(_SIZE, _SIZE, 3), weights=None)
    weights = (
        [variable.value for variable in model.trainable_variables],
        [variable.value for variable in model.non_trainable_variables],
    )

    def infer(weights: tuple[list[Any], list[Any]], image: Any) -> Any:
        return model.stateless_call(weights[0], weights[1], image, training=False)[0]

    image = np.random.default_rng(0).normal(size=(1, _SIZE, _SIZE, 3)).astype(np.float32)
    return infer, (weights, image)
