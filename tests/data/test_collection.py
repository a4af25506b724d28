"""Collections: lazy, memory-mapped, indexable; half-finished and foreign ones are told off."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tpugraphs as tg
from tests.kit.files import LAYOUT_NAME, TILE_NAME, layout_arrays, packed
from tpugraphs import files
from tpugraphs.data.names import OFFICIAL
from tpugraphs.errors import BadFile, BadRequest


@pytest.fixture
def layouts(root: Path) -> tg.Collection:
    return tg.load(LAYOUT_NAME, root=root)


def test_a_collection_is_a_sequence_of_graphs(layouts: tg.Collection) -> None:
    assert len(layouts) == len(list(layouts)) == 4
    assert layouts[0].name == layouts.names[0]
    assert layouts[-1].name == layouts.names[-1]
    assert layouts["synth_002"].name == "synth_002"
    assert "synth_002" in layouts
    with pytest.raises(IndexError):
        layouts[4]
    with pytest.raises(BadRequest, match="nobody: no such graph in layout:synthetic:random"):
        layouts["nobody"]


def test_splits_part_the_collection(root: Path, layouts: tg.Collection) -> None:
    parts = [tg.load(LAYOUT_NAME, split, root=root) for split in ("train", "valid", "test")]
    assert [len(part) for part in parts] == [2, 1, 1]
    assert sorted(name for part in parts for name in part.names) == sorted(layouts.names)
    assert all(graph.split == part.split for part in parts for graph in part)
    with pytest.raises(BadRequest, match="no such graph in .* \\(valid\\)"):
        parts[1][parts[0].names[0]]


def test_splits_are_text_files_of_names(layouts: tg.Collection) -> None:
    assert (layouts.folder / "splits/test.txt").read_text() == "synth_000\n"


def test_a_layout_graph_has_the_arrays_of_its_file(official: Path, layouts: tg.Collection) -> None:
    for graph in layouts:
        with np.load(official / f"npz/layout/synthetic/random/{graph.split}/{graph.name}.npz") as file:
            for key in file.files:
                assert (getattr(graph, key) == file[key]).all(), key
                assert getattr(graph, key).dtype == file[key].dtype
            rows = [3, 1, 4]
            assert graph.config_features(rows).dtype == np.float32
            assert (graph.config_features(rows) == file["node_config_feat"][rows]).all()
            assert (graph.relative_runtime == file["config_runtime"]).all()
            assert graph.graph.num_nodes == graph.summary.nodes


def test_a_tile_graph_has_the_arrays_of_its_file(official: Path, root: Path) -> None:
    for graph in tg.load(TILE_NAME, root=root):
        with np.load(official / f"npz/tile/synthetic/{graph.split}/{graph.name}.npz") as file:
            for key in file.files:
                assert (getattr(graph, key) == file[key]).all(), key
            assert graph.config_features([2, 0]).shape == (2, 24)
            expected = file["config_runtime"] / file["config_runtime_normalizers"]
            assert (graph.relative_runtime == expected).all()


def test_a_graph_says_what_it_does_not_have(root: Path, layouts: tg.Collection) -> None:
    with pytest.raises(AttributeError, match="is a layout graph and has no config_feat"):
        _ = layouts[0].config_feat
    with pytest.raises(AttributeError, match="is a tile graph and has no node_splits"):
        _ = tg.load(TILE_NAME, root=root)[0].node_splits


def test_the_table_has_a_row_a_graph(layouts: tg.Collection) -> None:
    for row, graph in zip(layouts.table(), layouts, strict=True):
        assert row == graph.summary
        assert (row.nodes, row.edges) == (len(graph.node_opcode), len(graph.edge_index))
        features = graph.node_config_feat.reshape(row.configs, -1)
        assert row.unique_configs == len(np.unique(features, axis=0))
        if row.split == "test":
            assert not row.labelled
            assert (row.best_ns, row.spread, row.noise_floor) == (None, None, None)
        else:
            assert row.best_ns == graph.config_runtime.min()
            assert row.spread == graph.config_runtime.max() / graph.config_runtime.min()


def test_columns_are_named(layouts: tg.Collection) -> None:
    assert len(layouts.columns["node"]) == layouts[0].node_feat.shape[1]
    assert len(layouts.columns["config"]) == layouts[0].config_features([0]).shape[2]


def test_a_synthetic_collection_says_so(layouts: tg.Collection) -> None:
    assert layouts.synthetic
    assert json.loads((layouts.folder / "collection.json").read_text())["origin"].startswith("synthetic")


def test_real_files_load_under_their_official_names(release_root: Path) -> None:
    names = [name for name in OFFICIAL if (release_root / name.replace(":", "-")).is_dir()]
    assert len(names) == 4
    for name in names:
        ds = tg.load(name, root=release_root)
        assert (ds.name, ds.synthetic) == (name, False)
    graph = tg.load("layout:xla:random", "valid", root=release_root)["unet_3d.4x4.bf16"]
    assert graph.node_splits.tolist() == [[0, 449, 453, 467, 471, 498, 502, 3163]]
    row = graph.summary
    assert (row.nodes, row.edges, row.configurable_nodes, row.configs, row.unique_configs) == (3163, 5112, 62, 481, 442)


def test_a_collection_opens_by_its_path(layouts: tg.Collection) -> None:
    assert tg.load(layouts.folder).names == tg.load(str(layouts.folder)).names == layouts.names


def test_the_root_may_come_from_the_environment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPUGRAPHS_ROOT", str(root))
    assert len(tg.load(TILE_NAME)) == 4


def test_a_tilde_is_the_home_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(root.parent))
    assert len(tg.load(TILE_NAME, root=f"~/{root.name}")) == 4


def test_graphs_cross_process_borders(root: Path, layouts: tg.Collection) -> None:
    """By fork, spawn and torch's loader; memory maps are opened anew on the other side, not copied over."""
    assert len(pickle.dumps(layouts[0])) < 2000
    command = [sys.executable, "-m", "tests.kit.crossing", str(root)]
    repository = Path(__file__).parents[2]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=repository)
    assert (ended.stdout, ended.returncode) == ("the same on the other side\n", 0), ended.stderr


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("layout:xla:random", "no such collection; there are layout-synthetic-random, tile-synthetic"),
        ("layout", "is not the name of a collection: expected space:source:search"),
        ("Layout:xla:random", "is not the name of a collection"),
        ("layout:../../etc", "no such collection"),
    ],
)
def test_a_name_that_is_not_there(root: Path, name: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        tg.load(name, root=root)


def test_a_split_that_does_not_exist(root: Path) -> None:
    with pytest.raises(BadRequest, match="'validation' is not a split: expected one of train, valid, test"):
        tg.load(LAYOUT_NAME, "validation", root=root)


def test_a_root_of_official_files_is_recognised(official: Path) -> None:
    with pytest.raises(BadRequest, match="holds official npz files: make packs of them with `tpugraphs import"):
        tg.load(LAYOUT_NAME, root=official)


def damaged(tmp_path: Path) -> Path:
    return packed(tmp_path, layout_arrays()).folder


def test_a_half_finished_import_is_not_taken_for_whole(tmp_path: Path) -> None:
    folder = damaged(tmp_path)
    (folder / "collection.json").unlink()
    with pytest.raises(
        BadFile, match="expected a finished import, found a half-finished one; run the same import again"
    ):
        tg.load(folder)


def test_an_edited_split_is_noticed(tmp_path: Path) -> None:
    folder = damaged(tmp_path)
    (folder / "splits/train.txt").write_text("graph\n")
    with pytest.raises(BadFile, match="splits/train.txt: split: expected the text this collection was made with"):
        tg.load(folder)


def test_an_edited_collection_is_noticed(tmp_path: Path) -> None:
    path = damaged(tmp_path) / "collection.json"
    path.write_text(path.read_text().replace("valid", "train"))
    with pytest.raises(BadFile, match="collection.json: seal: expected the text as it was written, found a change"):
        tg.load(path.parent)


def test_a_newer_schema_is_told_off(tmp_path: Path) -> None:
    folder = damaged(tmp_path)
    value = json.loads((folder / "collection.json").read_text())
    del value["seal"]
    files.write_sealed_json(folder / "collection.json", {**value, "schema_version": 99})
    with pytest.raises(BadFile, match="schema_version: expected 1, found 99; this tpugraphs is too old to read it"):
        tg.load(folder)


def test_a_missing_pack_is_told_off_when_it_is_opened(tmp_path: Path) -> None:
    folder = damaged(tmp_path)
    shutil.rmtree(folder / "graphs/graph")
    with pytest.raises(BadFile, match="manifest.json: pack: expected a file, found nothing"):
        tg.load(folder)[0].config_features([0])
