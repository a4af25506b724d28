"""Making the pack of one graph: a folder of codes and run times to map, small tables, and a manifest with checksums.

codes.npy      one code per config and group of places (see `codes`), memory-mapped
configs.npz    the tables that turn codes into features
plain.npy      instead of these two: the features as they are, where a dictionary would save nothing
runtime.npy    one run time per config, memory-mapped
node_runtime.npy  where it was measured: ns per config and configurable node, NaN where it was not
graph.npz      the graph's own arrays (and, for kernels, the normalizers), compressed
manifest.json  schema version, the official arrays, checksums, summary, origin
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpugraphs import files
from tpugraphs.data import stats
from tpugraphs.data.codes import Codebook, DictionaryFull, Encoder
from tpugraphs.data.manifest import FileRecord, GraphManifest, Origin
from tpugraphs.data.npz import ArrayHeader, ArraySource, NpzWriter, save_npy
from tpugraphs.data.schema import (
    NORMALIZER,
    RUNTIME,
    Schema,
    check_arrays,
    check_headers,
    check_normalizer,
    check_runtime,
    detect_schema,
)
from tpugraphs.errors import BadFile
from tpugraphs.types import Array, relative_runtime

MANIFEST, CODES, CONFIGS, PLAIN, RUNTIMES, GRAPH = (
    "manifest.json",
    "codes.npy",
    "configs.npz",
    "plain.npy",
    "runtime.npy",
    "graph.npz",
)
NODE_RUNTIMES = "node_runtime.npy"
Advance = Callable[[float], None]
"""Is told what further share of the features has been read; the shares add up to 1."""


def write_pack(
    folder: Path,
    source: ArraySource,
    *,
    name: str,
    origin: Origin,
    advance: Advance = lambda _: None,
    schema: Schema | None = None,
    node_runtime: NDArray[np.float32] | None = None,
) -> GraphManifest:
    """Makes the pack of an official file, or of arrays with a schema of their own; it appears whole or not at all."""
    label = source.label
    schema = schema or detect_schema(source.headers, label)
    check_headers(schema, source.headers, label)
    arrays = {key: source.read(key) for key in schema.graph_keys}
    check_arrays(arrays, label)
    check_normalizer(arrays.get(NORMALIZER), label)
    runtime = source.read(RUNTIME)
    labelled = check_runtime(runtime, label)
    with files.folder_aside(folder) as aside:
        _write_npz(aside / GRAPH, arrays, source.headers)
        save_npy(aside / RUNTIMES, runtime)
        if node_runtime is not None:
            save_npy(aside / NODE_RUNTIMES, node_runtime)
        coded = _encode(source, schema, advance)
        if coded is None:
            identity = _write_plain(aside / PLAIN, source, schema)
        else:
            codes, book = coded
            save_npy(aside / CODES, codes)
            _write_npz(aside / CONFIGS, _tables(book))
            identity = stats.config_identity(codes)
        cost = relative_runtime(runtime, arrays.get(NORMALIZER)) if labelled else None
        manifest = GraphManifest(
            name=name,
            schema=schema,
            headers=dict(source.headers),
            coded=coded is not None,
            files={path.name: FileRecord.of(path) for path in sorted(aside.iterdir())},
            summary=_summary(schema, arrays, runtime, cost, identity),
            origin=origin,
        )
        files.write_json(aside / MANIFEST, manifest.to_json())
    return manifest


def _encode(source: ArraySource, schema: Schema, advance: Advance) -> tuple[Array, Codebook] | None:
    key = schema.config_key
    header = source.headers[key]
    places = header.shape[1]
    width = header.shape[2] if len(header.shape) == 3 else 1
    encoder = Encoder(places, width, header.dtype)
    try:
        for block in source.blocks(key):
            encoder.add(block.reshape(len(block), places, width))
            advance(len(block) / header.shape[0])
        codes, book = encoder.finish()
    except DictionaryFull:
        return None
    if not np.isfinite(book.vectors).all():
        raise BadFile(source.label, key, expected="finite numbers", found="NaN or infinity")
    return codes, book


def _write_plain(path: Path, source: ArraySource, schema: Schema) -> NDArray[np.intp]:
    header = source.headers[schema.config_key]
    target = np.lib.format.open_memmap(path, mode="w+", dtype=header.dtype, shape=header.shape)
    start = 0
    for block in source.blocks(schema.config_key):
        if not np.isfinite(block).all():
            raise BadFile(source.label, schema.config_key, expected="finite numbers", found="NaN or infinity")
        target[start : start + len(block)] = block
        start += len(block)
    target.flush()
    return stats.config_identity(target)


def _tables(book: Codebook) -> dict[str, Array]:
    return {
        "vectors": book.vectors,
        "group_of_place": book.group_of_place,
        "group_sizes": book.group_sizes,
        "place_vectors": book.place_vectors,
    }


def _write_npz(path: Path, arrays: dict[str, Array], headers: dict[str, ArrayHeader] | None = None) -> None:
    with NpzWriter(path) as writer:
        for key, array in arrays.items():
            writer.write(key, array, None if headers is None else headers[key])


def _summary(
    schema: Schema,
    arrays: dict[str, Array],
    runtime: Array,
    cost: NDArray[np.float64] | None,
    identity: NDArray[np.intp],
) -> dict[str, Any]:
    floor, pairs = None, 0
    if cost is not None and schema.equal_rows_are_repeats:
        floor, pairs = stats.noise_floor(identity, cost)
    return {
        "nodes": len(arrays["node_opcode"]),
        "edges": len(arrays["edge_index"]),
        "configurable_nodes": len(arrays.get("node_config_ids", ())),
        "configs": len(runtime),
        "unique_configs": int(identity.max(initial=-1)) + 1,
        "best_ns": None if cost is None else runtime.min().item(),
        "worst_ns": None if cost is None else runtime.max().item(),
        "spread": None if cost is None else float(cost.max() / cost.min()),
        "noise_floor": floor,
        "repeat_pairs": pairs,
    }
