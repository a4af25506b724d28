"""What a family's module gives: a pure function and its arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A program before it is captured."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    """Nested dicts, lists and tuples of arrays, or of shapes alone."""
    weights: Any
    """The part of the arguments that was or would be trained, each parameter once."""
