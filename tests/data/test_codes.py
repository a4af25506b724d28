"""Codes give back every bit of the features they stand for, and share columns where places change together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tpugraphs.data import codes as codes_module
from tpugraphs.data.codes import Codebook, CodeReader, DictionaryFull, Encoder, narrowest
from tpugraphs.errors import BadFile, BadRequest

VALUES = st.sampled_from([-1.0, 0.0, -0.0, 1.0, 4.0, 0.5, 1e9, float("inf"), -3e38, 300.0])
SHAPES = st.tuples(st.integers(1, 30), st.integers(0, 6), st.integers(1, 3))
FEATURES = SHAPES.flatmap(lambda shape: hnp.arrays(np.float32, shape, elements=VALUES.map(np.float32)))


def encode(array: np.ndarray, block: int = 7) -> CodeReader:
    encoder = Encoder(array.shape[1], array.shape[2], array.dtype)
    for start in range(0, len(array), block):
        encoder.add(array[start : start + block])
    codes, book = encoder.finish()
    assert book.problem() == ""
    return CodeReader(codes, book)


@given(FEATURES, st.integers(1, 12))
def test_every_bit_comes_back(features: np.ndarray, block: int) -> None:
    reader = encode(features, block)
    assert reader.shape == features.shape
    for _ in range(5):  # the first draws gather, later ones copy
        assert reader.features(dtype=np.float32).tobytes() == features.tobytes()


@given(FEATURES, st.data())
def test_drawing_is_numpy_indexing(features: np.ndarray, data: st.DataObject) -> None:
    reader, count = encode(features), len(features)
    index = st.integers(-count, count - 1)
    rows = data.draw(
        st.one_of(index, st.lists(index, max_size=9).map(lambda rows: np.array(rows, dtype=int)), st.slices(count))
    )
    for _ in range(5):
        assert reader.features(rows).tobytes() == np.ascontiguousarray(features[rows]).tobytes()
    mask = data.draw(hnp.arrays(bool, count))
    assert reader.features(mask).tobytes() == features[mask].tobytes()
    with pytest.raises(IndexError):
        reader.features([count])


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_places_that_change_together_share_a_column(layers: int, seed: int) -> None:
    """Two places of a layer take different vectors, but always switch at the same time."""
    rng = np.random.default_rng(seed)
    choice = rng.integers(0, 3, size=(50, layers))
    vectors = rng.permutation(np.arange(6 * layers * 18, dtype=np.float32)).reshape(-1, 18)
    layer = np.tile(np.arange(layers), 2)
    features = vectors[choice[:, layer] * 2 * layers + np.arange(2 * layers)]
    reader = encode(features, block=8)
    distinct = np.unique(
        np.stack(
            [np.unique(column, return_index=True)[1][np.unique(column, return_inverse=True)[1]] for column in choice.T]
        ),
        axis=0,
    )
    assert reader.codes.shape == (50, len(distinct))
    assert reader.features().tobytes() == features.tobytes()


def test_many_vectors_at_a_place_need_wider_codes() -> None:
    features = np.arange(300, dtype=np.float32).reshape(300, 1, 1)
    reader = encode(features)
    assert reader.codes.dtype == np.uint16
    assert (reader.features() == features).all()


def test_too_many_vectors_are_no_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes_module, "MAX_VECTORS", 10)
    with pytest.raises(DictionaryFull):
        encode(np.arange(11, dtype=np.float32).reshape(11, 1, 1))


def test_vectors_that_share_a_key_are_not_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes_module, "_FACTOR", np.uint64(0))
    with pytest.raises(DictionaryFull, match="share a key"):
        encode(np.arange(8, dtype=np.float32).reshape(4, 1, 2))


def test_a_drawn_array_is_the_callers_own() -> None:
    reader = encode(np.zeros((20, 2, 18), dtype=np.float32))
    for rows in (slice(None), slice(0, 3), [1, 2], 4):
        for dtype in (np.float32, np.int8):
            for _ in range(4):
                drawn = reader.features(rows, dtype)
                drawn[:] = 9
    assert (reader.features() == 0).all()


def test_what_readers_keep_is_bounded_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes_module, "_KEEP_ALL", CodeReader._kept_bytes + 20 * 2 * 18)
    before = CodeReader._kept_bytes
    readers = [encode(np.ones((20, 2, 18), dtype=np.float32)) for _ in range(3)]
    for _ in range(5):
        [reader.features([0]) for reader in readers]
    assert [reader._whole is not None for reader in readers] == [True, False, False]
    del readers
    assert CodeReader._kept_bytes == before


@pytest.mark.parametrize("draws", [1, 5])
def test_a_dtype_that_cannot_hold_the_features_is_refused(draws: int) -> None:
    reader = encode(np.full((4, 1, 1), 300, dtype=np.float32))
    for _ in range(draws):
        reader.features()
    with pytest.raises(BadRequest, match="int8 does not hold"):
        reader.features(dtype=np.int8)


def test_a_code_outside_its_table_is_noticed() -> None:
    good = encode(np.arange(4, dtype=np.float32).reshape(4, 1, 1))
    codes = good.codes.copy()
    codes[2, 0] = 7
    reader = CodeReader(codes, good.book, "codes.npy")
    assert reader.features([0, 1]).shape == (2, 1, 1)
    with pytest.raises(BadFile, match="codes.npy: codes: expected codes within"):
        reader.features([2])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"group_of_place": np.array([5])}, "a group that does not exist"),
        ({"group_sizes": np.array([0])}, "without codes"),
        ({"place_vectors": np.array([0])}, "place vectors where"),
        ({"place_vectors": np.array([0, 9])}, "a vector that does not exist"),
        ({"vectors": np.zeros(3)}, "wrong rank"),
    ],
)
def test_tables_that_do_not_fit_together_are_noticed(change: dict[str, np.ndarray], problem: str) -> None:
    tables = {
        "vectors": np.zeros((2, 1)),
        "group_of_place": np.array([0]),
        "group_sizes": np.array([2]),
        "place_vectors": np.array([0, 1]),
    }
    assert Codebook(**tables).problem() == ""
    assert problem in Codebook(**{**tables, **change}).problem()


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, -1], "int8"),
        ([128], "int16"),
        ([70_000], "float32"),
        ([0.5], "float32"),
        ([-0.0], "float32"),
        ([np.nan], "float32"),
    ],
)
def test_the_narrowest_dtype_keeps_every_bit(values: list[float], dtype: str) -> None:
    array = np.array(values, dtype=np.float32)
    assert narrowest(array).dtype == dtype
    assert narrowest(array).astype(np.float32).tobytes() == array.tobytes()
