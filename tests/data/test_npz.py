"""npz files: exact in both directions, and no damaged or hostile file gets further than one sentence."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tpugraphs.data.npz import ArrayHeader, NpzReader, NpzWriter, map_npy, save_npy
from tpugraphs.errors import BadFile

DTYPES = st.sampled_from(["<f4", "<f8", "<i8", "<i4", "<u1", "<u2", "|b1", ">i4", "<f2"]).map(np.dtype)
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
)
KEYS = st.text("abcdefghij_", min_size=1, max_size=8)


def packed(arrays: dict[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


@given(st.dictionaries(KEYS, ARRAYS, min_size=1, max_size=4), st.booleans())
def test_reading_gives_what_numpy_wrote(arrays: dict[str, np.ndarray], fortran: bool) -> None:
    arrays = {key: np.asfortranarray(array) if fortran else array for key, array in arrays.items()}
    with NpzReader(io.BytesIO(packed(arrays)), "file") as reader:
        assert list(reader.keys) == list(arrays)
        for key, array in arrays.items():
            read = reader.read(key)
            assert (read.dtype, read.shape) == (array.dtype, array.shape)
            assert read.tobytes() == array.tobytes()


@given(ARRAYS.filter(lambda array: array.ndim > 0), st.integers(1, 200))
def test_blocks_join_to_the_array(array: np.ndarray, block_bytes: int) -> None:
    with NpzReader(io.BytesIO(packed({"x": array})), "file") as reader:
        blocks = [block.tobytes() for block in reader.blocks("x", block_bytes)]
    assert b"".join(blocks) == array.tobytes()


@given(st.dictionaries(KEYS, ARRAYS, min_size=1, max_size=4))
def test_writing_gives_numpys_own_bytes(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    path = tmp_path / "file.npz"
    with NpzWriter(path) as writer:
        for key, array in arrays.items():
            writer.write(key, array)
    assert path.read_bytes() == packed(arrays)


@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(data: st.DataObject) -> None:
    """Any change to the bytes gives a BadFile or arrays of what the headers say, never another exception."""
    whole = bytearray(packed({"a": np.arange(300, dtype=np.float32).reshape(30, 10), "b": np.arange(7)}))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    damaged = bytes(whole[: data.draw(st.integers(0, len(whole)))]) if data.draw(st.booleans()) else bytes(whole)
    read_all(damaged)


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(noise: bytes) -> None:
    read_all(noise)
    read_all(b"PK\x03\x04" + noise)


@given(st.text(max_size=120), st.binary(max_size=64), st.sampled_from([1, 2, 3, 9]))
def test_any_npy_header_is_read_or_refused(text: str, body: bytes, version: int) -> None:
    header = text.encode("utf-8", "replace")
    width = 2 if version == 1 else 4
    read_all(zipped(b"\x93NUMPY" + bytes([version, 0]) + len(header).to_bytes(width, "little") + header + body))


def read_all(data: bytes) -> None:
    try:
        with NpzReader(io.BytesIO(data), "file") as reader:
            for key in reader.keys:
                assert reader.read(key).nbytes == reader.headers[key].nbytes
                list(reader.blocks(key))
    except BadFile as error:
        assert str(error).startswith("file: ")


def zipped(content: bytes, name: str = "x.npy", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def npy(descr: str, shape: str, body: bytes = b"") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (npy("'<f4'", "(1000000000000000,)"), "a header that claims"),
        (npy("'<f4'", "(99999999999999999999,)"), "a shape of whole numbers"),
        (npy("'|O'", "(1,)", b"cos\nsystem\n(S'true'\ntR."), "objects are never unpickled"),
        (npy("[('a', '<f4')]", "(1,)", b"1234"), "an npy header of a plain array"),
        (npy("'<U4'", "(1,)", b"1234" * 4), "dtype '<U4'"),
        (npy("'<f4'", "(__import__('os').system('true'),)"), "an npy header of a plain array"),
        (npy("'<f4'", "(2,)", b"1234"), "a header that claims"),
        (b"hello", "8 more bytes"),
        (b"hello hello", "other data"),
    ],
)
def test_hostile_members_are_told_off(content: bytes, says: str) -> None:
    with pytest.raises(BadFile, match=says) as caught, NpzReader(io.BytesIO(zipped(content)), "evil.npz"):
        pass
    assert str(caught.value).startswith("evil.npz: x")


def test_a_zip_that_lies_about_its_size_is_told_off() -> None:
    """A header and a zip directory that agree on a terabyte still cannot make us allocate it."""
    honest = zipped(npy("'<f4'", "(250000000000,)"))
    length = len(npy("'<f4'", "(250000000000,)"))
    claim = (length + 10**12).to_bytes(8, "little")
    at = honest.index(b"PK\x01\x02")
    extra = b"\x01\x00\x08\x00" + claim
    entry = bytearray(honest[at : honest.index(b"PK\x05\x06")])
    entry[24:28] = b"\xff\xff\xff\xff"
    entry[30:32] = len(extra).to_bytes(2, "little")
    end = bytearray(honest[honest.index(b"PK\x05\x06") :])
    end[12:16] = (len(entry) + len(extra)).to_bytes(4, "little")
    with (
        pytest.raises(BadFile, match="packed bytes can hold"),
        NpzReader(io.BytesIO(honest[:at] + bytes(entry) + extra + bytes(end)), "evil.npz"),
    ):
        pass


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda data: data[: len(data) // 2], "a whole zip archive"),
        (lambda _: b"", "a whole zip archive"),
        (lambda _: zipped(b"x", "readme.txt"), "a name that ends in .npy"),
        (lambda _: zipped(npy("'<f4'", "(0,)"), method=zipfile.ZIP_BZIP2), "stored or deflated"),
    ],
)
def test_broken_archives_are_told_off(break_it: Callable[[bytes], bytes], says: str) -> None:
    with (
        pytest.raises(BadFile, match=says),
        NpzReader(io.BytesIO(break_it(packed({"x": np.arange(99)}))), "bad.npz"),
    ):
        pass


def test_a_flipped_bit_in_the_data_is_noticed() -> None:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.arange(1000))
    data = bytearray(buffer.getvalue())
    data[2000] ^= 1
    with NpzReader(io.BytesIO(bytes(data)), "bad.npz") as reader, pytest.raises(BadFile, match="x: .*CRC"):
        reader.read("x")


def test_a_missing_file_is_told_off(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="expected a file, found nothing"), NpzReader(tmp_path / "none.npz"):
        pass


def test_a_map_must_be_as_long_as_its_header_says(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    save_npy(path, np.arange(10))
    assert (map_npy(path, "x") == np.arange(10)).all()
    assert not map_npy(path, "x").flags.writeable
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadFile, match="bytes by its header"):
        map_npy(path, "x")


def test_a_stream_must_be_complete(tmp_path: Path) -> None:
    header = ArrayHeader(np.dtype("<f4"), (4,))
    with (
        pytest.raises(AssertionError, match="wrote 8 bytes of 16"),
        NpzWriter(tmp_path / "x.npz") as writer,
        writer.stream("x", header) as put,
    ):
        put(np.zeros(2, dtype=np.float32))
