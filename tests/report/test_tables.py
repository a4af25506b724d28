"""Tables say what is so, in words and units."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from rich.console import Console, RenderableType

import tpugraphs as tg
from tests.kit.files import LAYOUT_NAME, TILE_NAME
from tpugraphs.model import TRIVIAL_RANKERS
from tpugraphs.report import tables


def text(what: RenderableType, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(what)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def evaluated(root: Path, name: str, split: str) -> tg.Evaluation:
    ds, rank = tg.load(name, split, root=root), TRIVIAL_RANKERS["feature-sum"]
    scores = {graph.name: rank(graph, np.arange(graph.summary.configs)) for graph in ds}
    return tg.Evaluator(name, split=split, root=root).evaluate(scores)


def test_an_evaluation_shows_means_and_intervals(root: Path) -> None:
    result = evaluated(root, LAYOUT_NAME, "train")
    shown = text(tables.evaluation(result))
    for words in ("top-1 ", "top-10 ", "top-100 ", "OPA", "tau-b", "noise", "tau beyond noise", "95 % interval"):
        assert words in shown
    assert f"{result.summary['tau-b'].value:.4f}" in shown


def test_an_evaluation_names_what_it_could_not_rank(release_root: Path) -> None:
    shown = text(tables.evaluation(evaluated(release_root, "layout:xla:random", "train")))
    assert "in no mean: openai_v0_rnn_optimized (one unique config)" in shown
    assert "no graph could be ranked" in shown


def test_an_evaluation_without_noise_floors_says_so(root: Path) -> None:
    assert "beyond noise: unknown, no graph has repeated configs" in text(
        tables.evaluation(evaluated(root, TILE_NAME, "train"))
    )


def test_missing_graphs_and_constant_scores_are_named(root: Path) -> None:
    name, *others = tg.load(LAYOUT_NAME, "train", root=root).names
    evaluator = tg.Evaluator(LAYOUT_NAME, split="train", root=root)
    shown = text(tables.evaluation(evaluator.evaluate({name: np.zeros(len(evaluator.rows(name)))})))
    assert f"all scores equal, counted as tau-b 0: {name}" in shown
    assert f"not scored: 1 of the split's graphs ({others[0]})" in shown


def test_a_graph_at_a_glance(release_root: Path) -> None:
    ds = tg.load("layout:xla:default", "valid", root=release_root)
    shown = text(tables.graph(ds[0], ds.name))
    for words in (
        "unet_3d.4x4.bf16 · layout:xla:default",
        "3,163, 5,112",
        "62 (convolution 53, reshape 9)",
        "1,965, 1,469 unique (25.2% repeated or alike)",
        "910.853 ms to 925.675 ms, worst / best 1.0163",
        "0.0050 % (95 % of 1,770 pairs of repeats are closer)",
        "tallest bar 1,675",
        "8.8 MB",
    ):
        assert words in shown


def test_a_graph_without_labels(release_root: Path) -> None:
    ds = tg.load("tile:xla", "test", root=release_root)
    assert "withheld (zeros)" in text(tables.graph(ds[0], ds.name))


def test_a_collection_at_a_glance(root: Path) -> None:
    ds = tg.load(LAYOUT_NAME, root=root)
    shown = text(tables.collection(ds))
    assert "synthetic, not measured" in shown
    assert "4 graphs · nodes 400 to 400" in shown
    assert all(name in shown for name in ds.names)


def test_long_tables_are_cut_unless_all_is_asked_for(root: Path, monkeypatch: object) -> None:
    ds = tg.load(LAYOUT_NAME, root=root)
    monkeypatch.setattr(tables, "_MOST_ROWS", 2)  # pyright: ignore[reportAttributeAccessIssue]
    assert "… and 2 more (--all lists them)" in text(tables.collection(ds))
    assert "more" not in text(tables.collection(ds, every=True))


def test_tables_fit_a_terminal_of_80_columns(root: Path) -> None:
    result, ds = evaluated(root, LAYOUT_NAME, "train"), tg.load(LAYOUT_NAME, root=root)
    for what in (tables.evaluation(result), tables.collection(ds), tables.graph(ds[0], ds.name)):
        shown = text(what, width=80)
        assert max(map(len, shown.splitlines())) <= 80
        assert "…" not in shown, "a figure was cut short"


def test_histograms() -> None:
    assert tables.runtime_histogram(np.array([5.0, 5.0])) == "all 2 the same"
    bars = tables.runtime_histogram(np.array([1.0] * 9 + [2.0] * 3))
    assert bars.startswith("▕█")
    assert "▃▏ tallest bar 9" in bars
