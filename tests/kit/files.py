"""Small official files, whole and broken."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tpugraphs.data import Collection, import_official, load
from tpugraphs.data.synthetic import layout_graph, tile_graph

LAYOUT_NAME, TILE_NAME = "layout:synthetic:random", "tile:synthetic"
Arrays = dict[str, np.ndarray]


def layout_arrays(seed: int = 0, configs: int = 30) -> Arrays:
    return layout_graph(seed, nodes=60, layers=3, configs=configs).arrays


def tile_arrays(seed: int = 0, configs: int = 20) -> Arrays:
    return tile_graph(seed, nodes=8, configs=configs).arrays


def write(
    folder: Path, arrays: Arrays, collection: str = LAYOUT_NAME, split: str = "valid", name: str = "graph"
) -> Path:
    """An official npz file in the release's tree below the folder."""
    path = folder / "npz" / collection.replace(":", "/") / split / f"{name}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)  # pyright: ignore[reportArgumentType]
    return path


def packed(folder: Path, arrays: Arrays, collection: str = LAYOUT_NAME) -> Collection:
    """The collection of one graph."""
    import_official(write(folder / "official", arrays, collection), folder / "packs")
    return load(collection, root=folder / "packs")
