"""Duplicates and the noise floor."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tpugraphs as tg
from tpugraphs.data import stats
from tpugraphs.data.synthetic import layout_graph


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 1000)), min_size=1, max_size=60))
def test_repeat_ratios_are_all_pairs_of_one_config(rows: list[tuple[int, int]]) -> None:
    identity, runtime = np.array([row[0] for row in rows]), np.array([float(row[1]) for row in rows])
    expected = sorted(
        abs(math.log(runtime[j]) - math.log(runtime[i]))
        for i, j in itertools.combinations(range(len(rows)), 2)
        if identity[i] == identity[j]
    )
    assert np.allclose(sorted(stats.repeat_log_ratios(identity, runtime)), expected, atol=1e-12)
    floor, pairs = stats.noise_floor(identity, runtime)
    assert pairs == len(expected)
    assert floor == (pytest.approx(np.quantile(expected, 0.95)) if expected else None)


def test_a_config_measured_very_often_does_not_speak_for_all() -> None:
    """10,000 repeats count as 64, spread over the file."""
    identity = np.array([0] * 10_000 + [1, 1])
    runtime = np.exp(np.linspace(0, 1, 10_002))
    ratios = stats.repeat_log_ratios(identity, runtime)
    assert len(ratios) == 64 * 63 // 2 + 1
    assert ratios.max() > 0.95


def test_identity_tells_rows_apart() -> None:
    rows = np.array([[1, 2], [1, 3], [1, 2]], dtype=np.uint8)
    identity = stats.config_identity(rows)
    assert identity[0] == identity[2] != identity[1]
    long_rows = np.zeros((4, 5, 18), dtype=np.float32)
    long_rows[2, 4, 17] = 1
    assert stats.config_identity(long_rows).tolist() in ([0, 0, 1, 0], [1, 1, 0, 1])
    assert stats.config_identity(np.empty((3, 0))).tolist() == [0, 0, 0]


def test_the_noise_floor_is_the_noise_that_was_put_in() -> None:
    """Two times with independent noise 0.002 differ by sqrt(2) as much; 95 % lie within 1.96 of that."""
    arrays = layout_graph(0, configs=5000).arrays
    floor, pairs = stats.noise_floor(stats.config_identity(arrays["node_config_feat"]), arrays["config_runtime"])
    assert pairs > 1000
    assert floor == pytest.approx(1.96 * 2**0.5 * 0.002, rel=0.15)


def test_kernels_that_look_alike_are_no_repeats(release_root: Path) -> None:
    """All 2 rows of this kernel have equal features but are different tiles: no noise floor follows from them."""
    row = tg.load("tile:xla", "train", root=release_root).table()[0]
    assert (row.configs, row.unique_configs, row.noise_floor) == (2, 1, None)


def test_real_noise_floors(release_root: Path) -> None:
    """The release's repeats agree to thousandths of a percent on one graph, hundredths on another."""
    rows = {row.name: row for row in tg.load("layout:xla:random", root=release_root).table()}
    assert rows["unet_3d.4x4.bf16"].noise_floor == pytest.approx(4.0e-5, rel=0.01)
    assert rows["openai_v0_rnn_optimized"].noise_floor == pytest.approx(1.45e-4, rel=0.01)
    assert rows["openai_v0_rnn_optimized"].unique_configs == 1
