"""A program or a kernel as arrays, and its features by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tpugraphs.errors import BadRequest
from tpugraphs.graph.columns import NODE_FEATURES
from tpugraphs.graph.opcodes import opcode_name
from tpugraphs.types import Array

_PLACE = {name: index for index, name in enumerate(NODE_FEATURES)}


@dataclass(frozen=True, slots=True)
class Explanation:
    """One node in words: its non-zero columns by name. Prints itself."""

    node: int
    opcode: str
    columns: Mapping[str, float]

    def __str__(self) -> str:
        width = max(map(len, self.columns), default=0)
        lines = [f"  {name:<{width}}  {value:.10g}" for name, value in self.columns.items()]
        return "\n".join([f"node {self.node}: {self.opcode}", *lines])

    __repr__ = __str__


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Graph:
    """A program or a kernel as arrays; an edge row is (consumer, producer)."""

    node_opcode: Array
    """(n,) HLO opcode ids, see `tpugraphs.graph.opcodes`."""
    node_feat: Array
    """(n, 140), columns named by `tpugraphs.graph.columns.NODE_FEATURES`."""
    edge_index: Array
    """(m, 2)"""
    node_splits: Array | None = None
    """(1, s) node offsets of the sub-programs; kernels have none."""
    node_config_ids: Array | None = None
    """(nc,) the configurable nodes; kernels have none."""

    def __repr__(self) -> str:
        configurable = 0 if self.node_config_ids is None else len(self.node_config_ids)
        return f"<{type(self).__name__}: {self.num_nodes} nodes, {self.num_edges} edges, {configurable} configurable>"

    @property
    def num_nodes(self) -> int:
        return len(self.node_opcode)

    @property
    def num_edges(self) -> int:
        return len(self.edge_index)

    def column(self, name: str) -> Array:
        """(n,) one feature of every node."""
        if name not in _PLACE:
            near = [known for known in NODE_FEATURES if name.rstrip("0123456789_") in known][:4]
            hint = f"; there are {', '.join(near)}" if near else "; `tpugraphs.graph.NODE_FEATURES` lists them"
            raise BadRequest(f"{name}: no such feature{hint}")
        return self.node_feat[:, _PLACE[name]]

    def explain(self, node: int) -> Explanation:
        """The non-zero features of one node."""
        if not -self.num_nodes <= node < self.num_nodes:
            raise BadRequest(f"node {node}: the graph has nodes 0 to {self.num_nodes - 1}")
        node %= self.num_nodes
        row = self.node_feat[node]
        columns = {NODE_FEATURES[index]: float(row[index]) for index in np.flatnonzero(row).tolist()}
        return Explanation(node, opcode_name(int(self.node_opcode[node])), columns)


@dataclass(frozen=True, slots=True)
class Costs:
    """What a run takes by XLA's own cost analysis."""

    flops: float
    transcendentals: float
    bytes_accessed: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CapturedGraph(Graph):
    """A graph with what its module says beyond the official arrays."""

    name: str = ""
    stage: str = ""
    """`lowered` as the frontend gave it, `simplified` as it enters layout assignment, or `given` by a file."""
    node_names: tuple[str, ...] = ()
    """XLA's names of the instructions."""
    computation: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """(n,) which computation a node belongs to."""
    computation_names: tuple[str, ...] = ()
    entry: int = 0
    """The computation that a run starts with."""
    config_tags: tuple[str, ...] = ()
    """The tag of each configurable node, where they have tags: what a config names it by."""
    extended: Mapping[str, Array] = field(default_factory=dict)
    """Features beyond the official ones, see `tpugraphs.graph.extended`."""
    multiply_adds: Array = field(default_factory=lambda: np.zeros(0))
    """(n,) of convolutions and dots, 0 elsewhere."""
    unknown_opcodes: Mapping[str, int] = field(default_factory=dict)
    """Opcodes that the official table does not know, and how many nodes have them; their id is 0."""
    parameters: int | None = None
    """How many trained values the program takes, where that is known."""
    costs: Costs | None = None
    hlo: bytes = b""
    """The serialized module."""

    def __repr__(self) -> str:
        return Graph.__repr__(self).replace(":", f" {self.name}, {self.stage}:", 1)

    def column(self, name: str) -> Array:
        """(n,) one feature of every node, official or `extended.NAME`."""
        if name.startswith("extended."):
            key = name.removeprefix("extended.")
            if key not in self.extended:
                raise BadRequest(f"{name}: no such feature; graph.extended has {', '.join([*self.extended][:4])} …")
            return self.extended[key]
        return Graph.column(self, name)

    def explain(self, node: int) -> Explanation:
        """The non-zero official features of one node, and the extended ones that say more."""
        official = Graph.explain(self, node)
        row = {name: float(values[official.node]) for name, values in self.extended.items()}
        silent = {
            f"{name.removeprefix('has_')}" for name, value in row.items() if name.startswith("has_") and not value
        }
        said = {
            f"extended.{name}": value
            for name, value in row.items()
            if value != -1 and name not in _PLACE and not name.startswith(("has_", *silent))
        }
        name = f"{official.opcode} {self.node_names[official.node]}" if self.node_names else official.opcode
        return Explanation(official.node, name, {**official.columns, **said})
