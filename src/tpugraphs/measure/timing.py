"""Paired timing: samples of candidates and baseline taken in turns, in random order; the median of their ratios."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

WARM_CALLS = 1
"""Calls before each sample that are not counted: whatever ran before has the caches."""
_RESAMPLES = 4000
_CONFIDENCE = 0.95
NOISE_QUANTILE = 0.95

Samples = dict[str, list[float]]
Sampler = Callable[[int], float]
"""Makes this many calls and says how many ns they took."""


def calls_for(sampler: Sampler, sample_s: float) -> int:
    """How many calls make a sample of about this length."""
    sampler(1)
    return max(1, round(sample_s * 1e9 / max(1.0, sampler(1))))


def interleaved(samplers: Mapping[str, Sampler], *, rounds: int, sample_s: float, seed: int) -> Samples:
    """ns per call, `rounds` samples of each, every round in an order of its own."""
    calls = {name: calls_for(sampler, sample_s) for name, sampler in samplers.items()}
    order, rng = list(samplers), np.random.default_rng(seed)
    samples: Samples = {name: [] for name in samplers}
    for _ in range(rounds):
        rng.shuffle(order)
        for name in order:
            samplers[name](WARM_CALLS)
            samples[name].append(round(samplers[name](calls[name]) / calls[name], 1))
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


def floor_of(ratios: Sequence[float]) -> float | None:
    """The noise floor: the 95th percentile of |log ratio| between repeats of one config; None of fewer than two."""
    logs = np.log(np.asarray(ratios, np.float64))
    if len(logs) < 2:
        return None
    first, second = np.triu_indices(len(logs), 1)
    return float(np.quantile(np.abs(logs[first] - logs[second]), NOISE_QUANTILE))
