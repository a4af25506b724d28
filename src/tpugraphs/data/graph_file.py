"""A captured graph as one npz file: the official arrays under their official names, and beside them what is more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tpugraphs import files
from tpugraphs.data.npz import NpzReader, NpzWriter
from tpugraphs.data.schema import check_arrays
from tpugraphs.errors import BadFile
from tpugraphs.graph import CapturedGraph
from tpugraphs.types import Array

SCHEMA_VERSION = 1
_OFFICIAL = ("node_feat", "node_opcode", "edge_index", "node_config_ids", "node_splits")
_ABOUT, _EXTENDED, _COMPUTATION, _MULTIPLY_ADDS, _HLO = "about", "extended_feat", "computation", "multiply_adds", "hlo"


def save_graph(graph: CapturedGraph, path: Path) -> None:
    """Writes the graph; loaders of official files find what they know and may ignore the rest."""
    about = {
        "schema_version": SCHEMA_VERSION,
        "name": graph.name,
        "stage": graph.stage,
        "node_names": graph.node_names,
        "computation_names": graph.computation_names,
        "entry": graph.entry,
        "config_tags": graph.config_tags,
        "extended": list(graph.extended),
        "unknown_opcodes": dict(graph.unknown_opcodes),
        "parameters": graph.parameters,
    }
    arrays: dict[str, Array] = {key: array for key in _OFFICIAL if (array := getattr(graph, key)) is not None}
    arrays[_EXTENDED] = np.stack(list(graph.extended.values()), axis=1)
    arrays[_COMPUTATION], arrays[_MULTIPLY_ADDS] = graph.computation, graph.multiply_adds
    arrays[_ABOUT] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    arrays[_HLO] = np.frombuffer(graph.hlo, np.uint8)
    with files.file_aside(path) as aside, NpzWriter(aside) as writer:
        for key, array in arrays.items():
            writer.write(key, np.ascontiguousarray(array))


def load_graph(path: Path) -> CapturedGraph:
    """Reads what `save_graph` wrote."""
    with NpzReader(path) as reader:
        for key in (*_OFFICIAL[:3], _EXTENDED, _COMPUTATION, _MULTIPLY_ADDS, _ABOUT, _HLO):
            if key not in reader.headers:
                raise BadFile(path, key, expected="this key in a captured graph", found=", ".join(reader.headers))
        arrays = {key: reader.read(key) for key in reader.keys}
    about = _about(arrays[_ABOUT], path)
    official = {key: arrays.get(key) for key in _OFFICIAL}
    check_arrays({key: array for key, array in official.items() if array is not None}, path)
    return CapturedGraph(
        **official,  # pyright: ignore[reportArgumentType]
        name=about["name"],
        stage=about["stage"],
        node_names=tuple(about["node_names"]),
        computation=arrays[_COMPUTATION],
        computation_names=tuple(about["computation_names"]),
        entry=about["entry"],
        config_tags=tuple(about["config_tags"]),
        extended=dict(zip(about["extended"], arrays[_EXTENDED].T, strict=True)),
        multiply_adds=arrays[_MULTIPLY_ADDS],
        unknown_opcodes=about["unknown_opcodes"],
        parameters=about["parameters"],
        hlo=arrays[_HLO].tobytes(),
    )


def _about(raw: Array, path: Path) -> dict[str, Any]:
    about = files.parse_json(raw.tobytes(), path, _ABOUT)
    version = about.get("schema_version") if isinstance(about, dict) else None
    if version != SCHEMA_VERSION:
        raise BadFile(path, f"{_ABOUT}: schema_version", expected=str(SCHEMA_VERSION), found=str(version))
    return about
