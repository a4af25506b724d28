"""Strict, streaming reading and writing of npz files: nothing is unpickled, no header is believed unchecked."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from tpugraphs.errors import BadFile
from tpugraphs.types import Array

BLOCK_BYTES = 8 << 20
"""Large members pass through memory in blocks of about this size."""

_MAGIC = b"\x93NUMPY"
_MAX_HEADER = 4096
_ZIP20, ZIP45 = 20, 45
_DEFLATE_LIMIT = 1032
"""Deflate cannot shrink by more than this factor, which bounds what a file of a given size can hold."""

_HEADER = re.compile(
    r"\{\s*'descr':\s*'(?P<descr>[<>|=]?[a-zA-Z]\d*)',\s*'fortran_order':\s*(?P<fortran>True|False),"
    r"\s*'shape':\s*\((?P<shape>[\d,\sL]*)\),?\s*\}\s*"
)
_READ_TROUBLE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    KeyError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    ValueError,
    OSError,
)


@dataclass(frozen=True, slots=True)
class ArrayHeader:
    """What an npy header says."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool = False

    @property
    def nbytes(self) -> int:
        size = self.dtype.itemsize
        for length in self.shape:
            size *= length
        return size

    def __str__(self) -> str:
        return f"{self.dtype.name} {self.shape}"


def header_of(array: Array) -> ArrayHeader:
    return ArrayHeader(array.dtype, array.shape, array.flags.f_contiguous and not array.flags.c_contiguous)


class ArraySource(Protocol):
    """Named arrays that can be read whole or in blocks of rows; an npz file is one."""

    label: str
    headers: dict[str, ArrayHeader]

    def read(self, key: str) -> Array: ...
    def blocks(self, key: str) -> Iterator[Array]: ...


