"""Sorts of which the program uses only the first or last few, and top-k, by selecting those few."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, stablehlo

from tpugraphs.program import mlir
from tpugraphs.space.forms import ops
from tpugraphs.space.forms.form import Form
from tpugraphs.space.forms.ops import Value

_MOST_ROUNDS = 16


@dataclass(frozen=True)
class Selection:
    """The few of each row that a program uses of something sorted."""

    dim: int
    count: int
    largest: bool
    """Whether the few are the largest, else the smallest."""
    at_end: bool
    """Whether they stand at the end of what was sorted, in its order."""
    as_one: bool
    """Whether -0 and 0 are one, and all NaNs, as in the order that JAX sorts by."""


def read(op: Any) -> Selection | None:
    """None of what is no sort or top-k, is used whole, or is ordered in a way that is not read here."""
    if any(0 in mlir.shape_of(value) for value in op.operands):
        return None
    if op.name == "chlo.top_k":
        shape, [count] = mlir.shape_of(op.operands[0]), mlir.attribute(op, "k", [0])
        return Selection(len(shape) - 1, count, True, False, False) if count and _is_ordered(op.operands[0]) else None
    if op.name != "stablehlo.sort" or not _is_ordered(op.operands[0]):
        return None
    order = _order(op)
    [dim] = mlir.attribute(op, "dimension", [-1])
    dim %= len(mlir.shape_of(op.operands[0]))
    used = {one for value in op.results for one in _used(value, dim)}
    sides, counts = {side for side, _ in used}, [count for _, count in used]
    if order is None or len(sides) != 1 or None in sides:
        return None
    ascending, as_one = order
    at_end = sides == {True}
    return Selection(dim, max(counts), ascending == at_end, at_end, as_one)


def _is_ordered(value: Value) -> bool:
    """Whether its values can be read as signed integers of the same order."""
    element = ops.element_of(value)
    if ops.is_float(value):
        return ops.bits_of(element) in (16, 32) and not str(element).startswith("f8")
    return ops.is_integer(value) and element.is_signless


def _used(value: Value, dim: int) -> Iterator[tuple[bool | None, int]]:
    """Of each use, whether it takes from the end, and how many; None, 0 of one that takes something else."""
    length = ops.shape_of(value)[dim]
    for use in value.uses:
        owner = use.owner
        if owner.name == "stablehlo.slice":
            start, stop, step = (
                mlir.attribute(owner, name, [])[dim] for name in ("start_indices", "limit_indices", "strides")
            )
            if step == 1 and stop < length:
                yield False, stop
            else:
                yield (True, length - start) if start > 0 and step == 1 else (None, 0)
        elif owner.name == "stablehlo.reverse" and mlir.attribute(owner, "dimensions", []) == [dim]:
            for side, count in _used(owner.results[0], dim):
                yield None if side is None else not side, count
        else:
            yield None, 0


def _order(op: Any) -> tuple[bool, bool] | None:
    """Whether a stable sort goes upwards by its first operand, and whether zeros are one and NaNs; None of others."""
    block = op.regions[0].blocks[0]
    ending = list(block.operations)[-1].operation
    test = ending.operands[0].owner if not isinstance(ending.operands[0], ir.BlockArgument) else None
    if test is None or test.name != "stablehlo.compare" or "true" not in str(op.attributes.get("is_stable", "false")):
        return None
    total = "TOTALORDER" in str(test.attributes.get("compare_type", ""))
    direction = _direction(test)
    if direction not in ("LT", "GT") or (ops.is_float(op.operands[0]) and not total):
        return None
    read = [_without_folding(value, argument) for value, argument in zip(test.operands, block.arguments, strict=False)]
    return None if None in read or read[0] != read[1] else (direction == "LT", bool(read[0]))


def _direction(compare: Any) -> str:
    return str(compare.attributes["comparison_direction"]).rpartition(" ")[2].rstrip(">")


def _without_folding(value: Value, argument: Value) -> bool | None:
    """Whether a value is the argument with zeros made one and NaNs made one; None if it is anything else."""
    folded = set[str]()
    while value != argument:
        if isinstance(value, ir.BlockArgument) or value.owner.name != "stablehlo.select":
            return None
        test, constant, value = value.owner.operands
        folded.add(_folded(test, constant, argument))
    return None if "" in folded or len(folded) == 1 else bool(folded)


def _folded(test: Value, constant: Value, argument: Value) -> str:
    """`zero` for x == 0 ? 0, `nan` for x != x ? NaN, nothing for anything else."""
    if isinstance(test, ir.BlockArgument) or isinstance(constant, ir.BlockArgument):
        return ""
    test, constant = test.owner, constant.owner
    if test.name != "stablehlo.compare" or constant.name != "stablehlo.constant" or test.operands[0] != argument:
        return ""
    number = ops.splat_of(constant)
    if _direction(test) == "NE" and test.operands[1] == argument:
        return "nan" if number is not None and number != number else ""
    other = test.operands[1].owner if not isinstance(test.operands[1], ir.BlockArgument) else None
    zero = other is not None and other.name == "stablehlo.constant" and ops.splat_of(other) == 0
    return "zero" if zero and _direction(test) == "EQ" and number == 0 else ""


# Writing --------------------------------------------------------------------------------------------------------------


def partial(op: Any) -> list[Value]:
    """The few by top-k, on keys that order as the sort does."""
    found = ops.known(read(op))
    keys = _moved(_keys(op.operands[0], found), found)
    picked = chlo.TopKOp(_as_floats(keys), found.count).results[1]
    return _laid_back(op, found, picked)


def rounds(op: Any) -> list[Value]:
    """The first of the largest, the next, … : a pass over all for each."""
    found = ops.known(read(op))
    keys = _moved(_keys(op.operands[0], found), found)
    shape, kind = ops.shape_of(keys), ops.whole_number(32)
    last, outer = len(shape) - 1, list(range(len(shape) - 1))
    least = _least(ops.bits_of(ops.element_of(keys)))
    places, left, picked = ops.counted(shape, last, kind), None, []
    for _ in range(found.count):
        live = keys if left is None else stablehlo.select(left, keys, ops.filled(least, shape, ops.element_of(keys)))
        most = ops.reduced(live, [last], stablehlo.maximum, least)
        here = ops.compared(live, "EQ", ops.spread(most, shape, outer))
        here = here if left is None else stablehlo.and_(here, left)
        at = stablehlo.select(here, places, ops.filled(shape[-1], shape, kind))
        picked.append(ops.reduced(at, [last], stablehlo.minimum, shape[-1]))
        others = ops.compared(places, "NE", ops.spread(picked[-1], shape, outer))
        left = others if left is None else stablehlo.and_(left, others)
    columns = [ops.reshape(one, (*shape[:-1], 1)) for one in picked]
    return _laid_back(op, found, ops.joined(columns, last))


def _keys(value: Value, found: Selection) -> Value:
    """Signed integers, of which the largest belong to those that are wanted."""
    element = ops.element_of(value)
    bits = ops.bits_of(element)
    if ops.is_float(value):
        if found.as_one:
            shape = ops.shape_of(value)
            zero, nan = (ops.filled(number, shape, element) for number in (0.0, float("nan")))
            value = stablehlo.select(ops.compared(value, "EQ", zero), zero, value)
            value = stablehlo.select(ops.compared(value, "NE", value), nan, value)
        value = _in_total_order(ops.same_bits(value, ops.whole_number(bits)))
    return value if found.largest else stablehlo.not_(value)


def _in_total_order(value: Value) -> Value:
    """Between a float's bits and an integer of the same order; its own inverse."""
    bits, shape, element = ops.bits_of(ops.element_of(value)), ops.shape_of(value), ops.element_of(value)
    sign = stablehlo.shift_right_arithmetic(value, ops.filled(bits - 1, shape, element))
    return stablehlo.xor(value, stablehlo.and_(sign, ops.filled((1 << (bits - 1)) - 1, shape, element)))


