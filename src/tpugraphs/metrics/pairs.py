"""Counting pairs of configs that a ranking puts in the right order, exactly, in O(n log n)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PairCounts:
    """Pairs whose run times differ by more than the floor, by how the scores order them."""

    concordant: int
    discordant: int
    tied: int
    """Equal scores: the ranking does not say."""

    @property
    def comparable(self) -> int:
        return self.concordant + self.discordant + self.tied

    @property
    def accuracy(self) -> float:
        """Share put in the right strict order; nan without comparable pairs."""
        return self.concordant / self.comparable if self.comparable else math.nan

    @property
    def tau(self) -> float:
        """Concordant minus discordant, over all comparable pairs; nan without any."""
        return (self.concordant - self.discordant) / self.comparable if self.comparable else math.nan


def count_pairs(runtime: NDArray[np.float64], scores: NDArray[np.float64], *, noise_floor: float = 0.0) -> PairCounts:
    """Compares all pairs with runtime_i * exp(noise_floor) < runtime_j; with floor 0 all pairs of unequal run times.

    Being within the floor is not transitive, so ties cannot be merged beforehand. In order of run time, the configs
    that are clearly faster than config j are a prefix; what is counted is, for every j, how many of its prefix
    score lower.
    """
    order = np.argsort(runtime, kind="stable")
    times = runtime[order]
    prefix = np.searchsorted(times * np.exp(noise_floor), times, side="left")  # exp(0) is exactly 1
    ranks = np.unique(scores, return_inverse=True)[1].reshape(-1)[order]
    lower, not_higher = count_below(ranks, np.tile(prefix, 2), np.concatenate([ranks, ranks + 1])).reshape(2, -1)
    concordant, comparable = int(lower.sum()), int(prefix.sum())
    tied = int(not_higher.sum()) - concordant
    return PairCounts(concordant, comparable - concordant - tied, tied)


def count_below(values: NDArray[np.intp], prefix: NDArray[np.intp], bound: NDArray[np.intp]) -> NDArray[np.int64]:
    """For each query, how many of the first `prefix` values are below `bound`; all values are at least 0.

    Walks the bits from the highest down, as in a wavelet matrix: values are parted stably by the bit, zeros first,
    and every query follows the part that its bound's bit points to; where that is the ones, the zeros it leaves
    behind are below the bound.
    """
    count = np.zeros(len(prefix), dtype=np.int64)
    low, high = np.zeros_like(prefix), prefix
    highest = max(int(values.max(initial=0)), int(bound.max(initial=0)))
    for bit in reversed(range(highest.bit_length())):
        ones = (values >> bit) & 1 == 1
        zeros_before = np.concatenate([[0], np.cumsum(~ones)])
        zeros_low, zeros_high = zeros_before[low], zeros_before[high]
        to_ones = (bound >> bit) & 1 == 1
        count += np.where(to_ones, zeros_high - zeros_low, 0)
        zeros = zeros_before[-1]
        low = np.where(to_ones, zeros + low - zeros_low, zeros_low)
        high = np.where(to_ones, zeros + high - zeros_high, zeros_high)
        values = np.concatenate([values[~ones], values[ones]])
    return count
