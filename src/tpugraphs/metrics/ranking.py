"""The official definitions: top-K error, ordered pair accuracy, Kendall's tau-b; and their noise-aware forms."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tpugraphs.errors import BadRequest
from tpugraphs.metrics.pairs import PairCounts, count_pairs


def top_k_error(runtime: ArrayLike, scores: ArrayLike, k: int) -> float:
    """How much slower the best of the k configs scored lowest is than the best of all: 0.02 is 2 % slower."""
    times, values = _checked(runtime, scores)
    chosen = np.argsort(values, kind="stable")[:k]
    return float(times[chosen].min() / times.min() - 1)


def opa(runtime: ArrayLike, scores: ArrayLike) -> float:
    """Ordered pair accuracy: of the pairs with unequal run times, the share whose scores have the same strict order."""
    return concordance(runtime, scores)


def concordance(runtime: ArrayLike, scores: ArrayLike, *, noise_floor: float = 0.0) -> float:
    """OPA over the pairs whose run times differ by more than the noise floor (a log ratio); nan without such pairs."""
    return count_pairs(*_checked(runtime, scores), noise_floor=noise_floor).accuracy


def kendall_tau(runtime: ArrayLike, scores: ArrayLike) -> float:
    """Kendall's tau-b, which corrects for ties on either side; nan where one side is constant."""
    times, values = _checked(runtime, scores)
    return tau_b(count_pairs(times, values), values)


def tau_b(pairs: PairCounts, scores: NDArray[np.float64]) -> float:
    """Tau-b from the pair counts at floor 0."""
    sizes = np.unique(scores, return_counts=True)[1].astype(object)  # whole numbers of any size
    different_scores = len(scores) * (len(scores) - 1) // 2 - int((sizes * (sizes - 1) // 2).sum())
    scale = math.sqrt(pairs.comparable) * math.sqrt(different_scores)
    return (pairs.concordant - pairs.discordant) / scale if scale else math.nan


def noise_aware_tau(runtime: ArrayLike, scores: ArrayLike, *, noise_floor: float) -> float:
    """Concordant minus discordant pairs, over all pairs whose run times differ by more than the noise floor."""
    return count_pairs(*_checked(runtime, scores), noise_floor=noise_floor).tau


def _checked(runtime: ArrayLike, scores: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    times, values = np.asarray(runtime, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    if times.ndim != 1 or times.shape != values.shape or not len(times):
        raise BadRequest(f"expected a run time and a score per config, got shapes {times.shape} and {values.shape}")
    if not (np.isfinite(times).all() and np.isfinite(values).all()):
        raise BadRequest("expected finite run times and scores, found NaN or infinity")
    return times, values
