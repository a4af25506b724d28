"""Parameters and inputs of a program: seeded arrays, or their shapes alone, by the same code."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

Value = Any
"""A numpy array, or a `jax.ShapeDtypeStruct` where only shapes are wanted."""


@dataclass
class Values:
    """Draws arrays in the order they are asked for. With `concrete=False` nothing is drawn and nothing is held."""

    concrete: bool = True
    seed: int = 0
    _rng: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def weight(self, *shape: int, fan_in: int | None = None) -> Value:
        """Normal, scaled so that signals keep their size: by default over all dimensions but the last."""
        scale = 1 / math.sqrt(fan_in or math.prod(shape[:-1]) or 1)
        return self._make(shape, np.float32, lambda: self._rng.standard_normal(shape, np.float32) * np.float32(scale))

    def normal(self, *shape: int) -> Value:
        return self._make(shape, np.float32, lambda: self._rng.standard_normal(shape, np.float32))

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Value:
        return self._make(shape, np.float32, lambda: self._rng.uniform(low, high, shape).astype(np.float32))

    def full(self, value: float, *shape: int, dtype: Any = np.float32) -> Value:
        return self._make(shape, dtype, lambda: np.full(shape, value, dtype))

    def zeros(self, *shape: int) -> Value:
        return self.full(0, *shape)

    def ones(self, *shape: int) -> Value:
        return self.full(1, *shape)

    def integers(self, below: int, *shape: int) -> Value:
        """int32 from 0 to below - 1."""
        return self._make(shape, np.int32, lambda: self._rng.integers(0, below, shape, np.int32))

    def like(self, tree: Any, value: float = 0.0) -> Any:
        """The same tree with every array filled with one value: an optimiser's first state."""
        return jax.tree.map(lambda leaf: self.full(value, *leaf.shape, dtype=leaf.dtype), tree)

    def _make(self, shape: tuple[int, ...], dtype: Any, draw: Callable[[], np.ndarray]) -> Value:
        return draw() if self.concrete else jax.ShapeDtypeStruct(shape, dtype)
