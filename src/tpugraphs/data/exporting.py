"""From packs back to official npz files, byte for byte where this machine's zlib packs as the release's did."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tpugraphs import files
from tpugraphs.data.collection import Collection
from tpugraphs.data.importing import Progress, Silent
from tpugraphs.data.names import Place
from tpugraphs.data.npz import NpzWriter
from tpugraphs.data.packed import PackedGraph
from tpugraphs.data.schema import RUNTIME
from tpugraphs.errors import BadRequest


@dataclass(slots=True)
class ExportReport:
    """What an export did."""

    written: list[Place] = field(default_factory=list)
    present: list[Place] = field(default_factory=list)
    """Already there, the very file the pack was made from."""
    identical: int = 0
    """How many of the written files are byte for byte the file the pack was made from."""


def export_official(collection: Collection, into: Path, *, progress: Progress | None = None) -> ExportReport:
    """Writes every graph as an official npz file into the release's tree below `into`."""
    progress = progress or Silent()
    report = ExportReport()
    progress.begin(sum(graph.files.manifest.origin.bytes for graph in collection))
    for graph in collection:
        place = Place(collection.name, graph.split, graph.name)
        path, origin = into / place.npz_path(), graph.files.manifest.origin
        progress.graph(place)
        if path.exists():
            if files.sha256(path) != origin.sha256 and not _same(graph, path):
                raise BadRequest(f"{path}: exists and differs from what would be written; choose another folder")
            report.present.append(place)
        else:
            write_official(graph, path)
            report.written.append(place)
            report.identical += files.sha256(path) == origin.sha256
        progress.advance(origin.bytes)
    return report


def _same(graph: PackedGraph, path: Path) -> bool:
    """Whether the file is what would be written, for graphs that do not come from such a file."""
    with tempfile.TemporaryDirectory(prefix="tpugraphs-export-") as folder:
        again = Path(folder) / path.name
        write_official(graph, again)
        return files.sha256(again) == files.sha256(path)


def write_official(graph: PackedGraph, path: Path) -> None:
    """One graph as an official npz file: keys in their order, dtypes, shapes and memory order as they were."""
    manifest = graph.files.manifest
    arrays = graph.files.graph_arrays()
    with (
        files.file_aside(path) as aside,
        NpzWriter(aside, zip_version=manifest.origin.zip_version) as writer,
    ):
        for key, header in manifest.headers.items():
            if key == manifest.schema.config_key:
                with writer.stream(key, header) as put:
                    for block in graph.feature_blocks():
                        put(block)
            else:
                writer.write(key, graph.config_runtime if key == RUNTIME else arrays[key], header)
