"""The ranker contract, and rankers that know nothing, for comparison and examples."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tpugraphs.data.packed import PackedGraph
from tpugraphs.types import Array

Ranker = Callable[[PackedGraph, NDArray[np.intp]], NDArray[np.float64]]
"""Scores for these rows of the graph's configs, lower is faster; a config's score depends on no other config asked."""

_ROWS_AT_ONCE = 256


def random_scores(graph: PackedGraph, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """A number per config by chance, the same at every call."""
    seed = int.from_bytes(hashlib.sha256(graph.name.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).random(graph.summary.configs)[rows]


def feature_sum(graph: PackedGraph, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """The sum of a config's features."""
    parts = np.array_split(rows, max(1, len(rows) // _ROWS_AT_ONCE))
    return np.concatenate([_row_sums(graph.config_features(part)) for part in parts])


def _row_sums(features: Array) -> NDArray[np.float64]:
    return features.sum(axis=tuple(range(1, features.ndim)), dtype=np.float64)


TRIVIAL_RANKERS: Mapping[str, Ranker] = MappingProxyType({"random": random_scores, "feature-sum": feature_sum})
