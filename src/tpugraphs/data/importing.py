"""From official files (npz, raw protobufs), loose or in tar archives, to packs. Interrupted imports go on."""

from __future__ import annotations

import contextlib
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import IO, Protocol

from tpugraphs import files
from tpugraphs.data.collection import (
    COLLECTION,
    CollectionManifest,
    graph_folder,
    read_collection,
    write_collection,
)
from tpugraphs.data.manifest import GraphManifest, Origin
from tpugraphs.data.names import SPLITS, Place, check_graph, collection_folder, place_of, place_of_archive
from tpugraphs.data.npz import ZIP45, ArraySource, NpzReader
from tpugraphs.data.pack import MANIFEST, write_pack
from tpugraphs.data.protos import RawGraph, raw_graphs
from tpugraphs.errors import BadFile, BadRequest
from tpugraphs.types import GraphSummary

_SPOOL_BYTES = 64 << 20
_RAW = ".pb"
ADDED, PRESENT, LEFT_OUT = "added", "present", "left out"
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")


class Progress(Protocol):
    """Hears how an import goes; sizes are bytes of the packed source."""

    def begin(self, total_bytes: int) -> None: ...
    def graph(self, place: Place) -> None: ...
    def advance(self, done_bytes: float) -> None: ...


class Silent:
    """Progress for those who do not watch."""

    def begin(self, total_bytes: int) -> None:
        pass

    def graph(self, place: Place) -> None:
        pass

    def advance(self, done_bytes: float) -> None:
        pass


@dataclass(slots=True)
class ImportReport:
    """What an import did."""

    imported: list[Place] = field(default_factory=list)
    present: list[Place] = field(default_factory=list)
    """Already there from before, with the same content."""
    left_out: list[Place] = field(default_factory=list)
    """Kernels of raw files with fewer than two good runs; the release leaves them out too."""
    failed: list[str] = field(default_factory=list)
    """One sentence a file that was passed over."""

    @property
    def collections(self) -> list[str]:
        return sorted({place.collection for place in (*self.imported, *self.present)})


