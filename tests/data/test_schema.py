"""Every way in which an official file can be wrong ends in one sentence that names file, key, expected and found."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.kit.files import LAYOUT_NAME, TILE_NAME, Arrays, layout_arrays, tile_arrays, write
from tpugraphs.data import import_official
from tpugraphs.errors import BadFile

Change = Callable[[Arrays], object]


def change(key: str, at: tuple[int, ...] | int, value: float) -> Change:
    def apply(arrays: Arrays) -> None:
        arrays[key] = arrays[key].copy()
        arrays[key][at] = value

    return apply


LAYOUT_FAULTS: list[tuple[Change, str]] = [
    (lambda a: a.pop("node_opcode"), "node_opcode: expected this key in a layout file, found node_feat"),
    (lambda a: a.pop("node_config_feat"), "keys: expected the key node_config_feat or config_feat"),
    (lambda a: a.update(extra=np.zeros(3)), "extra: expected only the keys of a layout file"),
    (lambda a: a.update(node_opcode=a["node_opcode"].astype(float)), "node_opcode: expected a dtype of kind integer"),
    (
        lambda a: a.update(node_feat=a["node_feat"].astype(int)),
        "node_feat: expected a dtype of kind float, found int64",
    ),
    (
        lambda a: a.update(node_feat=a["node_feat"][:, :139]),
        r"node_feat: expected shape (n, 140), found shape (60, 139)",
    ),
    (
        lambda a: a.update(node_opcode=a["node_opcode"][:-1]),
        "node_opcode: expected shape (n) with n = 60 as in node_feat",
    ),
    (lambda a: a.update(node_splits=a["node_splits"][0]), "node_splits: expected shape (1, s), found shape (3,)"),
    (lambda a: a.update(config_runtime=a["config_runtime"][:-1]), "config_runtime: expected shape (c) with c = 30"),
    (lambda a: a.update({k: a[k][:0] for k in ("node_config_feat", "config_runtime")}), "expected at least one config"),
    (change("edge_index", (0, 1), 60), "edge_index: expected values from 0 to 59, found 60"),
    (change("edge_index", (0, 1), -1), "edge_index: expected values from 0 to 59, found -1"),
    (change("node_config_ids", 3, 99), "node_config_ids: expected values from 0 to 59, found 99"),
    (change("node_config_ids", 3, 1), "node_config_ids: expected each value above the one before"),
    (change("node_splits", (0, 1), 61), "node_splits: expected values from 0 to 60, found 61"),
    (change("node_splits", (0, 0), 50), "node_splits: expected no value below the one before, found 50 then 30 at 0"),
    (change("node_feat", (7, 2), np.nan), "node_feat: expected finite numbers, found NaN or infinity in row 7"),
    (change("node_config_feat", (4, 1, 2), np.inf), "node_config_feat: expected finite numbers"),
    (change("config_runtime", 5, -3), "config_runtime: expected no negative run time, found -3 in row 5"),
    (
        change("config_runtime", 5, 0),
        "config_runtime: expected run times above zero, or zeros throughout, found 0 in row 5",
    ),
    (
        lambda a: a.update(config_runtime=np.full(30, np.nan)),
        "config_runtime: expected finite run times, found nan in row 0",
    ),
    (
        lambda a: a.update(config_runtime=np.full(30, None)),
        "config_runtime: expected numbers (objects are never unpickled)",
    ),
]
TILE_FAULTS: list[tuple[Change, str]] = [
    (lambda a: a.pop("config_runtime_normalizers"), "config_runtime_normalizers: expected this key in a tile file"),
    (change("config_runtime_normalizers", 2, 0), "config_runtime_normalizers: expected run times above zero"),
    (
        lambda a: a.update(config_runtime_normalizers=0 * a["config_runtime"]),
        "expected values above zero, found 0 in row 0",
    ),
    (lambda a: a.update(config_feat=a["config_feat"][:, :18]), "config_feat: expected shape (c, 24), found shape"),
]


def check(tmp_path: Path, arrays: Arrays, collection: str, says: str) -> None:
    path = write(tmp_path, arrays, collection)
    with pytest.raises(BadFile, match=re.escape(says)) as caught:
        import_official(path, tmp_path / "packs")
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert not [left for left in (tmp_path / "packs").rglob("*") if left.is_file() and left.name != ".lock"]


@pytest.mark.parametrize(("fault", "says"), LAYOUT_FAULTS, ids=[says[:60] for _, says in LAYOUT_FAULTS])
def test_faults_of_layout_files(tmp_path: Path, fault: Change, says: str) -> None:
    arrays = layout_arrays()
    fault(arrays)
    check(tmp_path, arrays, LAYOUT_NAME, says)


@pytest.mark.parametrize(("fault", "says"), TILE_FAULTS, ids=[says[:60] for _, says in TILE_FAULTS])
def test_faults_of_tile_files(tmp_path: Path, fault: Change, says: str) -> None:
    arrays = tile_arrays()
    fault(arrays)
    check(tmp_path, arrays, TILE_NAME, says)


@pytest.mark.parametrize("seed", range(3))
def test_sound_files_pass(tmp_path: Path, seed: int) -> None:
    for name, arrays in ((LAYOUT_NAME, layout_arrays(seed)), (TILE_NAME, tile_arrays(seed))):
        import_official(write(tmp_path, arrays, name), tmp_path / "packs")


def test_other_dtypes_of_the_same_kind_pass_and_stay(tmp_path: Path) -> None:
    """The release's README says int32 in places; such files are taken and given back as they are."""
    from tests.kit.files import packed

    arrays = layout_arrays()
    arrays["edge_index"] = arrays["edge_index"].astype(np.int32)
    arrays["node_feat"] = arrays["node_feat"].astype(np.float64)
    graph = packed(tmp_path, arrays)[0]
    assert (graph.edge_index.dtype, graph.node_feat.dtype) == (np.int32, np.float64)
