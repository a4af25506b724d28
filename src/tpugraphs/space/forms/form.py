"""What a form is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Form:
    """One way of writing an operation."""

    name: str
    label: str
    """In words, for tables."""
    cost: str
    """What it saves and what it costs, in a sentence."""
    applies: Callable[[Any], bool]
    """Whether the operation can be written so."""
    rewrite: Callable[[Any], Any]
    """Builds the other form in front of the operation and returns the value that takes its result's place, or of
    several results a list; the first one's is built last."""
