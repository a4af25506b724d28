"""Reading the pack of one graph: opened lazily, checked as it is read, memory-mapped where it is large."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tpugraphs import files
from tpugraphs.data import stats
from tpugraphs.data.codes import Codebook, CodeReader, cast_exactly
from tpugraphs.data.manifest import FileRecord, GraphManifest
from tpugraphs.data.npz import ArrayHeader, NpzReader, map_npy
from tpugraphs.data.pack import CODES, CONFIGS, GRAPH, MANIFEST, NODE_RUNTIMES, PLAIN, RUNTIMES
from tpugraphs.data.schema import NORMALIZER, RUNTIME, Schema, check_headers
from tpugraphs.errors import BadFile
from tpugraphs.graph import Explanation, Graph
from tpugraphs.types import Array, GraphSummary, relative_runtime

_AGAIN = "remove this folder and import the graph again"


class PackFiles:
    """The files behind a packed graph; what stays open is small: tables and memory maps."""

    def __init__(self, folder: Path, digest: str) -> None:
        self.folder = folder
        self.digest = digest
        """The sha256 of the manifest, as the collection has it."""

    @cached_property
    def manifest(self) -> GraphManifest:
        path = self.folder / MANIFEST
        text = self._read(path, self.digest)
        manifest = GraphManifest.read(path, text)
        for key in manifest.schema.keys:
            if key not in manifest.headers:
                raise BadFile(path, "arrays", expected=f"a record of {key}", found="none", todo=_AGAIN)
        check_headers(manifest.schema, manifest.headers, path)
        return manifest

    @property
    def config_header(self) -> ArrayHeader:
        return self.manifest.headers[self.manifest.schema.config_key]

    @cached_property
    def codes(self) -> CodeReader:
        arrays, path = self._read_npz(CONFIGS), self.folder / CODES
        try:
            book = Codebook(**arrays)
        except TypeError as error:
            raise BadFile(path, "tables", expected="the four tables", found=", ".join(arrays), todo=_AGAIN) from error
        if problem := book.problem():
            raise BadFile(path, "tables", expected="tables that fit together", found=problem, todo=_AGAIN)
        codes = self.map(CODES)
        reader = CodeReader(codes, book, path)
        fits = codes.ndim == 2 and codes.dtype.kind == "u" and codes.shape[1] == len(book.group_sizes)
        if not fits or reader.shape != (*self.config_header.shape, 1)[:3]:
            found = f"{codes.dtype.name} {codes.shape} and tables for {reader.shape}"
            raise BadFile(path, "codes", expected=f"codes for {self.config_header.shape}", found=found, todo=_AGAIN)
        return reader

    @cached_property
    def plain(self) -> Array:
        return self.map(PLAIN, self.config_header)

    @cached_property
    def runtime(self) -> Array:
        return self.map(RUNTIMES, self.manifest.headers[RUNTIME])

    def graph_arrays(self) -> dict[str, Array]:
        arrays, path = self._read_npz(GRAPH), self.folder / GRAPH
        for key in self.manifest.schema.graph_keys:
            header = self.manifest.headers[key]
            if key not in arrays or (arrays[key].dtype, arrays[key].shape) != (header.dtype, header.shape):
                found = "nothing" if key not in arrays else f"{arrays[key].dtype.name} {arrays[key].shape}"
                raise BadFile(path, key, expected=str(header), found=found, todo=_AGAIN)
        return arrays

    def map(self, file: str, header: ArrayHeader | None = None) -> Array:
        """A memory map, checked against the recorded size; checksums of mapped files are for `verify`."""
        record, path = self._record(file), self.folder / file
        array = map_npy(path, file.removesuffix(".npy"))
        size = path.stat().st_size
        if size != record.bytes:
            raise BadFile(path, "size", expected=f"{record.bytes} bytes", found=str(size), todo=_AGAIN)
        if header is not None and (array.dtype, array.shape) != (header.dtype, header.shape):
            found = f"{array.dtype.name} {array.shape}"
            raise BadFile(path, "array", expected=str(header), found=found, todo=_AGAIN)
        return array

    def _record(self, file: str) -> FileRecord:
        record = self.manifest.files.get(file)
        if record is None:
            raise BadFile(self.folder / MANIFEST, "files", expected=f"a record of {file}", found="none", todo=_AGAIN)
        return record

    def _read_npz(self, file: str) -> dict[str, Array]:
        """All arrays of a small file, checked against its checksum since it is read whole anyway."""
        record, path = self._record(file), self.folder / file
        with NpzReader(io.BytesIO(self._read(path, record.sha256)), path) as reader:
            return {key: reader.read(key) for key in reader.keys}

    def _read(self, path: Path, digest: str) -> bytes:
        data = files.read_bytes(path, "pack", _AGAIN)
        if hashlib.sha256(data).hexdigest() != digest:
            raise BadFile(path, "checksum", expected=digest[:12], found="another", todo=_AGAIN)
        return data


@dataclass(frozen=True)
class PackedGraph:
    """A graph of a collection with its configs and run times, read from its pack as they are asked for.

    The graph's own arrays are kept as long as this object is; the maps belong to the collection.
    """

    summary: GraphSummary
    files: PackFiles

    @property
    def name(self) -> str:
        return self.summary.name

    @property
    def split(self) -> str:
        return self.summary.split

    @property
    def schema(self) -> Schema:
        return self.files.manifest.schema

    def __repr__(self) -> str:
        s = self.summary
        return f"<PackedGraph {s.name}: {s.nodes} nodes, {s.configurable_nodes} configurable, {s.configs} configs>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (
            self.summary,
            self.files.folder,
            self.files.digest,
        )  # memory maps are opened anew where this arrives

    @cached_property
    def _arrays(self) -> dict[str, Array]:
        return self.files.graph_arrays()

    @property
    def graph(self) -> Graph:
        """The graph alone, in memory."""
        arrays = self._arrays
        return Graph(
            node_opcode=arrays["node_opcode"],
            node_feat=arrays["node_feat"],
            edge_index=arrays["edge_index"],
            node_splits=arrays.get("node_splits"),
            node_config_ids=arrays.get("node_config_ids"),
        )

    def column(self, name: str) -> Array:
        """(n,) one feature of every node."""
        return self.graph.column(name)

    def explain(self, node: int) -> Explanation:
        """The non-zero features of one node."""
        return self.graph.explain(node)

    @property
    def node_feat(self) -> Array:
        return self._array("node_feat")

    @property
    def node_opcode(self) -> Array:
        return self._array("node_opcode")

    @property
    def edge_index(self) -> Array:
        return self._array("edge_index")

    @property
    def node_splits(self) -> Array:
        return self._array("node_splits")

    @property
    def node_config_ids(self) -> Array:
        return self._array("node_config_ids")

    @property
    def config_runtime(self) -> Array:
        """(c,) ns; zeros where labels are withheld."""
        return self.files.runtime

    @property
    def node_runtime(self) -> NDArray[np.float32] | None:
        """(c, nc) ns that each configurable node took, NaN where it was not measured; None where none was."""
        return self.files.map(NODE_RUNTIMES) if NODE_RUNTIMES in self.files.manifest.files else None

    @property
    def config_runtime_normalizers(self) -> Array:
        """(c,) ns of the default config measured in the same job (kernels only)."""
        return self._array(NORMALIZER)

    @property
    def relative_runtime(self) -> NDArray[np.float64]:
        """(c,) run times that compare within the graph: over the normalizer where there is one."""
        normalizer = self.config_runtime_normalizers if NORMALIZER in self.schema.keys else None
        return relative_runtime(self.config_runtime, normalizer)

    @property
    def config_feat(self) -> Array:
        """(c, 24), all configs of a kernel, in the dtype of the official file."""
        return self._all_features("config_feat")

    @property
    def node_config_feat(self) -> Array:
        """(c, nc, 18), all configs of a layout graph: large; prefer `config_features(rows)`."""
        return self._all_features("node_config_feat")

    @property
    def config_identity(self) -> NDArray[np.intp]:
        """(c,) a number per config, equal where the features are equal."""
        source = self.files
        return stats.config_identity(source.codes.codes if source.manifest.coded else source.plain)

    def config_features(self, rows: Any = slice(None), dtype: DTypeLike = np.float32) -> Array:
        """Features of these configs only: (r, nc, 18) for layouts, (r, 24) for tiles; `rows` as numpy takes it."""
        if not self.files.manifest.coded:
            return cast_exactly(self.files.plain[rows], np.dtype(dtype))
        features = self.files.codes.features(rows, dtype)
        return features if len(self.files.config_header.shape) == 3 else features[..., 0]

    def feature_blocks(self, block_bytes: int = 8 << 20) -> Iterator[Array]:
        """All config features in runs of rows, in the dtype of the official file."""
        header = self.files.config_header
        rows_at_once = max(1, block_bytes * header.shape[0] // max(1, header.nbytes))
        for start in range(0, header.shape[0], rows_at_once):
            yield self.config_features(slice(start, start + rows_at_once), header.dtype)

    def _array(self, key: str) -> Array:
        if key not in self.schema.graph_keys:
            raise AttributeError(f"{self.name} is a {self.schema.name} graph and has no {key}")
        return self._arrays[key]

    def _all_features(self, key: str) -> Array:
        if key != self.schema.config_key:
            raise AttributeError(f"{self.name} is a {self.schema.name} graph and has no {key}")
        return self.config_features(dtype=self.files.config_header.dtype)


def _reopen(summary: GraphSummary, folder: Path, digest: str) -> PackedGraph:
    return PackedGraph(summary, PackFiles(folder, digest))
