"""The JSON beside the arrays: parsed strictly, so that a damaged or foreign file is told apart from a whole one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tpugraphs import files
from tpugraphs.data.npz import ArrayHeader
from tpugraphs.data.schema import NAMED, SCHEMAS, Schema, named_schema
from tpugraphs.errors import BadFile
from tpugraphs.types import GraphSummary

SCHEMA_VERSION = 1
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What a file of a pack must be."""

    bytes: int
    sha256: str

    @staticmethod
    def of(path: Path) -> FileRecord:
        return FileRecord(path.stat().st_size, files.sha256(path))


@dataclass(frozen=True, slots=True)
class Origin:
    """The official file a pack was made from."""

    file: str
    bytes: int
    sha256: str
    zip_version: int


@dataclass(frozen=True, slots=True)
class GraphManifest:
    """All that a pack says about itself."""

    name: str
    schema: Schema
    headers: dict[str, ArrayHeader]
    """The arrays of the official file, in its key order."""
    coded: bool
    """Whether configs are codes and tables, or a plain array."""
    files: dict[str, FileRecord]
    summary: dict[str, Any]
    """The fields of GraphSummary but name and split, which belong to the collection."""
    origin: Origin

    def to_json(self) -> dict[str, Any]:
        arrays = {
            key: {"dtype": header.dtype.str, "shape": list(header.shape), "fortran_order": header.fortran_order}
            for key, header in self.headers.items()
        }
        return {
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "schema": self.schema.name,
            **({"columns": self.schema.config_columns} if self.schema.name == NAMED else {}),
            "coded": self.coded,
            "arrays": arrays,
            "summary": self.summary,
            "origin": asdict(self.origin),
            "files": {name: asdict(record) for name, record in self.files.items()},
        }

    @staticmethod
    def read(path: Path, text: bytes) -> GraphManifest:
        top = Reader(path, files.parse_json(text, path, "manifest"))
        top.check_version()
        schema = read_schema(top, top)
        arrays = top.each("arrays")
        records = top.each("files")
        return GraphManifest(
            name=top.need("name", str),
            schema=schema,
            headers={key: _read_header(reader) for key, reader in arrays.items()},
            coded=top.need("coded", bool),
            files={key: FileRecord(r.need("bytes", int), r.need("sha256", str)) for key, r in records.items()},
            summary=read_summary(top.inner("summary")),
            origin=_read_origin(top.inner("origin")),
        )


class Reader:
    """One JSON object of a file, whose values are asked for with their type."""

    def __init__(self, path: Path, value: Any, where: str = "manifest") -> None:
        if not isinstance(value, Mapping):
            raise BadFile(path, where, expected="a JSON object", found=type(value).__name__)
        self._path, self._value, self._where = path, value, where

    def need(self, key: str, kind: type[_T]) -> _T:
        value = self._value.get(key)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            found = "nothing" if value is None else f"{value!r}"[:80]
            raise BadFile(self._path, f"{self._where}: {key}", expected=f"a value of type {kind.__name__}", found=found)
        return value

    def maybe(self, key: str, kind: type[_T]) -> _T | None:
        """None where there is none: manifests of before may lack it."""
        return None if self._value.get(key) is None else self.need(key, kind)

    def maybe_number(self, key: str) -> int | float | None:
        value = self._value.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            found = f"{value!r}"[:80]
            raise BadFile(self._path, f"{self._where}: {key}", expected="a number or null", found=found)
        return value

    def inner(self, key: str) -> Reader:
        return Reader(self._path, self.need(key, dict), f"{self._where}: {key}")

    def each(self, key: str) -> dict[str, Reader]:
        """The objects of an object, by their keys."""
        values = self.need(key, dict)
        return {str(name): Reader(self._path, value, f"{self._where}: {key}: {name}") for name, value in values.items()}

    def check_version(self) -> None:
        version = self.need("schema_version", int)
        if version != SCHEMA_VERSION:
            todo = "this tpugraphs is too old to read it" if version > SCHEMA_VERSION else "import the data again"
            raise BadFile(self._path, "schema_version", expected=str(SCHEMA_VERSION), found=str(version), todo=todo)

    @property
    def path(self) -> Path:
        return self._path


def read_schema(top: Reader, columns: Reader, key: str = "columns") -> Schema:
    """The schema a manifest names; `columns` is where its own columns are named, if it has such."""
    name = top.need("schema", str)
    if name == NAMED:
        return named_schema([str(column) for column in columns.need(key, list)])
    if name not in SCHEMAS:
        raise BadFile(top.path, "schema", expected=f"one of {', '.join((*SCHEMAS, NAMED))}", found=repr(name))
    return SCHEMAS[name]


_OPTIONAL = ("best_ns", "worst_ns", "spread", "noise_floor")
SUMMARY_FIELDS = tuple(field.name for field in fields(GraphSummary) if field.name not in ("name", "split"))


def read_summary(reader: Reader) -> dict[str, Any]:
    return {name: reader.maybe_number(name) if name in _OPTIONAL else reader.need(name, int) for name in SUMMARY_FIELDS}


def _read_header(reader: Reader) -> ArrayHeader:
    shape = reader.need("shape", list)
    descr = reader.need("dtype", str)
    try:
        dtype = np.dtype(descr)
    except (TypeError, ValueError, SyntaxError):
        dtype = np.dtype(object)
    if dtype.kind not in "biuf" or not all(isinstance(length, int) and length >= 0 for length in shape):
        raise BadFile(reader.path, "arrays", expected="number dtypes and shapes", found=f"{descr!r}, {shape!r}"[:120])
    return ArrayHeader(dtype, tuple(shape), reader.need("fortran_order", bool))


def _read_origin(reader: Reader) -> Origin:
    return Origin(
        file=reader.need("file", str),
        bytes=reader.need("bytes", int),
        sha256=reader.need("sha256", str),
        zip_version=reader.need("zip_version", int),
    )
