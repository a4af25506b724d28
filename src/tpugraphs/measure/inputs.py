"""Seeded inputs that spread a program's outputs, so that a wrong result shows."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from tpugraphs.program import InputSpec
from tpugraphs.types import Array


def numpy_dtype(name: str) -> np.dtype:
    """The dtype of an input's name; bfloat16 is not numpy's own."""
    return np.dtype(jnp.bfloat16) if name == "bfloat16" else np.dtype(name)


def spread_inputs(specs: Sequence[InputSpec], given: Sequence[Array] | None, seed: int = 0) -> list[Array]:
    """One array per input.

    Weights of convolutions and dots are drawn so that signals keep their size through many layers. Other parameters
    are moved away from the values that untrained programs have (zeros, ones) and hide errors behind, without changing
    a sign: variances stay positive. Integers stay as given, since they may index something.
    """
    rng = np.random.default_rng(seed)
    values = given if given is not None else [None] * len(specs)
    return [_without_denormals(_spread(rng, spec, value)) for spec, value in zip(specs, values, strict=True)]


def _without_denormals(values: Array) -> Array:
    """Numbers that processors take many times longer for become the smallest ordinary ones."""
    if values.dtype.kind not in "fV":
        return values
    least = jnp.finfo(values.dtype).tiny
    tiny = (values != 0) & (np.abs(values) < least)
    return np.where(tiny, np.copysign(least, values), values).astype(values.dtype) if tiny.any() else values


def _spread(rng: np.random.Generator, spec: InputSpec, given: Array | None) -> Array:
    dtype = numpy_dtype(spec.dtype)
    if dtype.kind == "b":
        return rng.random(spec.shape) < 0.5 if given is None else given
    if dtype.kind in "iu":
        return rng.integers(0, 8, spec.shape).astype(dtype) if given is None else given
    if spec.fan_in is not None:
        return (rng.normal(size=spec.shape) * np.sqrt(2 / spec.fan_in)).astype(dtype)
    if given is None or (given == given.flat[0]).all():
        constant = None if given is None or not given.size else complex(given.flat[0]).real
        return _away_from(rng, spec.shape, constant).astype(dtype)
    return (given * np.exp(0.2 * rng.normal(size=spec.shape))).astype(dtype)


def _away_from(rng: np.random.Generator, shape: tuple[int, ...], constant: float | None) -> Array:
    if constant is None:
        return rng.normal(size=shape) if len(shape) > 1 else rng.uniform(0.5, 1.5, shape)
    if constant == 0:
        return 0.1 * np.abs(rng.normal(size=shape))  # an optimiser's sum of squares starts at zero, and stays positive
    return constant * np.exp(0.2 * rng.normal(size=shape))
