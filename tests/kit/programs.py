"""Small programs, and compiling and checking them in the test's own process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from tpugraphs.measure import check
from tpugraphs.measure.inputs import spread_inputs
from tpugraphs.program import Program, capture_callable, mlir
from tpugraphs.space import Config
from tpugraphs.space.form import FORMS, Form
from tpugraphs.space.product import apply
from tpugraphs.target import build

CHANNELS = 48


def depthwise_net(weights: dict[str, Any], x: jax.Array) -> dict[str, Any]:
    """Two depthwise convolutions with a pointwise one between, ending in an all too even softmax."""
    x = convolve(x, weights["first"], groups=CHANNELS)
    x = jax.nn.relu(convolve(x, weights["mix"], groups=1))
    x = convolve(x, weights["second"], groups=CHANNELS, strides=(2, 2))
    return {"classes": jax.nn.softmax(x.mean(axis=(1, 2)) @ weights["head"] * 1e-4), "shape": (x.sum(), [x.max()])}


def convolve(x: jax.Array, kernel: Any, *, groups: int, strides: tuple[int, int] = (1, 1)) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, kernel, strides, "SAME", dimension_numbers=numbers, feature_group_count=groups
    )


def net_arguments(size: int = 32) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) / 3).astype(np.float32)

    kernels = {"first": weights(3, 3, 1, CHANNELS), "second": weights(5, 5, 1, CHANNELS)}
    return {**kernels, "mix": weights(1, 1, CHANNELS, CHANNELS), "head": weights(CHANNELS, 10)}, weights(
        1, size, size, CHANNELS
    )


def small_program(size: int = 32) -> Program:
    return capture_callable(depthwise_net, *net_arguments(size))


def outputs(program: Program, config: Config, forms: Mapping[str, Form] = FORMS) -> dict[str, np.ndarray]:
    """What a config computes on spread inputs: the program's results, and the probes as in tuning."""
    module, options = apply(program, config, forms)
    probes = check.add_probes(module, None if config.is_default else config.as_dict())
    inputs = [jax.device_put(value) for value in spread_inputs(program.inputs, program.arguments)]
    found = build(mlir.to_bytecode(module), options)(inputs)
    return check.by_name([np.asarray(value) for value in found], probes)