class NpzReader:
    """An npz file opened with its headers checked against the true size of the file; arrays are read on demand."""

    def __init__(self, file: Path | IO[bytes], label: str | Path | None = None) -> None:
        self.label = str(label if label is not None else file)
        try:
            self._zip = zipfile.ZipFile(file)
        except FileNotFoundError as error:
            raise BadFile(self.label, "npz", expected="a file", found="nothing") from error
        except _READ_TROUBLE as error:
            raise self._bad("npz", "a whole zip archive", str(error) or type(error).__name__) from error
        try:
            self._members: dict[str, zipfile.ZipInfo] = {}
            self.headers: dict[str, ArrayHeader] = {}
            for member in self._zip.infolist():
                key = self._admit(member)
                self._members[key] = member
                with self._open(key) as stream:
                    self.headers[key] = self._header(key, member, stream)
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> NpzReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.headers)

    @property
    def zip_version(self) -> int:
        """The zip version its writer asked for: 45, or 20 by older Pythons."""
        return max((member.extract_version for member in self._members.values()), default=ZIP45)

    def read(self, key: str) -> Array:
        """The whole array, in the memory order it was stored in."""
        header = self.headers[key]
        try:
            flat = np.empty(header.nbytes, dtype=np.uint8)
        except MemoryError as error:
            raise self._bad(key, "an array that fits in memory", f"{header.nbytes} bytes") from error
        with self._open(key) as stream:
            self._header(key, self._members[key], stream)
            self._fill(key, stream, flat)
            self._finish(key, stream)
        order = "F" if header.fortran_order else "C"
        return flat.view(header.dtype).reshape(header.shape, order=order)

    def blocks(self, key: str, block_bytes: int = BLOCK_BYTES) -> Iterator[Array]:
        """The array in runs of rows, so that it never lies in memory whole; a block is valid until the next."""
        header = self.headers[key]
        if header.fortran_order or not header.shape or header.nbytes == 0:
            yield self.read(key)
            return
        rows, row_bytes = header.shape[0], header.nbytes // header.shape[0]
        rows_at_once = max(1, min(rows, block_bytes // row_bytes))
        buffer = np.empty(rows_at_once * row_bytes, dtype=np.uint8)
        with self._open(key) as stream:
            self._header(key, self._members[key], stream)
            for start in range(0, rows, rows_at_once):
                count = min(rows_at_once, rows - start)
                part = buffer[: count * row_bytes]
                self._fill(key, stream, part)
                yield part.view(header.dtype).reshape(count, *header.shape[1:])
            self._finish(key, stream)

    def _admit(self, member: zipfile.ZipInfo) -> str:
        name = member.filename
        if not name.endswith(".npy") or name == ".npy":
            raise self._bad(f"member {name!r}", "a name that ends in .npy", "another")
        key = name.removesuffix(".npy")
        if key in self._members:
            raise self._bad(key, "each key once", "it twice")
        if member.flag_bits & 1:
            raise self._bad(key, "a plain member", "an encrypted one")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self._bad(key, "a stored or deflated member", f"zip compression method {member.compress_type}")
        return key

    def _header(self, key: str, member: zipfile.ZipInfo, stream: IO[bytes]) -> ArrayHeader:
        """Reads the npy header and leaves the stream at the first byte of data."""
        header, start = read_npy_header(stream, self.label, key)
        claimed = header.nbytes + start
        if claimed != member.file_size:
            raise self._bad(key, f"{member.file_size} bytes as the zip says", f"a header that claims {claimed}")
        expands = _DEFLATE_LIMIT if member.compress_type == zipfile.ZIP_DEFLATED else 1
        if claimed > member.compress_size * expands + 64:
            raise self._bad(key, f"what {member.compress_size} packed bytes can hold", f"a claim of {claimed} bytes")
        return header

    @contextmanager
    def _open(self, key: str) -> Iterator[IO[bytes]]:
        try:
            with self._zip.open(self._members[key]) as stream:
                yield stream
        except BadFile:
            raise
        except _READ_TROUBLE as error:
            raise self._bad(key, "an intact member", str(error) or type(error).__name__) from error

    def _fill(self, key: str, stream: IO[bytes], target: Array) -> None:
        view, done = memoryview(target.data).cast("B"), 0
        while done < len(view):
            data = stream.read(min(len(view) - done, BLOCK_BYTES))
            if not data:
                raise self._bad(key, f"{len(view)} bytes of data", f"the end after {done}")
            view[done : done + len(data)] = data
            done += len(data)

    def _finish(self, key: str, stream: IO[bytes]) -> None:
        if stream.read(1):  # reading past the end is what makes zipfile check the CRC
            raise self._bad(key, "the end of the array", "more data")

    def _bad(self, what: str, expected: str, found: str) -> BadFile:
        return BadFile(self.label, what, expected=expected, found=found)


def read_npy_header(stream: IO[bytes], label: str | Path, key: str) -> tuple[ArrayHeader, int]:
    """The header of an npy array of plain numbers, and where its data starts."""

    def take(count: int) -> bytes:
        data = stream.read(count)
        if len(data) != count:
            raise BadFile(label, key, expected=f"{count} more bytes", found=f"the end after {len(data)}")
        return data

    start = take(8)
    if start[:6] != _MAGIC:
        raise BadFile(label, key, expected="an npy array", found="other data")
    if start[6] not in (1, 2, 3):
        raise BadFile(label, key, expected="npy format version 1, 2 or 3", found=f"version {start[6]}")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(take(width), "little")
    if length > _MAX_HEADER:
        raise BadFile(label, key, expected=f"an npy header of at most {_MAX_HEADER} bytes", found=f"{length} bytes")
    header = _parse_npy_header(take(length).decode("latin1"), label, key)
    return header, 8 + width + length


def _parse_npy_header(text: str, label: str | Path, key: str) -> ArrayHeader:
    match = _HEADER.fullmatch(text)
    if match is None:
        if "'O'" in text or "|O" in text:
            raise BadFile(label, key, expected="numbers (objects are never unpickled)", found="an array of objects")
        raise BadFile(label, key, expected="an npy header of a plain array", found=f"{text.strip()[:80]!r}")
    try:
        dtype = np.dtype(match["descr"])
    except TypeError as error:
        raise BadFile(label, key, expected="a known dtype", found=repr(match["descr"])) from error
    if dtype.hasobject or dtype.kind not in "biuf":
        raise BadFile(label, key, expected="numbers (objects are never unpickled)", found=f"dtype {match['descr']!r}")
    lengths = [part.strip().removesuffix("L") for part in match["shape"].split(",")]
    if not all(re.fullmatch("[0-9]{1,18}", part) for part in lengths if part) or len(lengths) > 32:
        raise BadFile(label, key, expected="a shape of whole numbers", found=f"({match['shape'][:80]})")
    return ArrayHeader(dtype, tuple(int(part) for part in lengths if part), match["fortran"] == "True")


def map_npy(path: Path, what: str) -> Array:
    """An npy file as a read-only memory map, its header checked against the size of the file."""
    try:
        with path.open("rb") as file:
            header, start = read_npy_header(file, path, what)
            size = file.seek(0, 2)
    except OSError as error:
        raise BadFile(path, what, expected="a readable npy file", found=error.strerror or str(error)) from error
    if header.nbytes + start != size:
        raise BadFile(path, what, expected=f"{header.nbytes + start} bytes by its header", found=f"{size}")
    if header.nbytes == 0:
        return np.empty(header.shape, header.dtype)
    order = "F" if header.fortran_order else "C"
    mapped = np.memmap(path, mode="r", dtype=header.dtype, shape=header.shape, offset=start, order=order)
    return mapped.view(np.ndarray)


class NpzWriter:
    """Writes npz members one after another, byte for byte as `np.savez_compressed` does."""

    def __init__(self, path: Path, *, zip_version: int = ZIP45) -> None:
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, allowZip64=True)
        self._member = zipfile.ZipInfo if zip_version >= ZIP45 else _MemberOfOldPython

    def __enter__(self) -> NpzWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def write(self, key: str, array: Array, header: ArrayHeader | None = None) -> None:
        with self.stream(key, header or header_of(array)) as put:
            put(array)

    @contextmanager
    def stream(self, key: str, header: ArrayHeader) -> Iterator[PutBlock]:
        """Yields a function that takes the array's blocks in order."""
        info = self._member(f"{key}.npy")
        info.compress_type = zipfile.ZIP_DEFLATED
        with self._zip.open(info, "w", force_zip64=True) as member:
            fields = {
                "descr": np.lib.format.dtype_to_descr(header.dtype),
                "fortran_order": header.fortran_order,
                "shape": header.shape,
            }
            np.lib.format.write_array_header_1_0(member, fields)
            put = PutBlock(member, "F" if header.fortran_order else "C")
            yield put
            if put.written != header.nbytes:
                raise AssertionError(f"{key}: wrote {put.written} bytes of {header.nbytes}")


class _MemberOfOldPython(zipfile.ZipInfo):
    """Some of the release's files come from a Python that wrote zip64 sizes beside the plain ones, as version 20."""

    def FileHeader(self, zip64: bool | None = None) -> bytes:  # noqa: N802 (zipfile calls it so)
        header = super().FileHeader(zip64)
        if max(self.file_size, self.compress_size) > zipfile.ZIP64_LIMIT:
            return header
        self.create_version = self.extract_version = _ZIP20
        sizes = struct.pack("<LL", self.compress_size, self.file_size)
        return header[:4] + struct.pack("<H", _ZIP20) + header[6:18] + sizes + header[26:]


class PutBlock:
    """Appends an array's bytes to an open member."""

    def __init__(self, member: IO[bytes], order: Any) -> None:
        self._member, self._order, self.written = member, order, 0

    def __call__(self, block: Array) -> None:
        self.written += self._member.write(block.tobytes(self._order))


def save_npy(path: Path, array: Array) -> None:
    """One array as an npy file."""
    with path.open("wb") as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
