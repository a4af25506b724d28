"""What a graph's configs and run times are worth: duplicates, spread, and the noise floor."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from tpugraphs.measure.timing import NOISE_QUANTILE
from tpugraphs.types import Array

_LONG_ROW = 64
"""Longer rows are told apart by their digests, so that sorting them needs little memory."""
MOST_REPEATS = 64
"""Of a config measured more often, this many repeats are compared (spread evenly over the file), so that one
config does not speak for all and the count of pairs stays near the count of rows."""


def config_identity(configs: Array) -> NDArray[np.intp]:
    """(c,) a number per config, equal where its whole row (of codes or of features) is equal."""
    rows = np.ascontiguousarray(configs).reshape(len(configs), -1)
    if rows.shape[1] == 0:
        return np.zeros(len(rows), dtype=np.intp)
    items = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).reshape(-1)
    if items.dtype.itemsize > _LONG_ROW:
        items = np.array([hashlib.blake2b(item.tobytes(), digest_size=16).digest() for item in items], dtype="V16")
    return np.unique(items, return_inverse=True)[1].reshape(-1)


def repeat_log_ratios(identity: NDArray[np.intp], runtime: NDArray[np.float64]) -> NDArray[np.float64]:
    """|log ratio| of every pair of repeats of one config."""
    order = np.argsort(identity, kind="stable")
    order = order[_thinned(identity[order])]
    group, logs = identity[order], np.log(runtime[order])
    ratios = []
    for lag in range(1, MOST_REPEATS):
        same = group[lag:] == group[:-lag]
        if not same.any():
            break
        ratios.append(np.abs(logs[lag:] - logs[:-lag])[same])
    return np.concatenate(ratios) if ratios else np.empty(0)


def noise_floor(identity: NDArray[np.intp], runtime: NDArray[np.float64]) -> tuple[float | None, int]:
    """The 95th percentile of |log ratio| between repeats of one config, and how many pairs that rests on."""
    ratios = repeat_log_ratios(identity, runtime)
    if not len(ratios):
        return None, 0
    return float(np.quantile(ratios, NOISE_QUANTILE)), len(ratios)


def _thinned(group: NDArray[np.intp]) -> NDArray[np.intp]:
    """Positions to keep of a sorted array, so that no run of equal values is longer than MOST_REPEATS."""
    starts = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
    sizes = np.diff(np.concatenate([starts, [len(group)]]))
    if sizes.max(initial=0) <= MOST_REPEATS:
        return np.arange(len(group))
    within = np.arange(len(group)) - np.repeat(starts, sizes)
    size = np.repeat(sizes, sizes)
    kept = np.minimum(size, MOST_REPEATS)
    turn = within * kept // size
    before = (within - 1) * kept // size
    return np.flatnonzero((within == 0) | (turn != before))
