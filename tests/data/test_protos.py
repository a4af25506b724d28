"""The release's raw protobufs become labelled collections."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tpugraphs as tg
from tests.kit.protobuf import instruction, message, module
from tpugraphs.data.protos import raw_graphs
from tpugraphs.errors import BadFile

MODULE = module(("main", [instruction("a", "parameter", 1), instruction("b", "negate", 2, [1])], 2))


def layout_run(time_ns: int, layouts: list[list[list[int]]], *, default: bool = False, error: bool = False) -> bytes:
    nodes = [(1, message([(1, message([(1, dims)])) for dims in tensors])) for tensors in layouts]
    config = message([(1, message(nodes))])
    return message([(2, config), (3, int(error)), (4, message([(4, time_ns)])), (5, int(default))])


def tile_run(time_ns: int, bounds: list[int], *, default: bool = False) -> bytes:
    config = message([(1, message([(2, bounds)]))])
    return message([(1, config), (4, message([(4, time_ns)])), (5, int(default))])


def test_all_good_runs_of_the_raw_layout_file_are_rows_of_the_official_one(release: Path) -> None:
    path = release / "pb/module_tuning_data_layout.pb"
    [raw] = raw_graphs(path.read_bytes(), path)
    arrays = raw.arrays()
    assert arrays is not None
    official = np.load(release / "npz/layout/xla/default/valid/unet_3d.4x4.bf16.npz")
    pairs = zip(official["config_runtime"], official["node_config_feat"], strict=True)
    rows = {(int(time_ns), features.tobytes()) for time_ns, features in pairs}
    ours = list(zip(arrays.read("config_runtime"), arrays.read("node_config_feat"), strict=True))
    assert len(ours) == 112
    assert all((int(time_ns), features.tobytes()) in rows for time_ns, features in ours)
    assert [(key, header.dtype) for key, header in arrays.headers.items()] == [
        (key, official[key].dtype) for key in official
    ]


def test_the_kernels_of_the_raw_tile_file_import(release: Path, tmp_path: Path) -> None:
    path = release / "pb/op_tuning_data.pb"
    report = tg.import_official(path, tmp_path, collection="tile:raw", split="train")
    assert (len(report.imported), len(report.left_out)) == (15, 0)
    table = tg.load("tile:raw", root=tmp_path).table()
    assert sum(row.configs for row in table) == 752
    assert all(row.labelled for row in table)
    assert [item.problems for item in tg.verify_root(tmp_path)] == [()]
    again = tg.import_official(path, tmp_path, collection="tile:raw", split="train")
    assert len(again.present) == 15
    graph = tg.load("tile:raw", root=tmp_path)[0]
    assert (graph.config_runtime_normalizers == graph.config_runtime_normalizers[0]).all()
    assert graph.column("is_root").sum() >= 1
    assert str(graph.explain(0)).startswith("node 0: ")
    tg.export_official(tg.load("tile:raw", root=tmp_path), tmp_path / "out")
    assert len(tg.export_official(tg.load("tile:raw", root=tmp_path), tmp_path / "out").present) == 15


def test_errors_and_runs_without_profile_are_dropped() -> None:
    good, bad = [[[0, 1], [1, 0]]], [[[1, 0]]]
    runs = [
        layout_run(100, good, default=True),
        layout_run(50, bad, error=True),
        message([(2, message([(1, message([(1, message([]))]))]))]),
        layout_run(90, bad),
    ]
    [raw] = raw_graphs(message([(1, MODULE), (2, 7), *((3, run) for run in runs), (4, [1])]), "x.pb")
    assert raw.suffix == ""
    arrays = raw.arrays()
    assert arrays is not None
    assert arrays.read("config_runtime").tolist() == [100, 90]
    features = arrays.read("node_config_feat")
    assert features[0, 0].tolist() == [0, 1, -1, -1, -1, -1, 1, 0, *[-1] * 10]
    assert features[1, 0].tolist() == [1, 0, *[-1] * 16]
    assert arrays.read("node_config_ids").tolist() == [1]


def test_kernels_with_too_few_good_runs_are_left_out(tmp_path: Path) -> None:
    one = message([(1, MODULE), (2, 1), (3, tile_run(100, [2, 3], default=True)), (3, tile_run(1, [2]))])
    two = message([(1, MODULE), (2, -2), (3, tile_run(100, [2, 3], default=True)), (3, tile_run(90, []))])
    path = tmp_path / "kernels.pb"
    path.write_bytes(message([(1, one), (1, two)]))
    report = tg.import_official(path, tmp_path / "packs", collection="tile:raw", split="train")
    assert [place.graph for place in report.left_out] == ["kernels_1"]
    assert [place.graph for place in report.imported] == ["kernels_-2"]
    [graph] = tg.load("tile:raw", root=tmp_path / "packs")
    assert graph.config_feat[0, 8:16].tolist() == [2, 3, 0, 0, 0, 0, 5, 6]
    assert graph.config_feat[1].tolist() == [0] * 24, "an empty list has product 0 here"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (message([(1, MODULE), (2, 7), (4, [1])]), "runs: expected a proto with measured runs, found a module alone"),
        (message([(1, MODULE), (2, 7), (3, layout_run(5, [[[0]]])), (4, [1])]), "a run of the default config"),
        (
            message([(1, MODULE), (2, 7), (3, layout_run(5, [[[0]], [[0]]], default=True)), (4, [1])]),
            "expected layouts of 1 nodes in every config, found 2",
        ),
        (
            message([(1, MODULE), (2, 7), (3, layout_run(5, [[[0]] * 4], default=True)), (4, [1])]),
            "expected up to 3 tensors of up to 6 dimensions, found more",
        ),
        (message([(1, MODULE), (2, 7), (3, message([(4, b"\x08")])), (4, [1])]), "runs: expected whole ConfigProfile"),
    ],
    ids=["alone", "no default", "nodes", "tensors", "cut"],
)
def test_raw_files_that_cannot_be_labelled(data: bytes, says: str) -> None:
    with pytest.raises(BadFile, match=says):
        raw_graphs(data, "x.pb")[0].arrays()
