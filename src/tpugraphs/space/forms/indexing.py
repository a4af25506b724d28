"""Rows taken from a table, and rows added to one, as products with one-hot matrices."""

from __future__ import annotations

from math import prod
from typing import Any

from jaxlib.mlir.dialects import stablehlo

from tpugraphs.program import mlir
from tpugraphs.space.forms import ops
from tpugraphs.space.forms.form import Form
from tpugraphs.space.forms.ops import Value

_LONGEST_TABLE = 8192
_MOST_PRODUCTS = 1 << 31


def _takes_rows(op: Any) -> bool:
    """table[indices]: whole rows, one index each."""
    if op.name != "stablehlo.gather" or not ops.is_float(op.operands[0]):
        return False
    table, indices = (mlir.shape_of(value) for value in op.operands)
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    result = mlir.shape_of(op.results[0])
    whole = list(mlir.attribute(op, "slice_sizes", [])) == [1, *table[1:]]
    outer = len(result) - (len(table) - 1)
    return (
        len(table) > 1
        and whole
        and list(numbers.collapsed_slice_dims) == [0]
        and list(numbers.start_index_map) == [0]
        and not list(numbers.operand_batching_dims)
        and list(numbers.offset_dims) == list(range(outer, len(result)))
        and _one_index_each(indices, numbers.index_vector_dim)
        and ops.is_integer(op.operands[1])
        and _small(table, result)
    )


def _one_index_each(indices: tuple[int, ...], at: int) -> bool:
    return at == len(indices) or (at == len(indices) - 1 and indices[-1] == 1)


def _small(table: tuple[int, ...], rows: tuple[int, ...]) -> bool:
    return 0 not in (*table, *rows) and table[0] <= _LONGEST_TABLE and prod(rows) * table[0] <= _MOST_PRODUCTS


def one_hot_rows(op: Any) -> Value:
    """A matrix with a one in each row, times the table; indices beyond it mean its first or last row."""
    table, indices = op.operands
    shape, result = mlir.shape_of(table), mlir.shape_of(op.results[0])
    count = prod(result) // prod(shape[1:])
    indices = _clamped(ops.reshape(indices, (count,)), shape[0] - 1)
    hot = _one_hot(indices, shape[0], ops.element_of(table))
    rows = ops.dot(hot, ops.reshape(table, (shape[0], prod(shape[1:]))), ([1], [0]))
    return ops.reshape(rows, result)


def _clamped(indices: Value, last: int) -> Value:
    kind, count = ops.element_of(indices), ops.shape_of(indices)
    limit = ops.filled(last, count, kind)
    return stablehlo.minimum(stablehlo.maximum(indices, ops.filled(0, count, kind)), limit)


def _one_hot(indices: Value, length: int, element: Any) -> Value:
    """(indices, length)"""
    [count] = ops.shape_of(indices)
    places = ops.counted((count, length), 1, ops.element_of(indices))
    return ops.converted(ops.compared(places, "EQ", ops.spread(indices, (count, length), [0])), element)


def _adds_rows(op: Any) -> bool:
    """table.at[indices].add(rows)"""
    if op.name != "stablehlo.scatter" or len(op.results) != 1 or not ops.is_float(op.operands[0]):
        return False
    table, indices, rows = (mlir.shape_of(value) for value in op.operands)
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    outer = len(rows) - (len(table) - 1)
    return (
        len(table) > 1
        and rows[outer:] == table[1:]
        and list(numbers.update_window_dims) == list(range(outer, len(rows)))
        and list(numbers.inserted_window_dims) == [0]
        and list(numbers.scattered_dims_to_operand_dims) == [0]
        and not list(numbers.input_batching_dims)
        and _one_index_each(indices, numbers.index_vector_dim)
        and ops.is_integer(op.operands[1])
        and ops.only_operation(op.regions[0]) == "stablehlo.add"
        and _small(table, rows)
    )


def one_hot_sums(op: Any) -> Value:
    """A matrix with a one in each column, times the rows; an index beyond the table has none."""
    table, indices, rows = op.operands
    shape = mlir.shape_of(table)
    width = prod(shape[1:])
    count = prod(mlir.shape_of(rows)) // width
    element = ops.element_of(table)
    hot = _one_hot(ops.reshape(indices, (count,)), shape[0], ops.element_of(ops.widened(rows)))
    sums = ops.dot(hot, ops.reshape(ops.widened(rows), (count, width)), ([0], [0]))
    whole = stablehlo.add(ops.widened(table), ops.reshape(sums, shape))
    return ops.converted(whole, element)


FORMS = (
    Form(
        "one-hot-rows",
        "a dot with a one-hot matrix",
        "as many multiply-adds as the table is long, for each row taken; for small tables",
        applies=_takes_rows,
        rewrite=one_hot_rows,
    ),
    Form(
        "one-hot-sums",
        "a dot with a one-hot matrix",
        "as many multiply-adds as the table is long, for each row added; no row after the other",
        applies=_adds_rows,
        rewrite=one_hot_sums,
    ),
)
