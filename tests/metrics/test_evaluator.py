"""Evaluation: the release's check values, official rows, undefined graphs, intervals, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tpugraphs as tg
from tests.kit.files import LAYOUT_NAME, TILE_NAME, layout_arrays, packed, tile_arrays
from tpugraphs.data import import_official
from tpugraphs.errors import BadFile, BadRequest
from tpugraphs.metrics.evaluator import _estimate
from tpugraphs.model import TRIVIAL_RANKERS

feature_sum = TRIVIAL_RANKERS["feature-sum"]


@pytest.mark.parametrize(
    ("name", "tau", "opa", "top"),
    [
        ("layout:xla:default", "0.036348", "0.248318", ["5.447e-05", "3.01e-05", "1.384e-05"]),
        ("layout:xla:random", "0.098273", "0.284694", ["0.01619", "2.102e-05", "0"]),
    ],
)
def test_the_releases_check_values(
    release: Path, release_root: Path, name: str, tau: str, opa: str, top: list[str]
) -> None:
    """unet_3d on the official rows, scored by the sum of its config features."""
    rows = release / "eval_indices" / f"{name.removeprefix('layout:').replace(':', '_')}.json"
    evaluator = tg.Evaluator(name, root=release_root, rows=rows)
    graph = evaluator.collection["unet_3d.4x4.bf16"]
    listed = evaluator.rows(graph.name)
    assert (len(listed), len(set(listed))) == (1000, 481 if name.endswith("random") else 1000)
    judged = evaluator.evaluate({graph.name: feature_sum(graph, listed)}).graphs[0]
    assert (f"{judged.tau:.6f}", f"{judged.opa:.6f}") == (tau, opa)
    assert [f"{error:.4g}" for error in judged.top_k.values()] == top


def test_official_rows_are_found_under_the_root(release: Path, tmp_path: Path) -> None:
    import_official(release / "npz/layout/xla/default/valid", tmp_path)
    with pytest.raises(BadRequest, match=r"eval_indices/xla_default.json: no such file"):
        tg.Evaluator("layout:xla:default", root=tmp_path, rows="official")
    (tmp_path / "eval_indices").symlink_to(release / "eval_indices")
    evaluator = tg.Evaluator("layout:xla:default", root=tmp_path, rows="official")
    assert len(evaluator.rows("unet_3d.4x4.bf16")) == 1000


def scores_of(root: Path, name: str = LAYOUT_NAME) -> dict[str, np.ndarray]:
    ds = tg.load(name, "train", root=root)
    return {graph.name: feature_sum(graph, np.arange(graph.summary.configs)) for graph in ds}


def test_a_perfect_ranking(root: Path) -> None:
    for name, ks in ((LAYOUT_NAME, ["top-1", "top-10", "top-100"]), (TILE_NAME, ["top-1", "top-5", "top-10"])):
        ds = tg.load(name, "train", root=root)
        result = tg.Evaluator(name, split="train", root=root).evaluate({g.name: g.relative_runtime for g in ds})
        assert list(result.summary)[:3] == ks
        for metric, estimate in result.summary.items():
            assert estimate.value == pytest.approx(0 if metric.startswith("top") else 1)


def test_a_reversed_ranking(root: Path) -> None:
    ds = tg.load(LAYOUT_NAME, "train", root=root)
    result = tg.Evaluator(LAYOUT_NAME, split="train", root=root).evaluate({g.name: -g.relative_runtime for g in ds})
    assert result.summary["OPA"].value == 0
    assert result.summary["tau-b"].value == pytest.approx(-1)
    assert result.summary["tau beyond noise"].value == -1


def test_summary_means(root: Path) -> None:
    result = tg.Evaluator(LAYOUT_NAME, split="train", root=root).evaluate(scores_of(root))
    graphs = result.graphs
    assert result.summary["tau-b"].value == pytest.approx(np.mean([graph.tau for graph in graphs]))
    assert result.summary["top-10"].value == pytest.approx(np.mean([graph.top_k[10] for graph in graphs]))
    ordered, pairs = (sum(getattr(graph.pairs, key) for graph in graphs) for key in ("concordant", "comparable"))
    assert result.summary["OPA"].value == pytest.approx(ordered / pairs)
    assert result.summary["OPA beyond noise"].value > result.summary["OPA"].value


def test_intervals_come_from_drawing_graphs() -> None:
    """For many graphs the interval is that of the mean; for one there is none."""
    values = np.random.default_rng(0).normal(0.5, 0.1, 400).tolist()
    estimate = _estimate(values, [1] * 400)
    assert estimate.low == pytest.approx(estimate.value - 1.96 * 0.1 / 20, abs=0.002)
    assert estimate.high == pytest.approx(estimate.value + 1.96 * 0.1 / 20, abs=0.002)
    assert _estimate(values, [1] * 400) == estimate
    assert _estimate([0.5], [1]).low is None


def test_graphs_of_one_config_are_named_and_in_no_mean(release_root: Path) -> None:
    evaluator = tg.Evaluator("layout:xla:random", split="train", root=release_root)
    result = evaluator.evaluate({"openai_v0_rnn_optimized": np.arange(20)})
    assert result.undefined == {"openai_v0_rnn_optimized": "one unique config"}
    assert result.summary == {}
    assert "openai_v0_rnn_optimized (one unique config)" in str(result)


def test_a_graph_whose_times_are_all_equal_is_undefined(tmp_path: Path) -> None:
    arrays = layout_arrays()
    arrays["config_runtime"][:] = 5
    packed(tmp_path, arrays)
    result = tg.Evaluator(LAYOUT_NAME, root=tmp_path / "packs").evaluate({"graph": np.arange(30)})
    assert result.undefined == {"graph": "all run times are equal"}


def test_constant_scores_order_nothing(root: Path) -> None:
    """scipy would say nan, which would spoil the mean; no order is worth tau 0."""
    scores = scores_of(root)
    first = next(iter(scores))
    result = tg.Evaluator(LAYOUT_NAME, split="train", root=root).evaluate({**scores, first: 0 * scores[first]})
    judged = {graph.graph: graph for graph in result.graphs}[first]
    assert (judged.tau, judged.opa, judged.constant_scores) == (0, 0, True)
    assert np.isfinite(result.summary["tau-b"].value)


def test_tiles_are_judged_relative_to_their_normalizer(tmp_path: Path) -> None:
    arrays = tile_arrays()
    arrays["config_runtime_normalizers"] = np.arange(1, 1 + len(arrays["config_runtime"])) * 1000
    packed(tmp_path, arrays, TILE_NAME)
    relative = arrays["config_runtime"] / arrays["config_runtime_normalizers"]
    evaluator = tg.Evaluator(TILE_NAME, root=tmp_path / "packs")
    assert evaluator.evaluate({"graph": relative}).graphs[0].tau == pytest.approx(1)
    assert evaluator.evaluate({"graph": arrays["config_runtime"]}).graphs[0].tau < 1


def test_the_noise_floor_can_be_given(root: Path) -> None:
    scores = scores_of(root, TILE_NAME)
    own = tg.Evaluator(TILE_NAME, split="train", root=root).evaluate(scores)
    given = tg.Evaluator(TILE_NAME, split="train", root=root, noise_floor=0.05).evaluate(scores)
    assert "OPA beyond noise" not in own.summary
    assert given.graphs[0].noise_floor == 0.05
    assert given.summary["OPA beyond noise"].graphs == 2


def test_unscored_graphs_are_named(root: Path) -> None:
    scores = scores_of(root)
    left_out = scores.popitem()[0]
    assert tg.Evaluator(LAYOUT_NAME, split="train", root=root).evaluate(scores).missing == (left_out,)


def test_an_evaluation_can_be_saved(root: Path, tmp_path: Path) -> None:
    result = tg.Evaluator(LAYOUT_NAME, split="train", root=root).evaluate(scores_of(root))
    result.save(tmp_path / "result.json")
    saved = json.loads((tmp_path / "result.json").read_text())
    assert saved["schema_version"] == 1
    assert saved["summary"]["tau-b"]["value"] == result.summary["tau-b"].value
    assert saved["graphs"][0]["pairs"]["concordant"] == result.graphs[0].pairs.concordant


def test_the_evaluator_says_what_it_expects(root: Path) -> None:
    ds = tg.load(LAYOUT_NAME, "train", root=root)
    expected = tg.Evaluator(LAYOUT_NAME, split="train", root=root).expected_input
    for row in ds.table():
        assert f"'{row.name}': {row.configs} scores" in expected


def test_what_it_refuses(root: Path) -> None:
    evaluator, scores = tg.Evaluator(LAYOUT_NAME, split="train", root=root), scores_of(root)
    name, good = next(iter(scores.items()))
    for bad, says in (
        ({}, "no scores were given; expected a dict with a list of scores per graph"),
        ({"nobody": good}, "nobody: scored, but not a graph of layout:synthetic:random"),
        ({name: good[:-1]}, f"{name}: expected {len(good)} scores .all configs., found"),
        ({name: np.where(good == good[0], np.nan, good)}, f"{name}: expected finite scores, found nan"),
    ):
        with pytest.raises(BadRequest, match=says):
            evaluator.evaluate(bad)


def test_withheld_labels_cannot_be_evaluated(root: Path) -> None:
    evaluator = tg.Evaluator(LAYOUT_NAME, split="test", root=root)
    name = evaluator.collection.names[0]
    with pytest.raises(BadRequest, match="its run times are withheld"):
        evaluator.evaluate({name: np.zeros(len(evaluator.rows(name)))})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1]", "expected an object of lists by graph, found list"),
        ('{"graph": []}', "graph: expected a list of row numbers"),
        ('{"graph": [1.5]}', "graph: expected a list of row numbers"),
        ('{"graph": [true]}', "graph: expected a list of row numbers"),
        ('{"graph": [-1]}', "graph: expected a list of row numbers"),
        ("{", "expected well-formed JSON"),
        ("[" * 100_000, "expected well-formed JSON"),
    ],
)
def test_broken_row_files(root: Path, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(BadFile, match=says):
        tg.Evaluator(LAYOUT_NAME, root=root, rows=path)


def test_rows_must_exist(root: Path, tmp_path: Path) -> None:
    name = tg.load(LAYOUT_NAME, "valid", root=root).names[0]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({name: [0, 10**6]}))
    with pytest.raises(BadRequest, match="row 1000000 is listed for evaluation"):
        tg.Evaluator(LAYOUT_NAME, root=root, rows=path).rows(name)
    path.write_text('{"other": [0]}')
    with pytest.raises(BadRequest, match="do not list it; they list other"):
        tg.Evaluator(LAYOUT_NAME, root=root, rows=path).rows(name)
    with pytest.raises(BadRequest, match="lists evaluation rows for its layout collections only"):
        tg.Evaluator(TILE_NAME, root=root, rows="official")
