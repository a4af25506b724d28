"""Dots written another way: read as a batch of matrix products, (batch, rows, k) times (batch, k, columns)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpugraphs.program import mlir
from tpugraphs.space.forms import ops
from tpugraphs.space.forms.form import Form
from tpugraphs.space.forms.ops import Value

_SPLITS = (8, 4, 2)
_LONG = 512
"""A contraction of this length can be worth splitting."""
_MOST_PARTS = 64
_MOST_PRODUCTS = 1 << 24
"""That are written out before they are summed, where the compiler does not fuse them."""


@dataclass(frozen=True)
class Shape:
    """A dot's figures."""

    batch: int
    rows: int
    k: int
    columns: int
    is_plain: bool
    """Whether it is written as one product of matrices, or a batch of them, already."""


@dataclass(frozen=True)
class Reading:
    """How an operation maps to a batch of matrix products."""

    shape: Shape
    left_order: tuple[int, ...]
    right_order: tuple[int, ...]


def read(op: Any) -> Reading | None:
    """None of what is no dot, is empty, or has mixed types."""
    if op.name != "stablehlo.dot_general":
        return None
    elements = {str(ops.element_of(value)) for value in (*op.operands, op.results[0])}
    if len(elements) != 1 or not (ops.is_float(op.operands[0]) or ops.is_integer(op.operands[0])):
        return None
    left, right = (mlir.shape_of(value) for value in op.operands)
    if 0 in (*left, *right):
        return None
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    batch = (list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions))
    contract = (list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions))
    free = [
        [dim for dim in range(len(shape)) if dim not in (*batch[side], *contract[side])]
        for side, shape in enumerate((left, right))
    ]
    left_order, right_order = (*batch[0], *free[0], *contract[0]), (*batch[1], *contract[1], *free[1])
    shape = Shape(
        batch=prod(left[dim] for dim in batch[0]),
        rows=prod(left[dim] for dim in free[0]),
        k=prod(left[dim] for dim in contract[0]),
        columns=prod(right[dim] for dim in free[1]),
        is_plain=len(batch[0]) <= 1
        and max(len(contract[0]), len(free[0]), len(free[1])) <= 1
        and left_order == tuple(range(len(left)))
        and right_order == tuple(range(len(right))),
    )
    return Reading(shape, left_order, right_order)


@dataclass(frozen=True)
class Product:
    """What a form computes."""

    shape: Shape
    left: Value
    """(batch, rows, k)"""
    right: Value
    """(batch, k, columns)"""


def _writing(formula: Callable[[Product], Value], *, wide: bool = False) -> Callable[[Any], Value]:
    """A rewrite; the formula's result is (batch, rows, columns). `wide` sums half precision in float32."""

    def rewrite(op: Any) -> Value:
        reading = ops.known(read(op))
        left, right = _matrices(op, reading)
        element = ops.element_of(left)
        if wide:
            left, right = ops.widened(left), ops.widened(right)
        result = ops.converted(formula(Product(reading.shape, left, right)), element)
        return ops.reshape(result, mlir.shape_of(op.results[0]))

    return rewrite


def _matrices(op: Any, reading: Reading) -> tuple[Value, Value]:
    shape = reading.shape
    left = ops.reshape(ops.transpose(op.operands[0], reading.left_order), (shape.batch, shape.rows, shape.k))
    right = ops.reshape(ops.transpose(op.operands[1], reading.right_order), (shape.batch, shape.k, shape.columns))
    return left, right


def _where(valid: Callable[[Shape], bool]) -> Callable[[Any], bool]:
    def applies(op: Any) -> bool:
        reading = read(op)
        return reading is not None and valid(reading.shape)

    return applies


def _matmul(left: Value, right: Value, k: tuple[int, int] = (2, 1)) -> Value:
    """Batched; of a batch of one, without it."""
    if ops.shape_of(left)[0] == 1:
        left, right = (ops.reshape(value, ops.shape_of(value)[1:]) for value in (left, right))
        result = ops.dot(left, right, ([k[0] - 1], [k[1] - 1]))
        return ops.reshape(result, (1, *ops.shape_of(result)))
    return ops.dot(left, right, ([k[0]], [k[1]]), ([0], [0]))


def merged(product: Product) -> Value:
    """Batch, rows, columns and what is summed become one dimension each."""
    return _matmul(product.left, product.right)


def swapped(product: Product) -> Value:
    """The transposes of both, in the other order, and the transpose of that."""
    return ops.transpose(_matmul(product.right, product.left, (1, 2)), (0, 2, 1))


def left_transposed(product: Product) -> Value:
    return _matmul(ops.transpose(product.left, (0, 2, 1)), product.right, (1, 1))


def right_transposed(product: Product) -> Value:
    return _matmul(product.left, ops.transpose(product.right, (0, 2, 1)), (2, 2))