def import_official(
    source: Path,
    root: Path,
    *,
    collection: str | None = None,
    split: str | None = None,
    keep_going: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Makes packs of every official file, npz or raw protobuf, in a folder, a tar archive, or of one file.

    Collection and split are read off the paths (`layout/xla/random/valid/x.npz`) unless they are given.
    With `keep_going`, a bad file is reported and passed over; else it ends the import, and what was already
    packed waits for the next run.
    """
    progress = progress or Silent()
    report = ImportReport()
    writers: dict[str, _CollectionWriter] = {}
    with contextlib.ExitStack() as locks:
        for item in _items(source, collection, split, progress):
            progress.graph(item.place)
            name = item.place.collection
            try:
                if name not in writers:
                    folder = collection_folder(root, name)
                    locks.enter_context(files.sole_writer(folder))
                    writers[name] = _CollectionWriter(folder, name)
                done = writers[name].add(item, progress)
            except BadFile as error:
                if not keep_going:
                    raise
                report.failed.append(str(error))
                continue
            {ADDED: report.imported, PRESENT: report.present, LEFT_OUT: report.left_out}[done].append(item.place)
        if not writers:
            raise BadRequest(
                f"{source}: no official file in it; expected files like layout/xla/random/valid/NAME.npz or NAME.pb"
            )
        for writer in writers.values():
            writer.finish()
    return report


@dataclass(frozen=True, slots=True)
class _Item:
    """One graph to import: of an npz file open for reading, or of a raw protobuf."""

    place: Place
    label: str
    file: IO[bytes]
    size: int
    """Bytes of the file that are this graph's."""
    raw: RawGraph | None = None

    @contextlib.contextmanager
    def arrays(self) -> Iterator[tuple[ArraySource | None, int]]:
        """The official arrays (None for a graph that is left out), and the zip version of the file."""
        if self.raw is not None:
            yield self.raw.arrays(), ZIP45
            return
        self.file.seek(0)
        with NpzReader(self.file, self.label) as reader:
            yield reader, reader.zip_version


class _CollectionWriter:
    """Adds graphs to one collection; the collection is rewritten once, at the end."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        known = read_collection(folder) if (folder / COLLECTION).exists() else None
        self._rows = dict(known.rows) if known else {}
        self._digests = dict(known.digests) if known else {}
        self._schema = known.schema if known else None
        for left in (folder / "graphs").glob(f"{files.ASIDE}*"):  # by a killed import; we are the sole writer
            shutil.rmtree(left, ignore_errors=True)

    def add(self, item: _Item, progress: Progress) -> str:
        """Packs a graph unless the same content is packed already; returns which it was."""
        place = item.place
        here = self._rows.get(place.graph)
        if here is not None and here.split != place.split:
            raise BadRequest(f"{item.label}: {place.graph} is already in the {here.split} split of {self._name}")
        origin = Origin(str(place.npz_path()), item.size, files.sha256_of(item.file), 0)
        target = graph_folder(self._folder, place.graph)
        fresh = not target.exists()
        if fresh:
            manifest = self._pack(item, target, origin, progress)
            if manifest is None:
                return LEFT_OUT
        else:
            manifest = self._reuse(item, target, origin)
            progress.advance(item.size)
        if self._schema not in (None, manifest.schema):
            raise BadRequest(f"{item.label}: a {manifest.schema.name} file cannot join {self._name}")
        self._schema = manifest.schema
        self._rows[place.graph] = GraphSummary(name=place.graph, split=place.split, **manifest.summary)
        self._digests[place.graph] = files.sha256(target / MANIFEST)
        return ADDED if fresh else PRESENT

    def finish(self) -> None:
        if not self._rows or self._schema is None:
            return
        rows = sorted(self._rows.values(), key=lambda row: (SPLITS.index(row.split), row.name))
        manifest = CollectionManifest(self._name, self._schema, {row.name: row for row in rows}, self._digests)
        write_collection(self._folder, manifest)

    def _pack(self, item: _Item, target: Path, origin: Origin, progress: Progress) -> GraphManifest | None:
        told = 0.0

        def advance(share: float) -> None:
            nonlocal told
            told += share * item.size
            progress.advance(share * item.size)

        with item.arrays() as (arrays, zip_version):
            origin = replace(origin, zip_version=zip_version)
            manifest = None
            if arrays is not None:
                manifest = write_pack(target, arrays, name=item.place.graph, origin=origin, advance=advance)
        progress.advance(item.size - told)
        return manifest

    def _reuse(self, item: _Item, target: Path, origin: Origin) -> GraphManifest:
        path = target / MANIFEST
        manifest = GraphManifest.read(path, files.read_bytes(path, "manifest"))
        if manifest.origin.sha256 != origin.sha256:
            raise BadRequest(
                f"{item.label}: {item.place} is already packed from a file of other content; "
                f"import into another root, or remove {target} first"
            )
        return manifest


def _items(source: Path, collection: str | None, split: str | None, progress: Progress) -> Iterator[_Item]:
    if not source.exists():
        raise BadRequest(f"{source}: no such file or folder to import")
    if source.is_file() and not _wanted(source):
        raise BadRequest(
            f"{source}: neither an npz or pb file nor a tar archive; expected a folder of official files, "
            f"a tar archive of them, or one file"
        )
    found = [source] if source.is_file() else _files_below(source)
    progress.begin(sum(path.stat().st_size for path in found))
    for path in found:
        if path.name.endswith(_ARCHIVES):
            yield from _archive_items(path, collection, split)
        else:
            place = place_of(PurePath(path.absolute()), collection=collection, split=split)
            if place is None:
                raise _placeless(path)
            with path.open("rb") as file:
                yield from _graphs_of(place, str(path), file, path.stat().st_size)


def _graphs_of(place: Place, label: str, file: IO[bytes], size: int) -> Iterator[_Item]:
    """An npz file holds one graph, a raw protobuf one or many."""
    if not label.endswith(_RAW):
        yield _Item(place, label, file, size)
        return
    graphs = raw_graphs(file.read(), label)
    for raw in graphs:
        here = replace(place, graph=check_graph(place.graph + raw.suffix))
        yield _Item(here, raw.label, file, size // len(graphs), raw)


def _files_below(folder: Path) -> list[Path]:
    """A folder's npz files and archives; its raw files only where there are none: they hold the same graphs."""
    found = sorted(path for path in folder.rglob("*") if _wanted(path))
    return [path for path in found if path.suffix != _RAW] or found


def _wanted(path: Path) -> bool:
    return path.is_file() and path.name.endswith((".npz", _RAW, *_ARCHIVES)) and path.name[0] != "."


def _archive_items(path: Path, collection: str | None, split: str | None) -> Iterator[_Item]:
    """The npz members of a tar archive, one at a time; their paths only tell where a graph belongs."""
    named_collection, named_split = place_of_archive(path.name)
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                if not member.isreg() or not member.name.endswith((".npz", _RAW)):
                    continue
                label, inner = f"{path}:{member.name}", PurePath(member.name)
                place = place_of(inner, collection=collection, split=split) or place_of(
                    inner, collection=collection or named_collection, split=split or named_split
                )
                if place is None:
                    raise _placeless(label)
                stream = archive.extractfile(member)
                if stream is None or member.issparse():
                    raise BadFile(label, "member", expected="an ordinary file", found="another kind")
                with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as spooled:
                    shutil.copyfileobj(stream, spooled)
                    spooled.seek(0)
                    yield from _graphs_of(place, label, spooled, member.size)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise BadFile(path, "archive", expected="a whole tar archive", found=str(error)) from error


def _placeless(label: str | Path) -> BadRequest:
    return BadRequest(
        f"{label}: its path does not say which collection and split it belongs to (expected a path like "
        f"layout/xla/random/valid/NAME.npz); say so with --collection and --split"
    )
