"""A space is a list of knobs; a config says which knobs are not at their default."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tpugraphs.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Knob:
    """One thing that can be chosen."""

    name: str
    """A node's tag, or an option's name."""
    kind: str
    """`form` or `flag`."""
    choices: tuple[str, ...]
    """The first is the compiler's own."""
    label: str
    """For people."""

    @property
    def default(self) -> str:
        return self.choices[0]


@dataclass(frozen=True)
class Config:
    """One point of a space, in canonical form: what differs from the default, sorted. Empty is the default."""

    changes: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(changes: Mapping[str, str]) -> Config:
        return Config(tuple(sorted(changes.items())))

    @cached_property
    def digest(self) -> str:
        """A content hash."""
        return hashlib.sha256(json.dumps(self.changes).encode()).hexdigest()[:16]

    @property
    def is_default(self) -> bool:
        return not self.changes

    def as_dict(self) -> dict[str, str]:
        return dict(self.changes)


@dataclass(frozen=True, slots=True)
class Space:
    """All configs that some knobs allow."""

    knobs: tuple[Knob, ...]

    @property
    def size(self) -> int:
        return math.prod(len(knob.choices) for knob in self.knobs)

    def config(self, choices: Mapping[str, str]) -> Config:
        """The config with these choices, checked; knobs that are not named stay at their default."""
        known = {knob.name: knob for knob in self.knobs}
        for name, choice in choices.items():
            if name not in known:
                raise BadRequest(f"{name}: no such knob in this space; it has {', '.join(known) or 'none'}")
            if choice not in known[name].choices:
                raise BadRequest(f"{name}: expected one of {', '.join(known[name].choices)}, found {choice}")
        return Config.of({name: choice for name, choice in choices.items() if choice != known[name].default})
