"""Reads a whole root once and says everything that is not as its manifests say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tpugraphs import files
from tpugraphs.data import stats
from tpugraphs.data.collection import Collection, collections_under, graph_folder, read_collection
from tpugraphs.data.packed import PackedGraph
from tpugraphs.data.schema import NORMALIZER, check_arrays, check_normalizer, check_runtime
from tpugraphs.errors import BadFile, BadRequest, TpuGraphsError


@dataclass(frozen=True, slots=True)
class Checked:
    """What verifying one collection found."""

    collection: str
    graphs: int
    bytes: int
    problems: tuple[str, ...]
    """One sentence each; none means all is well."""


def verify_root(root: Path, *, on_graph: Callable[[PackedGraph], None] | None = None) -> list[Checked]:
    """Checks all collections under a root, or the one whose folder `root` is."""
    folders = [root] if (root / "graphs").is_dir() else collections_under(root)
    if not folders:
        raise BadRequest(f"{root}: no collection to verify there")
    return [_verify_collection(folder, on_graph) for folder in folders]


def _verify_collection(folder: Path, on_graph: Callable[[PackedGraph], None] | None) -> Checked:
    try:
        manifest = read_collection(folder)
    except TpuGraphsError as error:
        return Checked(folder.name, 0, 0, (str(error),))
    problems = list(_strays(folder, set(manifest.rows)))
    total = 0
    for graph in Collection(folder, manifest, None):
        if on_graph:
            on_graph(graph)
        try:
            total += _verify_graph(graph)
        except TpuGraphsError as error:
            problems.append(str(error))
    return Checked(manifest.name, len(manifest.rows), total, tuple(problems))


def _strays(folder: Path, known: set[str]) -> Iterator[str]:
    for path in sorted((folder / "graphs").iterdir()):
        if path.name.startswith(files.ASIDE):
            yield f"{path}: left by an interrupted import; run the import again, or remove it"
        elif path.name not in known:
            yield f"{path}: packed but not part of the collection; run the interrupted import again, or remove it"
    for name in sorted(known):
        if not graph_folder(folder, name).is_dir():
            yield f"{graph_folder(folder, name)}: expected the pack of {name}, found nothing; import it again"


def _verify_graph(graph: PackedGraph) -> int:
    """Checks one pack, from its manifest's checksum to the summary that its data must give again; returns its bytes."""
    folder, total = graph.files.folder, 0
    if not folder.is_dir():
        return 0  # already told
    manifest = graph.files.manifest
    for name, record in manifest.files.items():
        path = folder / name
        files.read_bytes(path, "pack")
        if path.stat().st_size != record.bytes or files.sha256(path) != record.sha256:
            raise BadFile(path, "checksum", expected=record.sha256[:12], found="another", todo="import the graph again")
        total += record.bytes
    arrays = graph.files.graph_arrays()
    check_arrays(arrays, folder)
    check_normalizer(arrays.get(NORMALIZER), folder)
    labelled = check_runtime(graph.config_runtime, folder)
    for block in graph.feature_blocks():
        if not np.isfinite(block).all():
            raise BadFile(folder, manifest.schema.config_key, expected="finite numbers", found="NaN or infinity")
    _check_summary(graph, labelled)
    return total


def _check_summary(graph: PackedGraph, labelled: bool) -> None:
    row, folder = graph.summary, graph.files.folder
    found = {
        "nodes": len(graph.node_opcode),
        "edges": len(graph.edge_index),
        "configs": len(graph.config_runtime),
        "unique_configs": int(graph.config_identity.max()) + 1,
        "labelled": labelled,
    }
    if labelled and graph.schema.equal_rows_are_repeats:
        found["noise_floor"], found["repeat_pairs"] = stats.noise_floor(graph.config_identity, graph.relative_runtime)
    for key, value in found.items():
        if getattr(row, key) != value:
            raise BadFile(folder, f"summary: {key}", expected=str(getattr(row, key)), found=str(value))
