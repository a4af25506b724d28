"""Synthetic collections: valid official files with a known cost, the same for the same seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tpugraphs.data.synthetic import layout_graph, tile_graph, write_synthetic
from tpugraphs.errors import BadRequest
from tpugraphs.metrics import kendall_tau


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    first = write_synthetic(tmp_path / "a", graphs=3, configs=20)
    second = write_synthetic(tmp_path / "b", graphs=3, configs=20)
    other = write_synthetic(tmp_path / "c", graphs=3, configs=20, seed=1)
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert [path.read_bytes() for path in first] != [path.read_bytes() for path in other]


@pytest.mark.parametrize("make", [layout_graph, tile_graph])
def test_run_times_are_the_known_cost_with_noise(make: object) -> None:
    graph = layout_graph(3) if make is layout_graph else tile_graph(3)
    assert kendall_tau(graph.arrays["config_runtime"], graph.true_ns) > 0.95
    ratio = np.log(graph.arrays["config_runtime"] / graph.true_ns)
    assert ratio.std() == pytest.approx(0.002, rel=0.3)


def test_a_layout_graph_holds_repeats_of_its_default() -> None:
    features = layout_graph(0).arrays["node_config_feat"]
    assert (features == -1).all(axis=(1, 2)).sum() >= 40


def test_tiles_are_not_repeated_and_row_0_is_the_default() -> None:
    arrays = tile_graph(0).arrays
    assert len(np.unique(arrays["config_feat"], axis=0)) == len(arrays["config_feat"])
    assert (arrays["config_runtime_normalizers"] == arrays["config_runtime"][0]).all()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    write_synthetic(tmp_path, graphs=3, configs=20)
    with pytest.raises(BadRequest, match="already there; choose an empty folder"):
        write_synthetic(tmp_path, graphs=3, configs=20)


def test_too_few_graphs_for_three_splits(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="expected at least 3 graphs and 2 configs, got 2 and 20"):
        write_synthetic(tmp_path, graphs=2, configs=20)
