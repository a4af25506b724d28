"""Names of collections, splits and graphs, and where they stand in a tree of official files."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePath

from tpugraphs.errors import BadRequest

SPLITS = ("train", "valid", "test")
OFFICIAL = (
    "tile:xla",
    "layout:xla:random",
    "layout:xla:default",
    "layout:nlp:random",
    "layout:nlp:default",
)
_FOLDERS_OF = {"tile": (2, 3), "layout": (3,)}
_NAME = re.compile(r"[a-z][a-z0-9+]*(:[A-Za-z0-9][A-Za-z0-9_.-]*){1,2}")
_GRAPH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=,@~-]{0,199}")
_ARCHIVE = re.compile(r"npz_(tile_[a-z0-9-]+|layout_[a-z0-9-]+_[a-z0-9-]+)(?:_(train|valid|test))?\.")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a graph belongs."""

    collection: str
    split: str
    graph: str

    def npz_path(self) -> PurePath:
        """The place in the release's tree, below its root."""
        return PurePath("npz", *self.collection.split(":"), self.split, f"{self.graph}.npz")

    def __str__(self) -> str:
        return f"{self.collection}/{self.split}/{self.graph}"


def default_root() -> Path:
    """Where collections are kept when no root is given."""
    root = os.environ.get("TPUGRAPHS_ROOT")
    return Path(root).expanduser() if root else Path.home() / ".cache" / "tpugraphs"


def check_collection(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadRequest(
            f"{name!r} is not the name of a collection: expected space:source:search such as layout:xla:random, "
            f"or space:source such as tile:xla"
        )
    return name


def check_split(split: str) -> str:
    if split not in SPLITS:
        raise BadRequest(f"{split!r} is not a split: expected one of {', '.join(SPLITS)}")
    return split


def check_graph(name: str) -> str:
    """Graph names become folder names, so only harmless characters pass."""
    if not _GRAPH.fullmatch(name):
        raise BadRequest(
            f"{name[:80]!r} cannot name a graph: expected up to 200 letters, digits and _ . + = , @ ~ -, "
            f"starting with a letter, digit or _"
        )
    return name


def collection_folder(root: Path, name: str) -> Path:
    return root / check_collection(name).replace(":", "-")


def place_of(path: PurePath, *, collection: str | None = None, split: str | None = None) -> Place | None:
    """Reads collection, split and graph off a path like `.../layout/xla/random/valid/unet.npz`.

    What the caller names goes before what the path says; None where something stays unknown.
    """
    folders = path.parts[:-1]
    if folders and folders[-1] in SPLITS:
        split, folders = split or folders[-1], folders[:-1]
    collection = collection or _collection_of(folders)
    if collection is None or split is None:
        return None
    return Place(
        check_collection(collection),
        check_split(split),
        check_graph(path.name.removesuffix(".npz").removesuffix(".pb")),
    )


def _collection_of(folders: tuple[str, ...]) -> str | None:
    for count in (3, 2):
        tail = folders[-count:]
        if len(tail) == count and count in _FOLDERS_OF.get(tail[0], ()):
            return ":".join(tail)
    return None


def place_of_archive(name: str) -> tuple[str | None, str | None]:
    """Collection and split by the name of one of the release's tar files, `npz_layout_xla_random_valid.tar`."""
    match = _ARCHIVE.match(name)
    return (match[1].replace("_", ":"), match[2]) if match else (None, None)
