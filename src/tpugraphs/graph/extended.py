"""Features beyond the official 140, apart from them and by name: what those leave out, and -1 where a list has ended.

The official columns know nothing of a dot's, gather's or scatter's dimension numbers, interior padding, tuple indices,
constants or comparisons, keep two dimensions of slices and paddings, and pad lists with 0, which is also a dimension.
"""

from __future__ import annotations

import numpy as np

from tpugraphs.graph.features import by_owner
from tpugraphs.graph.hlo import HloColumns, HloFields
from tpugraphs.graph.wire import Ints, Messages, Ragged
from tpugraphs.types import Array

_RANK = 6
_COMPARISONS = ("EQ", "NE", "GE", "GT", "LE", "LT")


def extended_features(hlo: HloColumns) -> dict[str, Array]:
    """Named columns, each (n,) float64; -1 where there is nothing to say."""
    f, instructions, n = HloFields, hlo.messages, len(hlo)
    columns: dict[str, Array] = {}

    def put(name: str, lists: Ragged, length: int = _RANK) -> None:
        values = lists.first(length, fill=-1)
        columns.update({f"{name}_{index}": values[:, index] for index in range(length)})

    put("shape_dim", hlo.dimensions)
    put("layout_minor_to_major", hlo.layout)
    put("dimension", instructions.integers(f.DIMENSIONS))
    put("dynamic_slice_size", instructions.integers(f.DYNAMIC_SLICE_SIZES))
    tuple_index = instructions.integer(f.TUPLE_INDEX)
    columns["tuple_index"] = np.where(_is(hlo, "get-tuple-element"), tuple_index, -1)
    parameter = instructions.integer(f.PARAMETER_NUMBER)
    columns["parameter_number"] = np.where(_is(hlo, "parameter"), parameter, -1)
    columns["comparison"] = _comparisons(instructions)

    slices, owner = hlo.sparse(f.SLICES)
    for name, number in (("slice_start", 1), ("slice_limit", 2), ("slice_stride", 3)):
        put(name, by_owner(slices, owner, number, n))
    paddings, rows = hlo.sparse(f.PADDING)
    sides, owner = paddings.children(f.PADDING_DIMENSIONS)
    has_padding = np.zeros(n, bool)
    has_padding[rows] = True
    for name, number in (("padding_low", 1), ("padding_high", 2), ("padding_interior", 3)):
        values = by_owner(sides, owner, number, len(paddings)).spread(rows, n)
        put(name, values)  # may be negative: `has_padding` tells -1 from nothing
    columns["has_padding"] = has_padding

    _numbers(
        columns, hlo, f.DOT, {"lhs_contracting": 1, "rhs_contracting": 2, "lhs_batch": 3, "rhs_batch": 4}, "dot", 4
    )
    gather = {"offset_dim": 1, "collapsed_slice_dim": 2, "start_index_map": 3}
    _numbers(columns, hlo, f.GATHER, gather, "gather", _RANK, index_vector=4)
    put("gather_slice_size", instructions.integers(f.GATHER_SLICE_SIZES))
    scatter = {"update_window_dim": 1, "inserted_window_dim": 2, "dim_to_operand_dim": 3}
    _numbers(columns, hlo, f.SCATTER, scatter, "scatter", _RANK, index_vector=4)
    _numbers(
        columns, hlo, f.CONVOLUTION, {"input_spatial": 11, "kernel_spatial": 6, "output_spatial": 12}, "convolution", 4
    )

    value, known = _constants(hlo)
    columns["constant_value"], columns["has_constant_value"] = value, known
    return {name: np.asarray(column, np.float64) for name, column in columns.items()}


def _is(hlo: HloColumns, opcode: str) -> Array:
    return np.fromiter((name == opcode for name in hlo.opcodes), bool, len(hlo))


def _numbers(
    columns: dict[str, Array],
    hlo: HloColumns,
    field: int,
    lists: dict[str, int],
    prefix: str,
    length: int,
    index_vector: int | None = None,
) -> None:
    """The dimension numbers of one kind of operation."""
    messages, rows = hlo.sparse(field)
    for name, number in lists.items():
        values = messages.integers(number).spread(rows, len(hlo)).first(length, fill=-1)
        columns.update({f"{prefix}_{name}_{index}": values[:, index] for index in range(length)})
    if index_vector is not None:
        column = np.full(len(hlo), -1)
        column[rows] = messages.integer(index_vector)
        columns[f"{prefix}_index_vector_dim"] = column


def _comparisons(instructions: Messages) -> Ints:
    known = {name: index for index, name in enumerate(_COMPARISONS)}
    return np.array([known.get(text, -1) for text in instructions.text(HloFields.COMPARISON)], np.int64)


def _constants(hlo: HloColumns) -> tuple[Array, Array]:
    """The value of scalar constants, and which have one."""
    literals, rows = hlo.sparse(HloFields.LITERAL)
    value, known = np.zeros(len(hlo)), np.zeros(len(hlo), bool)
    kinds = np.where(hlo.dimensions.counts[rows] == 0, hlo.element_type[rows], -1)
    for kind, (field, dtype) in _LITERALS.items():
        if not (kinds == kind).any():
            continue
        if dtype is None:
            lists = literals.integers(field)
            for index in np.flatnonzero((kinds == kind) & (lists.counts == 1)).tolist():
                value[rows[index]], known[rows[index]] = float(lists.values[lists.offsets[index]]), True
            continue
        for index, start, end in zip(*(part.tolist() for part in literals.spans(field)), strict=True):
            if kinds[index] == kind and end - start == np.dtype(dtype).itemsize:
                number = np.frombuffer(literals.wire.data, dtype, 1, start)
                value[rows[index]] = float(_from_bfloat16(number)[0] if kind == _BF16 else number[0])
                known[rows[index]] = True
    return value, known


def _from_bfloat16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


_BF16 = 16
_LITERALS: dict[int, tuple[int, str | None]] = {
    1: (2, None), 4: (4, None), 5: (5, None), 8: (6, None), 9: (7, None),
    2: (15, "<i1"), 3: (17, "<i2"), 6: (3, "<u1"), 7: (16, "<u2"),
    10: (11, "<f2"), 11: (8, "<f4"), 12: (9, "<f8"), _BF16: (13, "<u2"),
}  # fmt: skip
"""By element type: the field of LiteralProto, and how its bytes are read (None: as integers of the wire format)."""
