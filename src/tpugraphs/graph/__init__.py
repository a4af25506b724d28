"""A program as arrays: from a serialized HLO module to a Graph, its features by name, and smaller graphs."""

from tpugraphs.graph.columns import LAYOUT_CONFIG_FEATURES, NODE_FEATURES, TILE_CONFIG_FEATURES
from tpugraphs.graph.containers import Contained, modules_in
from tpugraphs.graph.extended import extended_features
from tpugraphs.graph.features import graph_of_hlo
from tpugraphs.graph.graph import CapturedGraph, Costs, Explanation, Graph
from tpugraphs.graph.opcodes import OPCODES, opcode_name
from tpugraphs.graph.prune import between, subgraph, within_hops

__all__ = [
    "LAYOUT_CONFIG_FEATURES",
    "NODE_FEATURES",
    "OPCODES",
    "TILE_CONFIG_FEATURES",
    "CapturedGraph",
    "Contained",
    "Costs",
    "Explanation",
    "Graph",
    "between",
    "extended_features",
    "graph_of_hlo",
    "modules_in",
    "opcode_name",
    "subgraph",
    "within_hops",
]
