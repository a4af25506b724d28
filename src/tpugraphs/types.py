"""The values that cross the seams between rooms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class GraphSummary:
    """One row of a collection's table: what a graph holds and how trustworthy its run times are."""

    name: str
    split: str
    nodes: int
    edges: int
    configurable_nodes: int
    """0 for kernels, whose config belongs to the whole graph."""
    configs: int
    unique_configs: int
    """Distinct rows of config features."""
    best_ns: int | None
    """Fastest measured run time; None where labels are withheld."""
    worst_ns: int | None
    spread: float | None
    """Slowest over fastest (relative to the normalizer, where there is one)."""
    noise_floor: float | None
    """95th percentile of |log ratio| between repeats of one config; None without repeats."""
    repeat_pairs: int
    """How many pairs of repeats the noise floor rests on."""

    @property
    def labelled(self) -> bool:
        return self.best_ns is not None


def relative_runtime(runtime_ns: Array, normalizer_ns: Array | None) -> NDArray[np.float64]:
    """Run time in units that compare within a graph: over its normalizer where there is one."""
    runtime = np.asarray(runtime_ns, dtype=np.float64)
    return runtime if normalizer_ns is None else runtime / np.asarray(normalizer_ns, dtype=np.float64)
