"""Verify finds every changed byte; reading a damaged pack gives data or one sentence, never another exception."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tpugraphs as tg
from tests.kit.files import TILE_NAME, layout_arrays, packed, tile_arrays
from tpugraphs.errors import BadRequest, TpuGraphsError


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with one layout and one tile graph."""
    folder = tmp_path_factory.mktemp("whole")
    packed(folder, layout_arrays())
    packed(folder, tile_arrays(), TILE_NAME)
    return folder / "packs"


def problems(root: Path) -> list[str]:
    return [problem for item in tg.verify_root(root) for problem in item.problems]


def test_whole_roots_have_no_problem(whole: Path, root: Path) -> None:
    assert problems(whole) == problems(root) == []
    assert [item.graphs for item in tg.verify_root(root)] == [4, 4]
    assert [item.collection for item in tg.verify_root(root / "tile-synthetic")] == [TILE_NAME]


def test_real_packs_have_no_problem(release_root: Path) -> None:
    assert problems(release_root) == []


def all_files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and path.name != ".lock")


@given(data=st.data())
def test_any_damage_is_found_by_verify_and_survived_by_readers(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("damaged") / "packs"
    shutil.copytree(whole, root)
    path = data.draw(st.sampled_from(all_files(root)))
    content = bytearray(path.read_bytes())
    kind = data.draw(st.sampled_from(["flip", "cut", "remove", "noise"]))
    if kind == "flip" and content:
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del content[data.draw(st.integers(0, max(0, len(content) - 1))) :]
    elif kind == "noise":
        content[:] = data.draw(st.binary(max_size=60))
    changed = bytes(content) != path.read_bytes()
    path.unlink() if kind == "remove" else path.write_bytes(content)
    if changed or kind == "remove":
        assert problems(root)
    read_everything(root)
    shutil.rmtree(root.parent)


def read_everything(root: Path) -> None:
    for folder in sorted(root.iterdir()):
        try:
            for graph in tg.load(folder):
                graph.config_features([0, -1])
                graph.config_features(dtype=np.float64)
                graph.config_identity  # noqa: B018
                graph.relative_runtime  # noqa: B018
                graph.graph  # noqa: B018
        except TpuGraphsError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("file", ["codes.npy", "runtime.npy", "graph.npz", "configs.npz", "manifest.json"])
def test_a_wrong_checksum_names_the_file(whole: Path, tmp_path: Path, file: str) -> None:
    shutil.copytree(whole, tmp_path / "packs")
    path = tmp_path / "packs/layout-synthetic-random/graphs/graph" / file
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    [problem] = problems(tmp_path / "packs")
    assert problem.startswith(f"{path}: checksum: expected ")


def test_small_files_are_checked_as_they_are_read(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "packs")
    path = tmp_path / "packs/layout-synthetic-random/graphs/graph/graph.npz"
    path.write_bytes(path.read_bytes() + b"x")
    graph = tg.load("layout:synthetic:random", root=tmp_path / "packs")[0]
    with pytest.raises(TpuGraphsError, match="graph.npz: checksum"):
        _ = graph.node_feat


def test_strays_are_named(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "packs")
    graphs = tmp_path / "packs/layout-synthetic-random/graphs"
    shutil.copytree(graphs / "graph", graphs / "other")
    (graphs / ".aside-third").mkdir()
    shutil.rmtree(tmp_path / "packs/tile-synthetic/graphs/graph")
    aside, other, missing = problems(tmp_path / "packs")
    assert "left by an interrupted import" in aside
    assert "packed but not part of the collection" in other
    assert "expected the pack of graph, found nothing" in missing


def test_a_root_without_collections(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no collection to verify there"):
        tg.verify_root(tmp_path)
