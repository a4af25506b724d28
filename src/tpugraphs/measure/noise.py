"""What a self-test saw of a machine's noise, and what follows: spread, modes, and which differences can be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpugraphs.measure.pinning import Tried

SAMPLES = (5, 10, 20, 40)
"""Numbers of samples to say of what they tell apart."""
_DRAWS = 2000
_MODE_GAP, _MODE_ERRORS = 0.005, 5.0
"""Processes whose ratios are apart by this much, and by this many standard errors, are in different modes."""


@dataclass(frozen=True, slots=True)
class Process:
    """What one worker process saw; ratios are to the default."""

    default_ns: float
    again: tuple[float, ...]
    """A second build of the default, pair by pair: the truth is 1."""
    other: tuple[float, ...]
    """Another program, pair by pair; none where the target has no options."""
    paired: tuple[float, ...]
    """Of the second build, the median of each turn's pairs."""
    naive: tuple[float, ...]
    """Of the second build in each turn, as many a script does it: minima of all samples of one, then of the other."""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What was seen."""

    program: str
    target: str
    seconds: float
    rounds: int
    """Samples of each in a turn."""
    steal_share: float | None
    tick_hz: int | None
    pinnings: tuple[Tried, ...]
    pinning: Tried
    """Where the main thread was while the processes measured."""
    processes: tuple[Process, ...]

    @property
    def default_ns(self) -> float:
        return median(process.default_ns for process in self.processes)

    @property
    def spread(self) -> float:
        """The standard deviation of a pair's ratio within a process, as if outliers were none."""
        return median(_deviation(np.log(process.again)) for process in self.processes)

    @property
    def paired_error(self) -> float:
        """19 of 20 paired medians are closer to the truth than this."""
        return _error(np.log([ratio for process in self.processes for ratio in process.paired]))

    @property
    def naive_error(self) -> float:
        """Likewise, of the minima of blocks."""
        return _error(np.log([ratio for process in self.processes for ratio in process.naive]))

    @property
    def again_modes(self) -> list[list[float]]:
        """The processes' ratios of the second build, grouped into modes."""
        return modes([process.again for process in self.processes])

    @property
    def other_modes(self) -> list[list[float]]:
        return modes([process.other for process in self.processes if process.other])

    def tells_apart(self, samples: int, processes: int = 1, seed: int = 0) -> float:
        """How far apart two configs must be, as a share, for this many samples of each to tell in 19 of 20 cases."""
        again = [np.log(process.again) for process in self.processes]
        other = [np.log(process.other) for process in self.processes if process.other]
        found = [_resolution(again, 0.0, samples, processes, seed)]
        if other:
            found.append(_resolution(other, median(map(np.median, other)), samples, processes, seed))
        return max(found)

    def as_dict(self) -> dict[str, Any]:
        """With what is derived, for JSON."""
        derived = ("default_ns", "spread", "paired_error", "naive_error", "again_modes", "other_modes")
        apart = {str(samples): self.tells_apart(samples) for samples in SAMPLES}
        return asdict(self) | {name: getattr(self, name) for name in derived} | {"tells_apart": apart}


def _deviation(logs: NDArray[np.float64]) -> float:
    """A standard deviation that outliers do not enter."""
    return 1.4826 * float(np.median(np.abs(logs - np.median(logs))))


def _error(logs: NDArray[np.float64]) -> float:
    return float(np.expm1(np.quantile(np.abs(logs), 0.95)))


def _resolution(
    by_process: Sequence[NDArray[np.float64]], truth: float, samples: int, processes: int, seed: int
) -> float:
    """How far from the truth medians come, drawing processes and, in each, pairs."""
    rng = np.random.default_rng(seed)
    counts = np.array([len(logs) for logs in by_process])
    which = rng.integers(0, len(counts), (processes, _DRAWS, 1))
    pairs = (rng.random((processes, _DRAWS, samples)) * counts[which]).astype(int)
    drawn = np.concatenate(by_process)[(np.cumsum(counts) - counts)[which] + pairs]
    return _error(np.median(np.median(drawn, axis=2), axis=0) - truth)


def modes(by_process: Sequence[Sequence[float]]) -> list[list[float]]:
    """Groups of the processes' medians, apart by more than noise."""
    if not by_process:
        return []
    logs = [np.log(ratios) for ratios in by_process]
    errors = [1.25 * _deviation(values) / sqrt(len(values)) for values in logs]
    gap = max(_MODE_GAP, _MODE_ERRORS * median(errors))
    middles = sorted(float(np.median(values)) for values in logs)
    groups = [[middles[0]]]
    for middle in middles[1:]:
        if middle - groups[-1][-1] > gap:
            groups.append([])
        groups[-1].append(middle)
    return [np.exp(group).tolist() for group in groups]
