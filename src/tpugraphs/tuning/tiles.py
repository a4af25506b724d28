"""Tiles of all kernels at once: one build and one run measure one choice of every kernel, in place."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from tpugraphs.space import Space
from tpugraphs.space.tile import DEFAULT, tile_space
from tpugraphs.types import Kernel

CHOICES = 64
"""Of each kernel, so many at random."""
_WORTH_TRYING = 0.003
"""Of the program's time; kernels that take less keep their tiles."""
_CLEARLY = 0.97
"""Other tiles are taken if a kernel takes less than this share of its time with the compiler's."""


class TileSearch:
    """Ask and tell, by the plainest search: every kernel's choices in random order, the fastest is kept."""

    def __init__(self, kernels: Sequence[Kernel], times: Mapping[str, float], *, seed: int = 0) -> None:
        own = by_digest(kernels, times)
        least = _WORTH_TRYING * sum(own.values())
        self.space: Space = tile_space([one for one in kernels if own[one.digest] >= least], most=CHOICES, seed=seed)
        rng = np.random.default_rng(seed)
        self._left = {knob.name: deque(rng.permutation(knob.choices[1:]).tolist()) for knob in self.space.knobs}
        self._best = {knob.name: (DEFAULT, _CLEARLY * own[knob.place]) for knob in self.space.knobs}

    def ask(self) -> dict[str, str]:
        """The next choice of every kernel that has one left; nothing at the end."""
        return {name: left.popleft() for name, left in self._left.items() if left}

    def tell(self, asked: Mapping[str, str], ns: Mapping[str, float]) -> None:
        """What each kernel took, by its hash."""
        for name, choice in asked.items():
            taken = ns.get(self.space.by_name[name].place)
            if taken is not None and taken < self._best[name][1]:
                self._best[name] = (choice, taken)

    @property
    def best(self) -> dict[str, str]:
        """The choices that are clearly faster than the compiler's own."""
        return {name: choice for name, (choice, _) in self._best.items() if choice != DEFAULT}


def by_digest(kernels: Sequence[Kernel], times: Mapping[str, float]) -> dict[str, float]:
    """ns a call by what is computed: a program may hold one kernel under several names."""
    spent: dict[str, float] = {}
    for kernel in kernels:
        spent[kernel.digest] = spent.get(kernel.digest, 0.0) + times.get(kernel.name, 0.0)
    return spent
