"""The values that cross the seams between rooms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
AS_IT_WAS = " as it was"
"""Behind a node's tag: its result in its own form, of a program that computes it in another one too."""


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


@dataclass(frozen=True, slots=True)
class Loop:
    """One dimension of what a kernel computes."""

    length: int
    reduces: bool
    """Whether results are summed, or otherwise combined, along it."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """How the loops are cut, a number for each loop, 0 where it is not cut on that level."""

    distribution: tuple[int, ...]
    """What one thread gets at a time."""
    parallel: tuple[int, ...]
    """What is held in registers."""
    reduction: tuple[int, ...]
    """How far a sum goes before the next register tile."""

    def __str__(self) -> str:
        return " / ".join(",".join(map(str, level)) for level in (self.distribution, self.parallel, self.reduction))


@dataclass(frozen=True, slots=True)
class Kernel:
    """One function of a compiled program."""

    name: str
    """As the compiler calls it, in this program."""
    digest: str
    """A hash of what it computes: equal kernels of any program have one."""
    what: str
    """In words: `conv 112x112x64x7x7x3 f32`."""
    pipeline: str
    """Which of its ways the compiler makes code by."""
    loops: tuple[Loop, ...]
    """Of the operation that is tiled; none where none is."""
    tiles: Tiles | None
    """The compiler's own choice."""
    tags: tuple[str, ...]
    """The nodes that it is run for, once for each place of the program that runs it."""

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Kernel:
        tiles = value["tiles"]
        return Kernel(
            **{key: value[key] for key in ("name", "digest", "what", "pipeline")},
            loops=tuple(Loop(**loop) for loop in value["loops"]),
            tiles=None if tiles is None else Tiles(**{level: tuple(tile) for level, tile in tiles.items()}),
            tags=tuple(value["tags"]),
        )
