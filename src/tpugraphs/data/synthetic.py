"""Made-up collections with a known cost function, for tests and examples. Nothing in them was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tpugraphs import files
from tpugraphs.data.names import SPLITS, Place
from tpugraphs.data.npz import NpzWriter
from tpugraphs.data.schema import LAYOUT, NORMALIZER, RUNTIME, TILE
from tpugraphs.errors import BadRequest
from tpugraphs.graph.columns import NODE_FEATURES
from tpugraphs.graph.opcodes import OPCODES
from tpugraphs.types import Array

COLLECTIONS = ("layout:synthetic:random", "tile:synthetic")
_DEFAULT_REPEATS = 40
"""The release holds about this many copies of the default config in a layout file."""


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticGraph:
    """The arrays of an official file, and the run times before noise was added."""

    arrays: dict[str, Array]
    true_ns: NDArray[np.float64]

    def save(self, path: Path) -> None:
        """As an official npz file."""
        with files.file_aside(path) as aside, NpzWriter(aside) as writer:
            for key, array in self.arrays.items():
                writer.write(key, array)


def layout_graph(
    seed: int, *, nodes: int = 400, layers: int = 12, configs: int = 600, noise: float = 0.002
) -> SyntheticGraph:
    """A graph whose configurable nodes come in repeated layers; all nodes of a layer take the same layout choice.

    The cost of a config is a base, plus what each node loses by its choice, plus a copy on every edge between
    configurable nodes whose layouts disagree. The default (all -1) loses little everywhere but is not the best.
    """
    rng = np.random.default_rng(seed)
    opcode = rng.choice([OPCODES.index(name) for name in ("add", "multiply", "maximum", "convert")], size=nodes)
    opcode[: nodes // 8] = OPCODES.index("parameter")
    ids = np.sort(rng.choice(np.arange(nodes // 8, nodes), size=min(nodes // 3, 5 * layers), replace=False))
    opcode[ids] = rng.choice([OPCODES.index(name) for name in ("convolution", "dot", "reshape")], size=len(ids))
    edges = _edges(rng, nodes, first=nodes // 8)
    layer = np.arange(len(ids)) % layers

    vectors = np.array([[-1] * 18, *rng.permutation(_two_minor_layouts())[:7]], dtype=np.float32)
    choice = rng.integers(0, len(vectors), size=(configs, layers))
    changed = rng.random((configs, layers)) < rng.uniform(0.05, 1.0, size=(configs, 1))
    choice = np.where(changed, choice, 0)
    repeats = min(_DEFAULT_REPEATS, max(2, configs // 8))
    choice[rng.choice(configs, size=repeats, replace=False)] = 0

    loss = rng.gamma(1.0, 20e3, size=(layers, len(vectors)))
    loss[:, 0] = rng.gamma(1.0, 4e3, size=layers)
    place_of = np.full(nodes, -1)
    place_of[ids] = np.arange(len(ids))
    between = place_of[edges][(place_of[edges] >= 0).all(axis=1)]
    first, second = layer[between[:, 0]], layer[between[:, 1]]
    copies = (choice[:, first] != choice[:, second]) @ rng.gamma(2.0, 4e3, size=len(between))
    node_loss = sum(loss[layer[place], choice[:, layer[place]]] for place in range(len(ids)))
    true_ns = 2e6 + node_loss + copies

    arrays = {
        "node_feat": _node_features(rng, opcode),
        "node_opcode": opcode.astype(np.uint8),
        "edge_index": np.asfortranarray(edges),
        "node_config_feat": vectors[choice[:, layer]],
        "node_config_ids": ids.astype(np.int64),
        RUNTIME: _measured(rng, true_ns, noise),
        "node_splits": np.array([[0, nodes // 2, nodes]], dtype=np.int64),
    }
    return SyntheticGraph({key: arrays[key] for key in LAYOUT.keys}, true_ns)


def tile_graph(seed: int, *, nodes: int = 24, configs: int = 120, noise: float = 0.002) -> SyntheticGraph:
    """A kernel whose cost is the padded work of its tiles plus a price per tile; row 0 is the default."""
    rng = np.random.default_rng(seed)
    opcode = rng.choice([OPCODES.index(name) for name in ("add", "multiply", "tanh", "broadcast")], size=nodes)
    opcode[: max(1, nodes // 4)] = OPCODES.index("parameter")
    shape = rng.integers(64, 600, size=3)
    bounds = _distinct_bounds(rng, shape, configs)
    configs = len(bounds)
    tiles = np.ceil(shape / bounds).prod(axis=1)
    padded = np.ceil(bounds / (1, 8, 128)) * (1, 8, 128)
    spill = np.maximum(1, padded.prod(axis=1) / 2**18)
    true_ns = tiles * (200 + padded.prod(axis=1) * spill * 0.02)
    features = np.zeros((configs, len(TILE.config_columns)), dtype=np.float32)
    features[:, 8:11] = bounds
    features[:, 14], features[:, 15] = bounds.sum(axis=1), bounds.prod(axis=1)
    runtime = _measured(rng, true_ns, noise)
    arrays = {
        "node_feat": _node_features(rng, opcode),
        "node_opcode": opcode.astype(np.uint8),
        "edge_index": _edges(rng, nodes, first=max(1, nodes // 4)),
        "config_feat": features,
        RUNTIME: runtime,
        NORMALIZER: np.full(configs, runtime[0]),
    }
    return SyntheticGraph({key: arrays[key] for key in TILE.keys}, true_ns)


def write_synthetic(into: Path, *, graphs: int = 10, configs: int = 600, seed: int = 0) -> list[Path]:
    """Writes both synthetic collections as a tree of official npz files, test labels withheld; returns the files."""
    if graphs < len(SPLITS) or configs < 2:
        raise BadRequest(f"expected at least {len(SPLITS)} graphs and 2 configs, got {graphs} and {configs}")
    written = []
    for place, graph in _collections(graphs, configs, seed):
        path = into / place.npz_path()
        if path.exists():
            raise BadRequest(f"{path}: already there; choose an empty folder")
        graph.save(path)
        written.append(path)
    return written


def _collections(graphs: int, configs: int, seed: int) -> Iterator[tuple[Place, SyntheticGraph]]:
    sizes = np.random.default_rng(seed)
    for name, make in zip(COLLECTIONS, (layout_graph, tile_graph), strict=True):
        for number in range(graphs):
            split = "test" if number == 0 else "valid" if number <= max(1, graphs // 3) else "train"
            count = int(configs * sizes.uniform(0.6, 1.4)) + 1
            graph = make(seed * 1000 + number, configs=count)
            if split == "test":
                graph.arrays[RUNTIME][:] = 0
                if NORMALIZER in graph.arrays:
                    graph.arrays[NORMALIZER][:] = 1
            yield Place(name, split, f"synth_{number:03d}"), graph


def _measured(rng: np.random.Generator, true_ns: NDArray[np.float64], noise: float) -> NDArray[np.int64]:
    return np.maximum(1, true_ns * np.exp(noise * rng.standard_normal(len(true_ns)))).astype(np.int64)


def _two_minor_layouts() -> NDArray[np.float32]:
    """Configs as of a dot: output, input and kernel each with one of two orders of their two minor dimensions."""
    rows = np.full((8, 18), -1, dtype=np.float32)
    for row in range(8):
        for tensor in range(3):
            rows[row, 6 * tensor : 6 * tensor + 2] = (0, 1) if row >> tensor & 1 else (1, 0)
    return rows


def _distinct_bounds(rng: np.random.Generator, shape: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Up to `count` different tiles of a shape: nobody enumerates the same tile twice."""
    drawn = np.minimum(rng.integers(1, 65, size=(4 * count, 3)) * (1, 4, 8), shape)
    return rng.permutation(np.unique(drawn, axis=0))[:count]


