"""A space is a list of knobs; a config says which knobs are not at their default."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tpugraphs.errors import BadRequest

FORM, LAYOUT, FLAG, TILE = "form", "layout", "flag", "tile"
SPACES, JOINT = ("layout", "form", "flags"), "joint"
"""The spaces of a program, and the name of the product of all."""
PROGRAM = "program"
"""The place of what belongs to a whole program."""


def canonical(value: Any) -> str:
    """JSON in one form: sorted keys, no blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def content_hash(value: Any) -> str:
    """16 digits that stand for a JSON value."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Knob:
    """One thing that can be chosen."""

    name: str
    """`node3.form`, `node3.output`, `input7.layout`, or an option's name."""
    kind: str
    """`form`, `layout`, `flag` or `tile`."""
    place: str
    """A node's tag, an input as `input7`, a kernel's hash, or `program`: where it acts, and where its time is found."""
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
        return content_hash(self.as_dict())

    @property
    def is_default(self) -> bool:
        return not self.changes

    def as_dict(self) -> dict[str, str]:
        return dict(self.changes)

    def to_json(self) -> str:
        """Canonical: sorted, no blanks."""
        return canonical(self.as_dict())


@dataclass(frozen=True)
class Space:
    """All configs that some knobs allow."""

    knobs: tuple[Knob, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Knob]:
        return {knob.name: knob for knob in self.knobs}

    @cached_property
    def places(self) -> Mapping[str, tuple[Knob, ...]]:
        """Knobs by where they act; options each by themselves, since they do not belong together."""
        found: dict[str, list[Knob]] = {}
        for knob in self.knobs:
            found.setdefault(knob.name if knob.place == PROGRAM else knob.place, []).append(knob)
        return {place: tuple(knobs) for place, knobs in found.items()}

    @property
    def size(self) -> int:
        return math.prod(len(knob.choices) for knob in self.knobs)

    @cached_property
    def digest(self) -> str:
        """A content hash: two spaces of one digest allow the same configs."""
        knobs = sorted((knob.name, knob.choices) for knob in self.knobs)
        return content_hash(knobs)

    def __mul__(self, other: Space) -> Space:
        """The product: every knob of both."""
        if shared := self.by_name.keys() & other.by_name.keys():
            raise BadRequest(f"spaces that share knobs have no product: {', '.join(sorted(shared))} in both")
        return Space((*self.knobs, *other.knobs))

    def config(self, choices: Mapping[str, str]) -> Config:
        """The config with these choices, checked; knobs that are not named stay at their default."""
        for name, choice in choices.items():
            if name not in self.by_name:
                some = ", ".join(list(self.by_name)[:8]) + (" …" if len(self.knobs) > 8 else "")
                raise BadRequest(f"{name}: no such knob in this space; it has {some or 'none'}")
            known = self.by_name[name].choices
            if choice not in known:
                raise BadRequest(f"{name}: expected one of {', '.join(known)}, found {choice}")
        return Config.of({name: choice for name, choice in choices.items() if choice != self.by_name[name].default})

    def parse(self, text: str) -> Config:
        """The config behind its JSON, checked."""
        try:
            value = json.loads(text)
        except ValueError as error:
            raise BadRequest(f"config: expected a JSON object of knobs and choices, found {text[:80]!r}") from error
        if not isinstance(value, dict) or not all(isinstance(choice, str) for choice in value.values()):
            raise BadRequest(f"config: expected a JSON object of knobs and choices, found {text[:80]!r}")
        return self.config(value)

    def uniform(self, rng: np.random.Generator) -> Config:
        """Every knob at random."""
        return Config.of(dict(_chosen(self.knobs, rng)))

    def near(self, base: Config, rng: np.random.Generator, places: int) -> Config:
        """The base with this many places (nodes, inputs, options) drawn anew."""
        names = list(self.places)
        drawn = rng.choice(len(names), min(places, len(names)), replace=False)
        changes = base.as_dict()
        for index in sorted(drawn.tolist()):
            knobs = self.places[names[index]]
            for knob in knobs:
                changes.pop(knob.name, None)
            changes.update(_chosen(knobs, rng))
        return Config.of(changes)

    def cross(self, one: Config, other: Config, rng: np.random.Generator) -> Config:
        """A child that takes each place from one of its parents."""
        parents, changes = (one.as_dict(), other.as_dict()), {}
        for knobs in self.places.values():
            parent = parents[int(rng.integers(2))]
            changes.update({knob.name: parent[knob.name] for knob in knobs if knob.name in parent})
        return Config.of(changes)

    def enumerate(self) -> Iterator[Config]:
        """All configs, the default first, then those that differ from it in one knob, in two, …"""
        for count in range(len(self.knobs) + 1):
            for turned in itertools.combinations(self.knobs, count):
                for choices in itertools.product(*(knob.choices[1:] for knob in turned)):
                    names = (knob.name for knob in turned)
                    yield Config.of(dict(zip(names, choices, strict=True)))


def product(spaces: Iterable[Space]) -> Space:
    """The product of any number of spaces."""
    total = Space(())
    for space in spaces:
        total = total * space
    return total


def _chosen(knobs: Iterable[Knob], rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    for knob in knobs:
        choice = knob.choices[int(rng.integers(len(knob.choices)))]
        if choice != knob.default:
            yield knob.name, choice
