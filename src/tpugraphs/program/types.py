"""A program as it goes through the house: StableHLO text with tagged nodes, and what its inputs look like."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from tpugraphs.types import Array


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One argument of the program, flattened."""

    shape: tuple[int, ...]
    dtype: str
    fan_in: int | None = None
    """For the weights of a convolution or dot: how many products one output sums."""


@dataclass(frozen=True, slots=True)
class Node:
    """A configurable node, known by its tag from capture to the compiler's own graph.

    Convolutions and dots compute; reshapes and transposes only move data; reductions over windows, gathers and scatters
    can be written in other ways.
    """

    tag: str
    operation: str
    description: str
    """In words: `depthwise 3x3 convolution, 1x56x56x144`."""

    @property
    def computes(self) -> bool:
        return self.operation in ("convolution", "dot_general")


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A tensor program."""

    name: str
    text: str
    """StableHLO, calls inlined, with each node's tag as its location."""
    inputs: tuple[InputSpec, ...]
    nodes: tuple[Node, ...]
    in_tree: Any = None
    """How the callable's arguments nest (nested dicts, lists, tuples with numbers for leaves)."""
    out_tree: Any = None
    arguments: tuple[Array, ...] | None = field(default=None, repr=False)
    """The values the program was captured with; None where only shapes are known."""
    parameters: int | None = None
    """How many trained values it takes, where that is known."""

    @property
    def digest(self) -> str:
        """A hash of its text: configs are for one program."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]
