"""Which configs of a space to measure, by ask and tell: at random, or by a genetic search from the compiler's default.

What is asked depends on the seed and on what was told, in the order of asking; so replaying what was measured brings a
search to where it stood.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tpugraphs.errors import BadRequest
from tpugraphs.space.knobs import Config, Space

SEARCHES = ("random", "default")
_UNIFORM_SHARE = 0.25
_FEW = 0.5
"""Of changes near the default, how many places: one, and with this chance each time one more."""
_TRIES = 200
"""So many draws in a row that were all seen before say that there is nothing new to be found."""


class Search(Protocol):
    """What proposes configs."""

    def ask(self, most: int) -> list[Config]:
        """Up to this many configs that were not asked before; fewer where it waits to be told, none at its end."""
        ...

    def tell(self, config: Config, ratio: float | None) -> None:
        """What measuring gave: run time over the default's, None for a failure."""
        ...


def search_named(name: str, space: Space, *, count: int, seed: int) -> Search:
    """`random` or `default`; small spaces are enumerated by `random`."""
    if name == "random":
        return RandomSearch(space, count=count, seed=seed)
    if name == "default":
        return GeneticSearch(space, seed=seed)
    raise BadRequest(f"{name}: no such search; expected {' or '.join(SEARCHES)}")


@dataclass
class RandomSearch:
    """All of a small space in order of distance from the default; of a larger one, some at random.

    A quarter is uniform. The rest changes few places of the default: a program with every node at random says little
    about any one of them.
    """

    space: Space
    count: int
    seed: int = 0
    _rng: np.random.Generator = field(init=False)
    _seen: set[Config] = field(default_factory=lambda: {Config()})
    _all: Iterator[Config] | None = None

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        if self.space.size <= self.count + 1:
            self._all = self.space.enumerate()

    def ask(self, most: int) -> list[Config]:
        found: list[Config] = []
        while len(found) < most and (config := self._next()) is not None:
            self._seen.add(config)
            found.append(config)
        return found

    def tell(self, config: Config, ratio: float | None) -> None:
        """Nothing is learned."""

    def _next(self) -> Config | None:
        if self._all is not None:
            return next((config for config in self._all if config not in self._seen), None)
        for _ in range(_TRIES):
            config = self._draw()
            if config not in self._seen:
                return config
        return None

    def _draw(self) -> Config:
        if self._rng.random() < _UNIFORM_SHARE:
            return self.space.uniform(self._rng)
        return self.space.near(Config(), self._rng, few(self._rng))


@dataclass
class GeneticSearch:
    """Starts from the default and evolves: the first generation changes few places of it; the next are children of the
    faster half, with few changes each."""

    space: Space
    seed: int = 0
    generation: int = 16
    _rng: np.random.Generator = field(init=False)
    _seen: set[Config] = field(default_factory=lambda: {Config()})
    _told: dict[Config, float] = field(default_factory=lambda: {Config(): 1.0})
    _waiting: list[Config] = field(default_factory=list)
    """Of this generation, those asked and not told yet."""
    _left: int = 0
    """Of this generation, how many are still to be asked."""
    _parents: list[Config] = field(default_factory=lambda: [Config()])

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._left = self.generation

    def ask(self, most: int) -> list[Config]:
        if not self._left and not self._waiting:
            self._breed()
        found: list[Config] = []
        while len(found) < min(most, self._left) and (config := self._next()) is not None:
            self._seen.add(config)
            found.append(config)
        self._left -= len(found)
        self._waiting.extend(found)
        return found

    def tell(self, config: Config, ratio: float | None) -> None:
        if config in self._waiting:
            self._waiting.remove(config)
        if ratio is not None:
            self._told[config] = ratio

    def _breed(self) -> None:
        self._left = self.generation
        ranked = sorted(self._told, key=lambda config: (self._told[config], config.changes))
        self._parents = ranked[: max(2, self.generation // 2)]

    def _next(self) -> Config | None:
        for _ in range(_TRIES):
            one, other = (self._parents[int(self._rng.integers(len(self._parents)))] for _ in range(2))
            config = self.space.near(self.space.cross(one, other, self._rng), self._rng, few(self._rng))
            if config not in self._seen:
                return config
        return None


def few(rng: np.random.Generator) -> int:
    """1, 2, 3 … with falling chance."""
    return int(rng.geometric(_FEW))