def split(product: Product) -> Value:
    """The sum of the products of parts of k."""
    shape = product.shape
    parts = _parts(shape)
    left = ops.reshape(product.left, (shape.batch, shape.rows, parts, shape.k // parts))
    right = ops.reshape(product.right, (shape.batch, parts, shape.k // parts, shape.columns))
    return ops.summed(ops.dot(left, right, ([3], [2]), ([0, 2], [0, 1])), [1])


def _parts(shape: Shape) -> int:
    return next((parts for parts in _SPLITS if shape.k % parts == 0), 1)


def by_batch(product: Product) -> Value:
    """A product of matrices for each of the batch."""
    shape = product.shape
    parts = []
    for index in range(shape.batch):
        left = ops.taken(product.left, [index, 0, 0], [index + 1, shape.rows, shape.k])
        right = ops.taken(product.right, [index, 0, 0], [index + 1, shape.k, shape.columns])
        parts.append(_matmul(left, right))
    return ops.joined(parts, 0)


def multiplied(product: Product) -> Value:
    """All products, summed over k."""
    shape = product.shape
    every = (shape.batch, shape.rows, shape.k, shape.columns)
    left = ops.spread(product.left, every, [0, 1, 2])
    right = ops.spread(product.right, every, [0, 2, 3])
    return ops.summed(stablehlo.multiply(left, right), [2])


# Several dots on one input --------------------------------------------------------------------------------------------


def _siblings(op: Any) -> list[Any]:
    """Dots of the same input with other arguments of the program, itself among them, in the order of those."""
    found = {}
    for use in op.operands[0].uses:
        other = use.owner
        if other.name == op.name and use.operand_number == 0 and _alike(op, other):
            found[ir.BlockArgument(other.operands[1]).arg_number] = other
    return [found[number] for number in sorted(found)]


def _alike(op: Any, other: Any) -> bool:
    right = other.operands[1]
    return (
        isinstance(right, ir.BlockArgument)
        and str(other.attributes["dot_dimension_numbers"]) == str(op.attributes["dot_dimension_numbers"])
        and len(mlir.shape_of(right)) == 2
        and read(other) is not None
    )


def _has_siblings(op: Any) -> bool:
    reading = read(op)
    return (
        reading is not None
        and reading.shape.batch == 1
        and isinstance(op.operands[1], ir.BlockArgument)
        and len(mlir.shape_of(op.operands[1])) == 2
        and len(_siblings(op)) > 1
    )


def joined(op: Any) -> Value:
    """A part of one product with all their matrices side by side; the first of them builds it, the others find it."""
    right = op.operands[1]
    whole = _found(op) or _built(op)
    if whole is None:  # a layout was chosen for an operand, so that it is no longer the same as theirs
        return op.clone().results[0]
    matrices = list(whole.operands[1].owner.operands)
    dim = _free_dim(op)
    before = sum(mlir.shape_of(one)[dim] for one in matrices[: matrices.index(right)])
    shape = mlir.shape_of(op.results[0])
    start = [0] * (len(shape) - 1)
    return ops.taken(whole.results[0], [*start, before], [*shape[:-1], before + shape[-1]])


def _built(op: Any) -> Any:
    matrices = [one.operands[1] for one in _siblings(op)]
    if len(matrices) < 2 or op.operands[1] not in matrices:
        return None
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    contract = (list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions))
    right = stablehlo.concatenate(matrices, _free_dim(op))
    return ops.dot(op.operands[0], right, contract).owner


def _found(op: Any) -> Any:
    """The product that a sibling built."""
    for use in op.operands[0].uses:
        owner = use.owner
        if owner.name == op.name and not isinstance(owner.operands[1], ir.BlockArgument):
            source = owner.operands[1].owner
            if source.name == "stablehlo.concatenate" and op.operands[1] in list(source.operands):
                return owner
    return None


def _free_dim(op: Any) -> int:
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    [contracted] = list(numbers.rhs_contracting_dimensions)
    return 1 - contracted


FORMS = (
    Form(
        "merged",
        "one batch of matrix products",
        "reshapes and transposes in front, and a plain product behind them",
        applies=_where(lambda shape: not shape.is_plain),
        rewrite=_writing(merged),
    ),
    Form(
        "swapped",
        "operands swapped",
        "the same product transposed: rows and columns change places in the library's loops",
        applies=_where(lambda shape: shape.rows > 1 and shape.columns > 1),
        rewrite=_writing(swapped),
    ),
    Form(
        "left-transposed",
        "left operand transposed",
        "a copy, for a product that reads it the other way round",
        applies=_where(lambda shape: shape.rows > 1 and shape.k > 1),
        rewrite=_writing(left_transposed),
    ),
    Form(
        "right-transposed",
        "right operand transposed",
        "a copy, for a product that reads it the other way round",
        applies=_where(lambda shape: shape.columns > 1 and shape.k > 1),
        rewrite=_writing(right_transposed),
    ),
    Form(
        "split",
        "contraction split",
        "a batch of shorter products, which threads can share, and a sum of their results",
        applies=_where(lambda shape: shape.k >= _LONG and _parts(shape) > 1),
        rewrite=_writing(split, wide=True),
    ),
    Form(
        "by-batch",
        "a product for each of the batch",
        "as many products of matrices as the batch is large",
        applies=_where(lambda shape: 1 < shape.batch <= _MOST_PARTS),
        rewrite=_writing(by_batch),
    ),
    Form(
        "multiplied",
        "multiply and reduce",
        "no call of a library: for small products",
        applies=_where(lambda shape: shape.batch * shape.rows * shape.k * shape.columns <= _MOST_PRODUCTS),
        rewrite=_writing(multiplied, wide=True),
    ),
    Form(
        "joined",
        "joined with the dots of the same input",
        "one product in place of several; copies their matrices side by side",
        applies=_has_siblings,
        rewrite=joined,
    ),
)
