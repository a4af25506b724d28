"""How many multiply-adds a convolution or a dot takes: what published figures count."""

from __future__ import annotations

import numpy as np

from tpugraphs.graph.features import by_owner
from tpugraphs.graph.hlo import HloColumns, HloFields
from tpugraphs.graph.wire import NotAMessage
from tpugraphs.types import Array


def multiply_adds(hlo: HloColumns) -> Array:
    """(n,) float64; 0 for other operations. A loop's body counts once; padding counts like data."""
    out = np.zeros(len(hlo))
    outputs = hlo.dimensions.products().astype(np.float64)
    dots, rows = hlo.sparse(HloFields.DOT)
    contracted = dots.integers(1)
    dims = _operand_dims(hlo, rows[contracted.owners], 0, contracted.values)
    out[rows] = outputs[rows] * _products(dims, contracted.counts)
    convolutions, rows = hlo.sparse(HloFields.CONVOLUTION)
    if len(rows):
        windows, owner_of_window = hlo.sparse(HloFields.WINDOW)
        dimensions, owner = windows.children(HloFields.WINDOW_DIMENSIONS)
        size = by_owner(dimensions, owner, 1, len(windows)).spread(owner_of_window, len(hlo)).products()
        inputs = _operand_dims(hlo, rows, 1, convolutions.integer(3))
        out[rows] = outputs[rows] * size[rows] * inputs
    is_convolution = np.fromiter((name in ("dot", "convolution") for name in hlo.opcodes), bool, len(hlo))
    return np.where(is_convolution, out, 0)


def _operand_dims(hlo: HloColumns, rows: Array, operand: int, dims: Array) -> Array:
    """The length of one dimension of one operand of each row."""
    if not len(rows):
        return np.zeros(0)
    if (hlo.operands.counts[rows] <= operand).any():
        raise NotAMessage(f"a {hlo.opcodes[rows[0]]} without operand {operand}")
    operands = hlo.operands.values[hlo.operands.offsets[rows] + operand]
    outside = (dims < 0) | (dims >= hlo.dimensions.counts[operands])
    if outside.any():
        at = int(np.argmax(outside))
        rank = int(hlo.dimensions.counts[operands[at]])
        raise NotAMessage(f"a {hlo.opcodes[rows[at]]} over dimension {int(dims[at])} of an operand of rank {rank}")
    return hlo.dimensions.values[hlo.dimensions.offsets[operands] + dims].astype(np.float64)


def _products(values: Array, counts: Array) -> Array:
    out, offsets = np.ones(len(counts)), np.cumsum(counts) - counts
    has = counts > 0
    if has.any():
        out[has] = np.multiply.reduceat(values, offsets[has])
    return out