def _as_floats(keys: Value) -> Value:
    """As the floats of the same total order: those are what compilers have a top-k for."""
    return ops.same_bits(_in_total_order(ops.converted(keys, ops.whole_number(32))), ir.F32Type.get())


def _least(bits: int) -> int:
    return -(1 << (bits - 1))


def _moved(value: Value, found: Selection) -> Value:
    """With the sorted dimension last; read from the end where what is wanted stands there, for the order of equals."""
    if found.at_end:
        value = stablehlo.reverse(value, ops.integers([found.dim]))
    return ops.transpose(value, _last(found.dim, len(ops.shape_of(value))))


def _last(dim: int, rank: int) -> list[int]:
    return [*(at for at in range(rank) if at != dim), dim]


def _laid_back(op: Any, found: Selection, picked: Value) -> list[Value]:
    """Each result as it was asked for, the first one built last; where nobody looks, zeros."""
    if op.name == "chlo.top_k":
        return [_at(op.operands[0], picked), picked]
    results = [_sorted_part(value, found, picked) for value in reversed(list(op.operands))]
    return results[::-1]


def _sorted_part(value: Value, found: Selection, picked: Value) -> Value:
    length, rank = ops.shape_of(value)[found.dim], len(ops.shape_of(value))
    part = _at(_moved(value, found), picked)
    order = _last(found.dim, rank)
    part = ops.transpose(part, [order.index(at) for at in range(rank)])
    if found.at_end:
        part = stablehlo.reverse(part, ops.integers([found.dim]))
    missing = [length - found.count if at == found.dim else 0 for at in range(rank)]
    none = [0] * rank
    return ops.padded(part, missing, none) if found.at_end else ops.padded(part, none, missing)


def _at(value: Value, places: Value) -> Value:
    """The values (…, n) at these places (…, k) of each row."""
    shape, wanted = ops.shape_of(value), ops.shape_of(places)
    rows = prod(shape[:-1])
    flat = ops.reshape(value, (rows, shape[-1]))
    at = ops.reshape(places, (rows, wanted[-1], 1))
    numbers = stablehlo.GatherDimensionNumbers.get(
        offset_dims=[],
        collapsed_slice_dims=[1],
        operand_batching_dims=[0],
        start_indices_batching_dims=[0],
        start_index_map=[1],
        index_vector_dim=2,
    )
    return ops.reshape(stablehlo.gather(flat, at, numbers, ops.integers([1, 1])), wanted)


def _selects_few(op: Any) -> bool:
    found = read(op)
    return found is not None and found.count <= _MOST_ROUNDS


def _sorts_for_some(op: Any) -> bool:
    return op.name == "stablehlo.sort" and read(op) is not None and ops.bits_of(ops.element_of(op.operands[0])) <= 32


FORMS = (
    Form(
        "partial",
        "top-k in place of a sort",
        "what is not used stays unsorted; a gather for each operand",
        applies=_sorts_for_some,
        rewrite=partial,
    ),
    Form(
        "rounds",
        "a pass for each of the few",
        "elementwise and reductions, once for each that is wanted; for few of them",
        applies=_selects_few,
        rewrite=rounds,
    ),
)
