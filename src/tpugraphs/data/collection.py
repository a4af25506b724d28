"""A named collection on disk: its manifest, its frozen splits, and `load`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpugraphs import files
from tpugraphs.data.manifest import SCHEMA_VERSION, SUMMARY_FIELDS, Reader, read_schema, read_summary
from tpugraphs.data.names import SPLITS, check_collection, check_graph, check_split, collection_folder, default_root
from tpugraphs.data.packed import PackedGraph, PackFiles
from tpugraphs.data.schema import Schema
from tpugraphs.errors import BadFile, BadRequest
from tpugraphs.graph.columns import NODE_FEATURES
from tpugraphs.types import GraphSummary

COLLECTION = "collection.json"
_UNFINISHED = "run the same import again, it goes on where it stopped"


@dataclass(frozen=True, slots=True)
class CollectionManifest:
    """What a collection's folder says it holds."""

    name: str
    schema: Schema
    rows: dict[str, GraphSummary]
    """By name, in the order of the splits and then of the names."""
    digests: dict[str, str]
    """The sha256 of each graph's own manifest."""
    fingerprint: Mapping[str, str] | None = None
    """Of the machine that measured; the release does not say."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """By graph, what its measuring was like: only of collections that this project measured."""

    @property
    def synthetic(self) -> bool:
        """Whether run times come from a formula instead of a machine."""
        return self.name.split(":")[1].startswith(("synthetic", "simulated"))

    def graphs_in(self, split: str | None) -> list[str]:
        return [name for name, row in self.rows.items() if split in (None, row.split)]


def graph_folder(folder: Path, name: str) -> Path:
    return folder / "graphs" / name


def write_collection(folder: Path, manifest: CollectionManifest) -> None:
    """Writes the splits and then the manifest that vouches for them."""
    splits = {split: _split_text(manifest.graphs_in(split)) for split in SPLITS}
    for split, text in splits.items():
        files.write_text(folder / "splits" / f"{split}.txt", text)
    origin = "measured by `tpugraphs collect`" if manifest.measured else "official npz files"
    origin = "synthetic: made from a formula, not measured" if manifest.synthetic else origin
    value = {
        "schema_version": SCHEMA_VERSION,
        "name": manifest.name,
        "schema": manifest.schema.name,
        "origin": origin,
        "fingerprint": manifest.fingerprint,
        "measured": manifest.measured,
        "columns": {"node": NODE_FEATURES, "config": manifest.schema.config_columns},
        "splits": {split: _digest(text) for split, text in splits.items()},
        "graphs": {
            name: {**{field: getattr(row, field) for field in SUMMARY_FIELDS}, "manifest": manifest.digests[name]}
            for name, row in manifest.rows.items()
        },
    }
    files.write_sealed_json(folder / COLLECTION, value)


def read_collection(folder: Path) -> CollectionManifest:
    path = folder / COLLECTION
    if not path.exists():
        raise BadFile(path, "collection", expected="a finished import", found="a half-finished one", todo=_UNFINISHED)
    top = Reader(path, files.read_sealed_json(path, "collection", "import the data again"), "collection")
    top.check_version()
    schema = read_schema(top, top.inner("columns"), "config")
    split_of = _read_splits(folder, top.inner("splits"))
    graphs = top.each("graphs")
    if split_of.keys() != graphs.keys():
        found = f"{len(split_of)} graphs in the splits and {len(graphs)} in the collection"
        raise BadFile(path, "graphs", expected="each graph in one split", found=found, todo=_UNFINISHED)
    rows = {
        check_graph(name): GraphSummary(name=name, split=split_of[name], **read_summary(graphs[name]))
        for name in split_of
    }
    digests = {name: reader.need("manifest", str) for name, reader in graphs.items()}
    return CollectionManifest(
        name=check_collection(top.need("name", str)),
        schema=schema,
        rows=rows,
        digests=digests,
        fingerprint=top.maybe("fingerprint", dict),
        measured=top.maybe("measured", dict) or {},
    )


def _read_splits(folder: Path, digests: Reader) -> dict[str, str]:
    """The split of each graph, from text files that must be the ones the manifest vouches for."""
    split_of: dict[str, str] = {}
    for split in SPLITS:
        path = folder / "splits" / f"{split}.txt"
        text = files.read_bytes(path, "split", _UNFINISHED)
        if _digest(text.decode("utf-8", "replace")) != digests.need(split, str):
            found = "another: edited, or a half-finished import"
            raise BadFile(
                path, "split", expected="the text this collection was made with", found=found, todo=_UNFINISHED
            )
        for name in text.decode("utf-8", "replace").split():
            if name in split_of:
                raise BadFile(path, "split", expected="each graph in one split", found=f"{name} in two")
            split_of[name] = split
    return split_of


def _split_text(names: list[str]) -> str:
    return "".join(f"{name}\n" for name in names)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Collection:
    """A collection, or one split of it: a lazy sequence of packed graphs. Safe to fork, to pickle and to spawn."""

    def __init__(self, folder: Path, manifest: CollectionManifest, split: str | None) -> None:
        self.folder, self.split = folder, split
        self._manifest = manifest
        self.names: tuple[str, ...] = tuple(manifest.graphs_in(split))
        self._files: dict[str, PackFiles] = {}

    @property
    def name(self) -> str:
        return self._manifest.name

    @property
    def schema(self) -> Schema:
        return self._manifest.schema

    @property
    def synthetic(self) -> bool:
        """Whether the run times come from a formula instead of a machine."""
        return self._manifest.synthetic

    @property
    def fingerprint(self) -> Mapping[str, str] | None:
        """Of the machine that measured; None where nobody said."""
        return self._manifest.fingerprint

    @property
    def measured(self) -> Mapping[str, Any]:
        """By graph: failures by class, how many repeats, what speaks against trusting it."""
        return self._manifest.measured

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """Names of the feature columns, of nodes and of configs."""
        return {"node": NODE_FEATURES, "config": self.schema.config_columns}

    def table(self) -> list[GraphSummary]:
        """A row a graph; `pandas.DataFrame(ds.table())` makes a frame of it."""
        return [self._manifest.rows[name] for name in self.names]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, which: int | str) -> PackedGraph:
        if isinstance(which, str):
            name = which
            if name not in self._manifest.rows or name not in self.names:
                raise BadRequest(f"{name}: no such graph in {self}; `tpugraphs info {self.name}` lists them")
        else:
            name = self.names[which]
        if name not in self._files:
            self._files[name] = PackFiles(graph_folder(self.folder, name), self._manifest.digests[name])
        return PackedGraph(self._manifest.rows[name], self._files[name])

    def __iter__(self) -> Iterator[PackedGraph]:
        return (self[name] for name in self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __str__(self) -> str:
        return f"{self.name}{f' ({self.split})' if self.split else ''}"

    def __repr__(self) -> str:
        return f"<Collection {self}: {len(self)} graphs in {self.folder}>"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": {}}


def load(
    name: str | os.PathLike[str], split: str | None = None, *, root: str | os.PathLike[str] | None = None
) -> Collection:
    """Opens a collection by name under `root` (default: $TPUGRAPHS_ROOT, else ~/.cache/tpugraphs), or by its path."""
    if split is not None:
        check_split(split)
    if isinstance(name, os.PathLike) or os.sep in name:
        folder = Path(name).expanduser()
        where = f"{folder}"
    else:
        base = Path(root).expanduser() if root is not None else default_root()
        folder = collection_folder(base, name)
        where = f"{name} under {base}"
    if not folder.is_dir():
        raise BadRequest(f"{where}: no such collection; {_what_is_there(folder.parent)}")
    manifest = read_collection(folder)
    if not isinstance(name, os.PathLike) and os.sep not in name and manifest.name != name:
        raise BadFile(folder / COLLECTION, "name", expected=name, found=manifest.name)
    return Collection(folder, manifest, split)


def collections_under(root: Path) -> list[Path]:
    """The folders of the collections under a root, finished or not."""
    if not root.is_dir():
        return []
    found = (path for path in root.iterdir() if (path / COLLECTION).exists() or (path / "graphs").is_dir())
    return sorted(path for path in found if not path.name.startswith("."))


def _what_is_there(root: Path) -> str:
    if (root / "npz").is_dir() or (root / "layout").is_dir() or (root / "tile").is_dir():
        return f"{root} holds official npz files: make packs of them with `tpugraphs import {root} --into ROOT`"
    names = [path.name for path in collections_under(root)]
    there = f"there are {', '.join(names)}" if names else "none is there"
    return f"{there}; make one with `tpugraphs import` or `tpugraphs synth`, or say where with --root"
