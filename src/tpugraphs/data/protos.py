"""The release's raw protobufs as labelled graphs: the module re-featurised, its runs as configs and run times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tpugraphs.data.npz import ArrayHeader, header_of
from tpugraphs.errors import BadFile
from tpugraphs.graph import Contained, Graph, graph_of_hlo, modules_in
from tpugraphs.graph.wire import Ints, Messages, NotAMessage, Ragged
from tpugraphs.types import Array

_OP_CONFIG, _MODULE_CONFIG, _ERROR, _PROFILE, _IS_DEFAULT = 1, 2, 3, 4, 5
_COMPUTE_TIME_NS = 4
_RANK, _TENSORS = 6, 3
_LEAST_TILE_NS, _LEAST_TILE_RUNS = 2, 2


class ArraysInMemory:
    """Named arrays that are there already; an `ArraySource` like an npz file."""

    def __init__(self, label: str, arrays: dict[str, Array]) -> None:
        self.label, self.arrays = label, arrays
        self.headers: dict[str, ArrayHeader] = {key: header_of(array) for key, array in arrays.items()}

    def read(self, key: str) -> Array:
        return self.arrays[key]

    def blocks(self, key: str) -> Iterator[Array]:
        yield self.arrays[key]


@dataclass(frozen=True, slots=True)
class RawGraph:
    """One module of a raw file with its runs, not read yet."""

    label: str
    contained: Contained

    @property
    def suffix(self) -> str:
        """What the release appends to the program's name: of kernels `_` and the fingerprint."""
        return "" if self.is_layout else f"_{self.contained.fingerprint or 0:x}"

    def arrays(self) -> ArraysInMemory | None:
        """The official arrays; None for a kernel that the release leaves out, having too few good runs."""
        try:
            return self._layout() if self.is_layout else self._tile()
        except NotAMessage as error:
            raise BadFile(self.label, "runs", expected="whole ConfigProfile messages", found=str(error)) from error

    @property
    def is_layout(self) -> bool:
        ids = self.contained.config_ids
        return ids is not None and len(ids) > 0

    def _layout(self) -> ArraysInMemory:
        runs, time_ns, good = self._runs()
        ids = self.contained.config_ids
        assert ids is not None  # noqa: S101 (is_layout)
        if not (runs.integer(_IS_DEFAULT) > 0).any():
            raise BadFile(self.label, "runs", expected="a run of the default config", found="none")
        configs, run = runs.children(_MODULE_CONFIG)
        layouts, config = configs.children(1)
        features = _layout_features(layouts, run[config], len(runs), len(ids), self.label)
        graph = graph_of_hlo(self.contained.module, self.label)
        return ArraysInMemory(
            self.label,
            {
                **_graph_arrays(graph),
                "node_config_feat": features[good],
                "node_config_ids": ids,
                "config_runtime": time_ns[good],
                **({} if graph.node_splits is None else {"node_splits": graph.node_splits}),
            },
        )

    def _tile(self) -> ArraysInMemory | None:
        runs, time_ns, good = self._runs()
        good &= time_ns >= _LEAST_TILE_NS
        configs, run = runs.children(_OP_CONFIG)
        tiles, config = configs.children(1)
        if len(tiles) < len(runs) or good.sum() < _LEAST_TILE_RUNS:
            return None
        default = np.flatnonzero((runs.integer(_IS_DEFAULT) > 0) & good)
        if not len(default):
            raise BadFile(self.label, "runs", expected="a good run of the default config", found="none")
        features = np.zeros((len(runs), 3 * (_RANK + 2)), np.float32)
        for block in range(_TENSORS):
            bounds = tiles.integers(block + 1).spread(run[config], len(runs))
            features[:, 8 * block : 8 * block + 8] = _bounds(bounds)
        graph = graph_of_hlo(self.contained.module, self.label)
        return ArraysInMemory(
            self.label,
            {
                **_graph_arrays(graph),
                "config_feat": features[good],
                "config_runtime": time_ns[good],
                "config_runtime_normalizers": np.full(int(good.sum()), time_ns[default[0]]),
            },
        )

    def _runs(self) -> tuple[Messages, Ints, Array]:
        """The runs, their time, and which of them are good: profiled, without error."""
        runs = self.contained.runs
        if runs is None or not len(runs):
            raise BadFile(self.label, "runs", expected="a proto with measured runs", found="a module alone")
        profiles, run = runs.children(_PROFILE)
        time_ns, profiled = np.zeros(len(runs), np.int64), np.zeros(len(runs), bool)
        time_ns[run] = profiles.integer(_COMPUTE_TIME_NS)
        profiled[run] = True
        return runs, time_ns, profiled & (runs.integer(_ERROR) == 0)


def raw_graphs(data: bytes, label: str | Path) -> list[RawGraph]:
    """The modules of one of the release's raw files."""
    modules = modules_in(data, label)
    labels = [str(label)] if len(modules) == 1 else [f"{label}#{index}" for index in range(len(modules))]
    return [RawGraph(name, one) for name, one in zip(labels, modules, strict=True)]


def _graph_arrays(graph: Graph) -> dict[str, Array]:
    return {"node_feat": graph.node_feat, "node_opcode": graph.node_opcode, "edge_index": graph.edge_index}


def _layout_features(layouts: Messages, run: Ints, runs: int, nodes: int, label: str) -> Array:
    """(runs, nodes, 18): output, input and kernel layout of each configurable node, -1 padded."""
    per_node, layout = layouts.children(1)
    if (counts := np.bincount(layout, minlength=len(layouts))).size and (counts != nodes).any():
        found = f"{int(counts[counts != nodes][0])}"
        raise BadFile(label, "runs", expected=f"layouts of {nodes} nodes in every config", found=found)
    tensors, node = per_node.children(1)
    lists = tensors.integers(1)
    which = np.arange(len(tensors)) - np.searchsorted(node, node)  # the tensor's place within its node
    if (which >= _TENSORS).any() or (lists.counts > _RANK).any():
        raise BadFile(label, "runs", expected=f"up to {_TENSORS} tensors of up to {_RANK} dimensions", found="more")
    features = np.full((runs, nodes, _TENSORS * _RANK), -1, np.float32)
    values, at_run = lists.first(_RANK, fill=-1), run[layout[node]]
    at_node = node - np.searchsorted(layout, layout[node])
    features[at_run[:, None], at_node[:, None], _RANK * which[:, None] + np.arange(_RANK)] = values
    return features


def _bounds(lists: Ragged) -> Array:
    """First six, sum and product, all zero for an empty list."""
    product = np.where(lists.counts > 0, lists.products(), 0)
    return np.concatenate((lists.first(_RANK), lists.sums()[:, None], product[:, None]), axis=1)
