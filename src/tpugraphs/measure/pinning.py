"""Which processor a worker's main thread is steadiest on: what to try, and the choice among what was tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tpugraphs.measure.machine import NEAR_TICK, at_ticks

Processors = tuple[int, ...] | None
"""None: the system chooses."""

_SLOWER = 1.03
"""A place that costs this much time is none, however steady."""
_CLEARLY_STEADIER = 0.75
"""Less than this of the unsteadiness: of several places, judged by tens of samples, chance alone makes one better."""
_USUAL, _LATE = 0.2, 1.1


@dataclass(frozen=True, slots=True)
class Tried:
    """How calls went with the main thread in one place."""

    processors: Processors
    median_ns: float
    spread: float
    """The median absolute deviation, as a share of the median."""
    tick_share: float | None
    """Of calls that a tick of the kernel ended; None where the tick is unknown."""

    @property
    def unsteadiness(self) -> float:
        """A call that waited for a tick is off by about its own length, which the median deviation does not see."""
        return self.spread + (self.tick_share or 0.0)


def places(usable: Sequence[int] | None, most: int = 8) -> list[Processors]:
    """What to try: wherever the system likes, and each processor, or some of them evenly spread."""
    usable = sorted(usable or ())
    if len(usable) > most:
        usable = [usable[round(index)] for index in np.linspace(0, len(usable) - 1, most)]
    return [None, *((processor,) for processor in usable)]


def judge(samples_ns: Mapping[Processors, Sequence[float]], tick_hz: int | None) -> list[Tried]:
    """From samples of one call each, taken in turns."""
    # where most calls wait for a tick the median is one: the usual time is that of the quick ones, anywhere
    usual_ns = min(float(np.quantile(taken, _USUAL)) for taken in samples_ns.values())
    tried: list[Tried] = []
    for processors, taken in samples_ns.items():
        values = np.asarray(taken, float)
        middle = float(np.median(values))
        spread = float(np.median(np.abs(values - middle))) / middle
        tried.append(Tried(processors, middle, spread, _tick_share(values, tick_hz, usual_ns) if tick_hz else None))
    return tried


def _tick_share(values: NDArray[np.float64], tick_hz: int, usual_ns: float) -> float:
    """Of those that could be at a tick, some are near one by chance: on a busy machine, all that are seen."""
    chance = 2 * NEAR_TICK * float(np.mean(values > _LATE * usual_ns))
    return max(0.0, float(np.mean(at_ticks(values.tolist(), tick_hz, usual_ns))) - chance)


def choose(tried: Sequence[Tried]) -> Tried:
    """Of those about as fast as the fastest the steadiest, and the system's own choice unless one is clearly better."""
    fastest = min(one.median_ns for one in tried)
    fit = [one for one in tried if one.median_ns <= _SLOWER * fastest]
    steadiest = min(fit, key=lambda one: one.unsteadiness)
    for one in fit:
        if one.processors is None and steadiest.unsteadiness >= _CLEARLY_STEADIER * one.unsteadiness:
            return one
    return steadiest
