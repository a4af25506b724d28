"""Layouts as text: XLA's notation, minor to major; `{1,0}` is a row-major matrix."""

from __future__ import annotations

from collections.abc import Sequence

from tpugraphs.errors import BadRequest

Layout = tuple[int, ...]

TENSORS = ("output", "input", "kernel")
"""In the order of the official columns; of a dot, input and kernel are the left and the right operand."""
LONGEST = 6
"""The official columns hold six dimensions."""


def render(layout: Sequence[int]) -> str:
    return "{" + ",".join(map(str, layout)) + "}"


def parse_layout(choice: str) -> Layout:
    return tuple(int(part) for part in choice.strip("{}").split(",") if part)


def complete(minor: Sequence[int], rank: int) -> Layout:
    """A whole layout from the dimensions that are named, minor first: the rest follows in row-major order.

    The release names only the two minor dimensions of what convolutions and dots take and give.
    """
    named = tuple(minor)
    if len(set(named)) != len(named) or any(not 0 <= dim < rank for dim in named):
        raise BadRequest(f"layout {render(named)}: expected distinct dimensions from 0 to {rank - 1}")
    return (*named, *(dim for dim in reversed(range(rank)) if dim not in named))
