"""Pooling and running sums, which are reductions over windows, and the gradient of pooling by the maximum."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpugraphs.program import mlir
from tpugraphs.space.forms import ops
from tpugraphs.space.forms.form import Form
from tpugraphs.space.forms.ops import Value

_MOST_TERMS = 128
_LONGEST_TRIANGLE = 2048
_BLOCK = 64
_COMBINE = {
    "stablehlo.add": stablehlo.add,
    "stablehlo.maximum": stablehlo.maximum,
    "stablehlo.minimum": stablehlo.minimum,
    "stablehlo.multiply": stablehlo.multiply,
}


_NOTHING = {
    "stablehlo.add": re.compile(r"-?0(\.0+e\+00)?"),
    "stablehlo.multiply": re.compile(r"1(\.0+e\+00)?"),
    "stablehlo.maximum": re.compile(r"0xFF80(0000)?|0xFC00|0xFFF0{13}|-(128|32768|2147483648|9223372036854775808)"),
    "stablehlo.minimum": re.compile(r"0x7F80(0000)?|0x7C00|0x7FF0{13}|(127|32767|2147483647|9223372036854775807)"),
}
"""What changes nothing, as MLIR prints it in any type: zero, one, and the least and greatest."""
_SPLAT = re.compile(r"dense<(.*?)>")


@dataclass(frozen=True)
class Reduction:
    """A reduction over windows; all per dimension of the data."""

    combine: str
    window: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    interior: tuple[int, ...]
    dilation: tuple[int, ...]
    result: tuple[int, ...]


def read(op: Any) -> Reduction | None:
    """None of what is no reduction of one value by a known operation, or is empty."""
    if op.name != "stablehlo.reduce_window" or len(op.results) != 1:
        return None
    data, result = (mlir.shape_of(value) for value in (op.operands[0], op.results[0]))
    combine, rank = ops.only_operation(op.regions[0]), len(data)
    if combine not in _COMBINE or 0 in (*data, *result):
        return None
    if not (ops.is_float(op.operands[0]) or ops.is_integer(op.operands[0])):
        return None
    if not _changes_nothing(op.operands[1], combine):
        return None  # how often it counts is not the same for all compilers
    sides = mlir.attribute(op, "padding", [0] * 2 * rank)
    return Reduction(
        combine=combine,
        window=tuple(mlir.attribute(op, "window_dimensions", [1] * rank)),
        strides=tuple(mlir.attribute(op, "window_strides", [1] * rank)),
        padding=tuple(zip(sides[::2], sides[1::2], strict=True)),
        interior=tuple(step - 1 for step in mlir.attribute(op, "base_dilations", [1] * rank)),
        dilation=tuple(mlir.attribute(op, "window_dilations", [1] * rank)),
        result=tuple(result),
    )


def _changes_nothing(start: Value, combine: str) -> bool:
    while not isinstance(start, ir.BlockArgument) and start.owner.name == "stablehlo.broadcast_in_dim":
        start = start.owner.operands[0]
    if isinstance(start, ir.BlockArgument) or start.owner.name != "stablehlo.constant":
        return False
    number = _SPLAT.match(str(start.owner.attributes["value"]))
    return number is not None and _NOTHING[combine].fullmatch(number[1]) is not None


def _writing(formula: Callable[[Reduction, Value], Value]) -> Callable[[Any], Value]:
    """A rewrite of the padded data; sums of half precision are taken in float32."""

    def rewrite(op: Any) -> Value:
        found = ops.known(read(op))
        data, start = op.operands
        element = ops.element_of(data)
        if found.combine == "stablehlo.add":
            data, start = ops.widened(data), ops.widened(start)
        low, high = ([side[which] for side in found.padding] for which in (0, 1))
        data = ops.padded(data, low, high, found.interior, start)
        return ops.converted(formula(found, data), element)

    return rewrite


def _where(valid: Callable[[Reduction], bool]) -> Callable[[Any], bool]:
    def applies(op: Any) -> bool:
        found = read(op)
        return found is not None and valid(found)

    return applies


def slices(found: Reduction, data: Value) -> Value:
    """A slice of the data for each place of the window, combined element by element."""
    parts = [_under(data, offset, found) for offset in itertools.product(*map(range, found.window))]
    return reduce(_COMBINE[found.combine], parts)


def passes(found: Reduction, data: Value) -> Value:
    """One dimension after the other."""
    for dim, length in enumerate(found.window):
        shape = ops.shape_of(data)
        step, spacing = found.strides[dim], found.dilation[dim]
        parts = []
        for at in range(length):
            start, stop, steps = [0] * len(shape), list(shape), [1] * len(shape)
            start[dim], steps[dim] = at * spacing, step
            stop[dim] = at * spacing + (found.result[dim] - 1) * step + 1
            parts.append(ops.taken(data, start, stop, steps))
        data = reduce(_COMBINE[found.combine], parts)
    return data


def _under(data: Value, offset: Sequence[int], found: Reduction) -> Value:
    start = [at * spacing for at, spacing in zip(offset, found.dilation, strict=True)]
    stop = [at + (n - 1) * step + 1 for at, n, step in zip(start, found.result, found.strides, strict=True)]
    return ops.taken(data, start, stop, found.strides)


# Running sums ---------------------------------------------------------------------------------------------------------


def _running(found: Reduction) -> int | None:
    """The dimension along which this is a running sum, forward or backward; None if it is none."""
    long = [dim for dim, length in enumerate(found.window) if length > 1]
    if len(long) != 1 or found.combine != "stablehlo.add":
        return None
    [dim] = long
    length = found.result[dim]
    whole = found.window[dim] == length and sum(found.padding[dim]) == length - 1 and 0 in found.padding[dim]
    others = all(not any(side) for at, side in enumerate(found.padding) if at != dim)
    plain = all(step == 1 for step in (*found.strides, *found.dilation)) and not any(found.interior)
    return dim if whole and others and plain and length > 1 else None


def _summing(formula: Callable[[Value, bool], Value]) -> Callable[[Any], Value]:
    """A rewrite of the running sum over the last dimension of (rows, length)."""

    def rewrite(op: Any) -> Value:
        found = ops.known(read(op))
        dim = ops.known(_running(found))
        element, rank = ops.element_of(op.operands[0]), len(found.result)
        data = ops.widened(op.operands[0])
        order = [*(at for at in range(rank) if at != dim), dim]
        moved = ops.transpose(data, order)
        rows = ops.reshape(moved, (prod(found.result) // found.result[dim], found.result[dim]))
        backward = found.padding[dim][0] == 0
        result = ops.reshape(formula(rows, backward), ops.shape_of(moved))
        result = ops.transpose(result, [order.index(at) for at in range(rank)])
        return ops.converted(result, element)

    return rewrite


def triangle(rows: Value, backward: bool) -> Value:
    """A product with a triangle of ones."""
    length = ops.shape_of(rows)[1]
    return ops.dot(rows, _triangle(length, backward, ops.element_of(rows)), ([1], [0]))


def blocks(rows: Value, backward: bool) -> Value:
    """Running sums inside blocks, by a product with a triangle, and the sum of all blocks before."""
    count, length = ops.shape_of(rows)
    number = -(-length // _BLOCK)
    missing = number * _BLOCK - length
    element = ops.element_of(rows)
    rows = ops.padded(rows, [0, 0], [0, missing])
    parts = ops.reshape(rows, (count, number, _BLOCK))
    inside = ops.dot(parts, _triangle(_BLOCK, backward, element), ([2], [0]))
    ends = ops.summed(parts, [2])
    before = ops.dot(ends, _triangle(number, backward, element, strictly=True), ([1], [0]))
    result = stablehlo.add(inside, ops.spread(before, (count, number, _BLOCK), [0, 1]))
    return ops.taken(ops.reshape(result, (count, number * _BLOCK)), [0, 0], [count, length])


def _triangle(length: int, backward: bool, element: Any, *, strictly: bool = False) -> Value:
    """Ones where the row is not behind the column; before it, if strictly; behind it, if backward."""
    row, column = (ops.counted((length, length), dim, ops.whole_number(32)) for dim in (0, 1))
    words = {(False, False): "LE", (False, True): "LT", (True, False): "GE", (True, True): "GT"}
    return ops.converted(ops.compared(row, words[backward, strictly], column), element)


# Gradient of pooling by the maximum -----------------------------------------------------------------------------------


def _pools(op: Any) -> bool:
    if op.name != "stablehlo.select_and_scatter" or not ops.is_float(op.operands[0]):
        return False
    window = mlir.attribute(op, "window_dimensions", [])
    shapes = [mlir.shape_of(value) for value in (op.operands[0], op.operands[1])]
    body = [one.operation for one in op.regions[0].blocks[0].operations]
    chooses = (
        len(body) == 2
        and body[0].name == "stablehlo.compare"
        and "GE" in str(body[0].attributes["comparison_direction"])
        and list(body[0].operands) == list(op.regions[0].blocks[0].arguments)
    )
    adds = ops.only_operation(op.regions[1]) == "stablehlo.add"
    return bool(window) and chooses and adds and 0 not in (*shapes[0], *shapes[1]) and prod(window) <= _MOST_TERMS


def masks(op: Any) -> Value:
    """For each place of the window, the gradient where the maximum is, moved back to where it came from."""
    data, gradient, start = op.operands
    element, shape, result = ops.element_of(data), mlir.shape_of(data), mlir.shape_of(gradient)
    rank = len(shape)
    window = mlir.attribute(op, "window_dimensions", [1] * rank)
    strides = mlir.attribute(op, "window_strides", [1] * rank)
    sides = mlir.attribute(op, "padding", [0] * 2 * rank)
    low, high = sides[::2], sides[1::2]
    whole = ops.padded(data, low, high, None, ops.filled(float("-inf"), (), element))
    found = Reduction(
        "stablehlo.maximum", tuple(window), tuple(strides), ((0, 0),) * rank, (0,) * rank, (1,) * rank, result
    )
    offsets = list(itertools.product(*map(range, window)))
    parts = [_under(whole, offset, found) for offset in offsets]
    most, nothing = reduce(stablehlo.maximum, parts), ops.filled(0, result, element)
    left, moved = None, []
    for offset, part in zip(offsets, parts, strict=True):
        here = ops.compared(part, "EQ", most)
        if left is not None:
            here = stablehlo.and_(here, left)
        left = stablehlo.not_(here) if left is None else stablehlo.and_(left, stablehlo.not_(here))
        between = [step - 1 for step in strides]
        behind = [
            n - at - (count - 1) * step - 1
            for n, at, count, step in zip(ops.shape_of(whole), offset, result, strides, strict=True)
        ]
        moved.append(ops.padded(stablehlo.select(here, gradient, nothing), offset, behind, between))
    total = ops.padded(ops.total(moved), [-one for one in low], [-one for one in high])
    return stablehlo.add(ops.spread(start, shape, []), total)


FORMS = (
    Form(
        "slices",
        "a slice for each place of the window",
        "elementwise and fused; the data is read once for each place of the window",
        applies=_where(lambda found: 1 < prod(found.window) <= _MOST_TERMS),
        rewrite=_writing(slices),
    ),
    Form(
        "passes",
        "one dimension after the other",
        "as many terms as the window's lengths together, not multiplied",
        applies=_where(
            lambda found: sum(length > 1 for length in found.window) > 1 and max(found.window) <= _MOST_TERMS
        ),
        rewrite=_writing(passes),
    ),
    Form(
        "triangle",
        "a dot with a triangle of ones",
        "length times the additions, in one matrix product",
        applies=_where(lambda found: (dim := _running(found)) is not None and found.result[dim] <= _LONGEST_TRIANGLE),
        rewrite=_summing(triangle),
    ),
    Form(
        "blocks",
        "running sums of blocks",
        "a short product for each block, and one for what lies before it",
        applies=_where(lambda found: (dim := _running(found)) is not None and found.result[dim] > _BLOCK),
        rewrite=_summing(blocks),
    ),
    Form(
        "masks",
        "a mask for each place of the window",
        "elementwise and fused, in place of a search in every window",
        applies=_pools,
        rewrite=masks,
    ),
)
