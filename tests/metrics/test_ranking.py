"""The official definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from tpugraphs.errors import BadRequest
from tpugraphs.metrics import concordance, kendall_tau, noise_aware_tau, opa, top_k_error

ROWS = st.lists(st.tuples(st.integers(1, 12), st.integers(-4, 4)), min_size=2, max_size=80)


@given(ROWS)
def test_kendall_is_scipys_tau_b(rows: list[tuple[int, int]]) -> None:
    runtime, scores = np.array(rows, dtype=float).T
    expected = kendalltau(scores, runtime)[0]
    assert kendall_tau(runtime, scores) == pytest.approx(expected, abs=1e-12, nan_ok=True)


@given(ROWS)
def test_opa_is_the_share_of_ordered_pairs(rows: list[tuple[int, int]]) -> None:
    runtime, scores = np.array(rows, dtype=float).T
    slower = runtime[:, None] > runtime
    if slower.any():
        assert opa(runtime, scores) == ((scores[:, None] > scores) & slower).sum() / slower.sum()
    else:
        assert np.isnan(opa(runtime, scores))


def test_opa_counts_a_tied_prediction_as_wrong_and_leaves_tied_labels_out() -> None:
    assert opa([1, 2, 2], [5, 5, 9]) == 0.5


@given(ROWS)
def test_metrics_depend_on_the_order_of_scores_alone(rows: list[tuple[int, int]]) -> None:
    runtime, scores = np.array(rows, dtype=float).T
    for metric in (kendall_tau, opa, lambda times, values: top_k_error(times, values, 3)):
        assert metric(runtime, scores) == pytest.approx(metric(runtime, np.exp(scores)), nan_ok=True)


def test_top_k_error_is_the_slowdown_of_the_best_picked() -> None:
    runtime, scores = [30, 10, 20, 40], [1, 4, 2, 3]
    assert [top_k_error(runtime, scores, k) for k in (1, 2, 3, 4, 100)] == [2.0, 1.0, 1.0, 0.0, 0.0]


def test_noise_aware_forms_at_floor_0_count_all_pairs() -> None:
    rng = np.random.default_rng(0)
    runtime, scores = rng.permutation(100) + 1, rng.normal(size=100)
    assert concordance(runtime, scores) == opa(runtime, scores)
    assert noise_aware_tau(runtime, scores, noise_floor=0.0) == pytest.approx(kendall_tau(runtime, scores))


def test_noise_does_not_lower_the_noise_aware_forms() -> None:
    """A ranking by the true cost is perfect beyond the noise, though the official tau says otherwise."""
    rng = np.random.default_rng(0)
    true = np.exp(rng.normal(0, 0.01, 2000))
    measured = true * np.exp(rng.uniform(-0.005, 0.005, 2000))
    assert kendall_tau(measured, true) < 0.9
    assert noise_aware_tau(measured, true, noise_floor=0.0101) == 1


@pytest.mark.parametrize(
    ("runtime", "scores", "says"),
    [
        ([1, 2], [1], "got shapes"),
        ([], [], "got shapes"),
        ([[1.0]], [[1.0]], "got shapes"),
        ([1, 2], [1, np.nan], "finite"),
    ],
)
def test_input_that_cannot_be_judged(runtime: list, scores: list, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        kendall_tau(runtime, scores)