def _edges(rng: np.random.Generator, nodes: int, first: int) -> NDArray[np.int64]:
    """Each node from `first` on consumes one or two earlier ones, mostly near ones; rows sorted and distinct."""
    consumer = np.repeat(np.arange(first, nodes), 2)
    producer = np.maximum(0, consumer - 1 - rng.geometric(0.2, size=len(consumer)) + 1)
    return np.unique(np.stack([consumer, producer], axis=1), axis=0).astype(np.int64)


def _node_features(rng: np.random.Generator, opcode: NDArray[np.int64]) -> NDArray[np.float32]:
    features = np.zeros((len(opcode), len(NODE_FEATURES)), dtype=np.float32)
    column = {name: index for index, name in enumerate(NODE_FEATURES)}
    shapes = 2 ** rng.integers(3, 9, size=(6, 2))[rng.integers(0, 6, size=len(opcode))]
    features[-1, column["is_root"]] = 1
    features[:, column["element_type_f32"]] = 1
    features[:, column["shape_dim_0"] : column["shape_dim_0"] + 2] = shapes
    features[:, column["shape_dim_sum"]] = shapes.sum(axis=1)
    features[:, column["shape_dim_product"]] = shapes.prod(axis=1)
    features[:, column["layout_minor_to_major_0"]] = 1
    for name in NODE_FEATURES:
        if name.endswith("_product") and name != "shape_dim_product":
            features[:, column[name]] = 1  # as the release has it for empty lists
    return features
