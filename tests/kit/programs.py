"""Small programs, and compiling and checking them in the test's own process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from tpugraphs.measure import check
from tpugraphs.measure.inputs import spread_inputs
from tpugraphs.program import Program, capture_callable
from tpugraphs.space import Config
from tpugraphs.space.form import FORMS, Form
from tpugraphs.target.xla import XlaTarget

CHANNELS = 48
SHIFTED = {"shifted": FORMS["shifted"]}
"""A small space: one form."""


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


FAST_TO_COMPILE = {"xla_backend_optimization_level": "0", "xla_llvm_disable_expensive_passes": "True"}


def quickly(program: Program, module: str | bytes) -> list[np.ndarray]:
    """What a module of the program's arguments returns on spread inputs, compiled fast."""
    target = XlaTarget("cpu")
    inputs = [target.place(value) for value in spread_inputs(program.inputs, program.arguments)]
    return target.build(module, FAST_TO_COMPILE)(inputs)


def outputs(program: Program, config: Config, forms: Mapping[str, Form] = FORMS) -> dict[str, np.ndarray]:
    """What a config computes on spread inputs: the program's results and its probes; all nodes of the default's."""
    target = XlaTarget("cpu", forms)
    every = [node.tag for node in program.nodes]
    job = target.prepare(program, config, probe=every if config.is_default else ())
    inputs = [
        target.place(value, job.input_layouts.get(index))
        for index, value in enumerate(spread_inputs(program.inputs, program.arguments))
    ]
    return check.by_name(target.build(job.probing or job.module, job.options)(inputs), job.probes)
