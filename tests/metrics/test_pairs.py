"""Pairs are counted as by looking at every pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpugraphs.metrics.pairs import PairCounts, count_below, count_pairs

ROWS = st.lists(st.tuples(st.integers(1, 30), st.integers(-5, 5)), min_size=1, max_size=60)


def brute_force(runtime: np.ndarray, scores: np.ndarray, noise_floor: float) -> PairCounts:
    counts = [0, 0, 0]
    for i in range(len(runtime)):
        for j in range(len(runtime)):
            if runtime[i] * np.exp(noise_floor) < runtime[j]:
                counts[0 if scores[i] < scores[j] else 1 if scores[i] > scores[j] else 2] += 1
    return PairCounts(*counts)


@given(ROWS, st.sampled_from([0.0, 0.01, 0.2, 1.0, 5.0]))
def test_counts_are_those_of_brute_force(rows: list[tuple[int, int]], noise_floor: float) -> None:
    runtime, scores = np.array(rows, dtype=float).T
    assert count_pairs(runtime, scores, noise_floor=noise_floor) == brute_force(runtime, scores, noise_floor)


@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=40), st.floats(0, 0.5), st.randoms())
def test_times_at_the_edge_of_the_floor_count_as_brute_force_has_them(
    times: list[float], noise_floor: float, random: object
) -> None:
    runtime = np.array(times)
    runtime[1] = runtime[0] * np.exp(noise_floor)  # not beyond the floor: the ratio is just met
    scores = np.random.default_rng(len(times)).normal(size=len(times))
    assert count_pairs(runtime, scores, noise_floor=noise_floor) == brute_force(runtime, scores, noise_floor)


def test_being_within_noise_is_not_transitive() -> None:
    """1 ~ 2 and 2 ~ 3 within a factor of 2.5, but 1 and 3 differ: one comparable pair."""
    runtime, scores = np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0])
    assert count_pairs(runtime, scores, noise_floor=float(np.log(2.5))) == PairCounts(1, 0, 0)


@given(ROWS)
def test_a_better_ranking_never_counts_less(rows: list[tuple[int, int]]) -> None:
    runtime, scores = np.array(rows, dtype=float).T
    perfect, given_one = count_pairs(runtime, runtime), count_pairs(runtime, scores)
    assert perfect.concordant == perfect.comparable == given_one.comparable
    assert given_one.concordant <= perfect.concordant


@given(
    st.lists(st.integers(0, 40), max_size=50),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 41)), max_size=20),
)
def test_count_below_is_what_it_says(values: list[int], queries: list[tuple[int, int]]) -> None:
    queries = [(min(prefix, len(values)), bound) for prefix, bound in queries]
    prefix, bound = (np.array([query[i] for query in queries], dtype=np.intp) for i in (0, 1))
    expected = [sum(value < bound for value in values[:prefix]) for prefix, bound in queries]
    assert count_below(np.array(values, dtype=np.intp), prefix, bound).tolist() == expected


def test_shares_without_pairs_are_nan() -> None:
    assert np.isnan(PairCounts(0, 0, 0).accuracy)
    assert np.isnan(PairCounts(0, 0, 0).tau)
    assert PairCounts(3, 1, 0).accuracy == 0.75
    assert PairCounts(3, 1, 0).tau == pytest.approx(0.5)
