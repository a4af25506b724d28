"""npz -> pack -> npz gives back every file, to the byte where zlib packs as the release's did."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.kit.files import LAYOUT_NAME, TILE_NAME, Arrays, layout_arrays, packed, tile_arrays
from tpugraphs.data import Collection, codes, export_official, load
from tpugraphs.data.names import OFFICIAL
from tpugraphs.data.npz import NpzReader
from tpugraphs.errors import BadRequest

same_deflate = pytest.mark.skipif(
    "ng" in zlib.ZLIB_RUNTIME_VERSION, reason="zlib-ng packs to other bytes than the zlib the release was written with"
)


def assert_same(one: Path, other: Path) -> None:
    with NpzReader(one) as first, NpzReader(other) as second:
        assert list(first.headers.items()) == list(second.headers.items())
        for key in first.keys:
            assert first.read(key).tobytes() == second.read(key).tobytes(), key


def test_every_real_file_comes_back(release: Path, release_root: Path, tmp_path: Path) -> None:
    count = 0
    for name in OFFICIAL:
        if (release_root / name.replace(":", "-")).is_dir():
            for place in export_official(load(name, root=release_root), tmp_path).written:
                assert_same(release / place.npz_path(), tmp_path / place.npz_path())
                count += 1
    assert count == len(list((release / "npz").rglob("*.npz"))) == 9


@same_deflate
def test_every_real_file_comes_back_to_the_byte(release: Path, release_root: Path, tmp_path: Path) -> None:
    for path in (release / "npz").rglob("*.npz"):
        name = ":".join(path.relative_to(release / "npz").parts[:-2])
        export_official(load(name, root=release_root), tmp_path)
        assert (tmp_path / path.relative_to(release)).read_bytes() == path.read_bytes()


def test_generated_trees_come_back(official: Path, root: Path, tmp_path: Path) -> None:
    for name in (LAYOUT_NAME, TILE_NAME):
        report = export_official(load(name, root=root), tmp_path)
        assert len(report.written) == 4
        for place in report.written:
            assert_same(official / place.npz_path(), tmp_path / place.npz_path())


def test_a_second_export_writes_nothing(root: Path, tmp_path: Path) -> None:
    first = export_official(load(TILE_NAME, root=root), tmp_path)
    again = export_official(load(TILE_NAME, root=root), tmp_path)
    assert (len(first.written), again.written) == (first.identical, [])
    assert again.present == first.written


def exported(collection: Collection, folder: Path) -> Path:
    [place] = export_official(collection, folder / "back").written
    return folder / "back" / place.npz_path()


FLOATS = st.sampled_from([np.float32, np.float64, np.float16])


@given(st.data())
def test_any_layout_file_comes_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any features, dtypes, memory orders and numbers of configurable nodes, none included."""
    folder, arrays = tmp_path_factory.mktemp("any"), layout_arrays(configs=8)
    configs, places = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 4))
    dtype = data.draw(FLOATS)
    values = st.one_of(st.integers(-1, 4), st.floats(-1e4, 1e4)).map(dtype)
    arrays["node_config_feat"] = data.draw(hnp.arrays(dtype, (configs, places, 18), elements=values))
    arrays["node_config_ids"] = arrays["node_config_ids"][:places]
    arrays["config_runtime"] = data.draw(hnp.arrays(np.int64, configs, elements=st.integers(1, 10**12)))
    if data.draw(st.booleans()):
        arrays = {key: np.asfortranarray(array) for key, array in arrays.items()}
    collection = packed(folder, arrays)
    assert_same(next((folder / "official").rglob("*.npz")), exported(collection, folder))
    assert (collection[0].node_config_feat == arrays["node_config_feat"]).all()


@pytest.mark.parametrize("make", [layout_arrays, tile_arrays])
def test_features_that_no_dictionary_shortens_come_back(
    make: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codes, "MAX_VECTORS", 3)
    arrays: Arrays = layout_arrays() if make is layout_arrays else tile_arrays()
    name, key = (LAYOUT_NAME, "node_config_feat") if make is layout_arrays else (TILE_NAME, "config_feat")
    collection = packed(tmp_path, arrays, name)
    graph = collection[0]
    assert not graph.files.manifest.coded
    assert (graph.config_features([3, 1]) == arrays[key][[3, 1]]).all()
    with pytest.raises(BadRequest, match="bool does not hold these config features"):
        graph.config_features(dtype=bool)
    assert graph.summary.unique_configs == len(np.unique(arrays[key].reshape(len(arrays[key]), -1), axis=0))
    assert_same(next((tmp_path / "official").rglob("*.npz")), exported(collection, tmp_path))
