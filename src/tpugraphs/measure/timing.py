"""Paired timing: samples of candidates and baseline taken in turns, in random order; the median of their ratios."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

WARM_CALLS = 1
"""Calls before each sample that are not counted: whatever ran before has the caches."""
_RESAMPLES = 4000
_CONFIDENCE = 0.95

Samples = dict[str, list[float]]


def calls_for(run: Callable[[], object], sample_s: float) -> int:
    """How many calls make a sample of about this length."""
    run()
    start = time.perf_counter()
    run()
    return max(1, round(sample_s / max(1e-9, time.perf_counter() - start)))


def interleaved(runs: Mapping[str, Callable[[], object]], *, rounds: int, sample_s: float, seed: int) -> Samples:
    """ns per call, `rounds` samples of each, every round in an order of its own."""
    calls = {name: calls_for(run, sample_s) for name, run in runs.items()}
    order, rng = list(runs), np.random.default_rng(seed)
    samples: Samples = {name: [] for name in runs}
    for _ in range(rounds):
        rng.shuffle(order)
        for name in order:
            for _ in range(WARM_CALLS):
                runs[name]()
            start = time.perf_counter_ns()
            for _ in range(calls[name]):
                runs[name]()
            samples[name].append((time.perf_counter_ns() - start) / calls[name])
    return samples


@dataclass(frozen=True, slots=True)
class Ratio:
    """Run time over the baseline's, with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def speedup(self) -> float:
        return 1 / self.value


def paired_ratio(processes: Sequence[tuple[ArrayLike, ArrayLike]], seed: int = 0) -> Ratio:
    """The ratio from (candidate, baseline) samples of one or more processes.

    In a process it is the median of the rounds' ratios, over processes the median of those. The interval comes from
    drawing processes and, in each, rounds with replacement: a mode that a process is stuck in widens it.
    """
    ratios = [np.asarray(candidate) / np.asarray(baseline) for candidate, baseline in processes]
    value = float(np.median([np.median(rounds) for rounds in ratios]))
    rng = np.random.default_rng(seed)
    drawn = np.stack([np.median(rng.choice(rounds, (_RESAMPLES, len(rounds))), axis=1) for rounds in ratios])
    which = rng.integers(0, len(ratios), (len(ratios), _RESAMPLES))
    medians = np.median(np.take_along_axis(drawn, which, axis=0), axis=0)
    low, high = np.quantile(medians, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    return Ratio(value, float(low), float(high))
