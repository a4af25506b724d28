"""Every ranker gives a finite score per row that depends on no other row asked about."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tpugraphs as tg
from tests.kit.files import LAYOUT_NAME, TILE_NAME
from tpugraphs.model import TRIVIAL_RANKERS


@pytest.mark.parametrize("ranker", TRIVIAL_RANKERS)
@pytest.mark.parametrize("name", [LAYOUT_NAME, TILE_NAME])
def test_scores_belong_to_configs_not_to_batches(root: Path, ranker: str, name: str) -> None:
    graph = tg.load(name, root=root)[0]
    rank, rows = TRIVIAL_RANKERS[ranker], np.arange(graph.summary.configs)
    scores = rank(graph, rows)
    assert scores.shape == rows.shape
    assert np.isfinite(scores).all()
    some = np.array([5, 2, 2, 7])
    assert (rank(graph, some) == scores[some]).all()
    assert rank(graph, rows[:0]).shape == (0,)


def test_feature_sum_is_the_sum_of_the_features(root: Path) -> None:
    graph = tg.load(LAYOUT_NAME, root=root)[1]
    rows = np.arange(graph.summary.configs)
    assert np.allclose(TRIVIAL_RANKERS["feature-sum"](graph, rows), graph.node_config_feat.sum(axis=(1, 2)))
