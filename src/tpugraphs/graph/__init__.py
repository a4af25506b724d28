"""A program as arrays: the opcode table and the feature columns by name."""

from tpugraphs.graph.columns import LAYOUT_CONFIG_FEATURES, NODE_FEATURES, TILE_CONFIG_FEATURES
from tpugraphs.graph.opcodes import OPCODES, opcode_name

__all__ = ["LAYOUT_CONFIG_FEATURES", "NODE_FEATURES", "OPCODES", "TILE_CONFIG_FEATURES", "opcode_name"]
