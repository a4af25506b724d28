"""StableHLO operations as functions of values, so that a form reads like the formula it stands for.

Each builds where the caller's insertion point and location are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

Value = Any
T = TypeVar("T")


def known(found: T | None) -> T:
    """What was read of an operation; a form is written only where it holds."""
    if found is None:
        raise ValueError("a form was used where it does not hold")
    return found


def only_operation(region: Any) -> str:
    """The name of the one operation that a reducer is, on its arguments in their order; else nothing."""
    block = region.blocks[0]
    body = [op.operation for op in block.operations]
    if len(body) != 2 or list(body[0].operands) != list(block.arguments):
        return ""
    return body[0].name if list(body[1].operands) == list(body[0].results) else ""


def shape_of(value: Value) -> tuple[int, ...]:
    return tuple(ir.RankedTensorType(value.type).shape)


def element_of(value: Value) -> Any:
    return ir.RankedTensorType(value.type).element_type


def is_float(value: Value) -> bool:
    return isinstance(element_of(value), ir.FloatType)


def is_integer(value: Value) -> bool:
    element = element_of(value)
    return isinstance(element, ir.IntegerType) and element.width > 1


def bits_of(element: Any) -> int:
    return element.width


def widened(value: Value) -> Value:
    """Half precision as float32; else the value."""
    return converted(value, ir.F32Type.get()) if is_float(value) and bits_of(element_of(value)) < 32 else value


def converted(value: Value, element: Any) -> Value:
    if element_of(value) == element:
        return value
    return stablehlo.convert(ir.RankedTensorType.get(list(shape_of(value)), element), value)


def integers(values: Sequence[int]) -> Any:
    return ir.DenseI64ArrayAttr.get([int(value) for value in values])


def splat_of(constant: Any) -> float | None:
    """The number that a constant is everywhere; None if it is not the same everywhere."""
    values = ir.DenseElementsAttr(constant.attributes["value"])
    if not values.is_splat:
        return None
    number = values.get_splat_value()
    return number.value if isinstance(number, ir.FloatAttr | ir.IntegerAttr) else None


def number_behind(value: Value) -> float | None:
    """The number that a value is everywhere, where it is a constant, or one spread out."""
    while not isinstance(value, ir.BlockArgument) and value.owner.name == "stablehlo.broadcast_in_dim":
        value = value.owner.operands[0]
    if isinstance(value, ir.BlockArgument) or value.owner.name != "stablehlo.constant":
        return None
    return splat_of(value.owner)


def filled(number: float, shape: Sequence[int], element: Any) -> Value:
    """A constant, everywhere the same."""
    kind = ir.RankedTensorType.get(list(shape), element)
    is_real = isinstance(element, ir.FloatType)
    scalar = ir.FloatAttr.get(element, number) if is_real else ir.IntegerAttr.get(element, int(number))
    return stablehlo.constant(ir.DenseElementsAttr.get_splat(kind, scalar))


def reshape(value: Value, shape: Sequence[int]) -> Value:
    if shape_of(value) == tuple(shape):
        return value
    return stablehlo.reshape(ir.RankedTensorType.get(list(shape), element_of(value)), value)


def transpose(value: Value, order: Sequence[int]) -> Value:
    """The result's dimension i is the value's `order[i]`."""
    if list(order) == list(range(len(order))):
        return value
    return stablehlo.transpose(value, integers(order))


def taken(value: Value, start: Sequence[int], stop: Sequence[int], step: Sequence[int] | None = None) -> Value:
    """A slice."""
    step = step or [1] * len(start)
    if not any(start) and tuple(stop) == shape_of(value) and all(one == 1 for one in step):
        return value
    return stablehlo.slice(value, integers(start), integers(stop), integers(step))


def padded(
    value: Value,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int] | None = None,
    filler: Value | None = None,
) -> Value:
    """With zeros, or another scalar, around it and between; a negative number takes away."""
    interior = interior or [0] * len(low)
    if not any((*low, *high, *interior)):
        return value
    around: Any = filler if filler is not None else filled(0, (), element_of(value))
    return stablehlo.pad(value, around, integers(low), integers(high), integers(interior))


def spread(value: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
    """Broadcast: the value's dimension i becomes the result's `dims[i]`."""
    return stablehlo.broadcast_in_dim(ir.RankedTensorType.get(list(shape), element_of(value)), value, integers(dims))


def joined(values: Sequence[Value], dim: int) -> Value:
    return values[0] if len(values) == 1 else stablehlo.concatenate(list(values), dim)


def total(values: Sequence[Value]) -> Value:
    """Their sum, in their order."""
    result = values[0]
    for value in values[1:]:
        result = stablehlo.add(result, value)
    return result


def summed(value: Value, dims: Sequence[int]) -> Value:
    """The sum over some dimensions."""
    return reduced(value, dims, stablehlo.add, 0)


def reduced(value: Value, dims: Sequence[int], combine: Callable[[Value, Value], Value], start: float) -> Value:
    """What is left of some dimensions."""
    element = element_of(value)
    scalar = ir.RankedTensorType.get([], element)
    shape = [length for dim, length in enumerate(shape_of(value)) if dim not in dims]
    reduction = stablehlo.ReduceOp(
        [ir.RankedTensorType.get(shape, element)], [value], [filled(start, (), element)], integers(dims)
    )
    block = reduction.operation.regions[0].blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        stablehlo.return_([combine(*block.arguments)])
    return reduction.results[0]


def compared(left: Value, direction: str, right: Value) -> Value:
    """Where left is EQ, NE, LT, … right."""
    return stablehlo.compare(left, right, stablehlo.ComparisonDirectionAttr.get(direction))


def counted(shape: Sequence[int], dim: int, element: Any) -> Value:
    """0, 1, 2, … along a dimension."""
    return stablehlo.iota(ir.RankedTensorType.get(list(shape), element), dim)


def same_bits(value: Value, element: Any) -> Value:
    """The value's bits read as another type of that width."""
    return stablehlo.bitcast_convert(ir.RankedTensorType.get(list(shape_of(value)), element), value)


def whole_number(bits: int) -> Any:
    """The type of signed integers."""
    return ir.IntegerType.get_signless(bits)


def dot(
    left: Value,
    right: Value,
    contract: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Value:
    """Batch dimensions come first, then the left's others, then the right's."""
    left_free = [n for dim, n in enumerate(shape_of(left)) if dim not in (*contract[0], *batch[0])]
    right_free = [n for dim, n in enumerate(shape_of(right)) if dim not in (*contract[1], *batch[1])]
    shape = [*(shape_of(left)[dim] for dim in batch[0]), *left_free, *right_free]
    numbers = stablehlo.DotDimensionNumbers.get(
        lhs_batching_dimensions=list(batch[0]),
        rhs_batching_dimensions=list(batch[1]),
        lhs_contracting_dimensions=list(contract[0]),
        rhs_contracting_dimensions=list(contract[1]),
    )
    return stablehlo.dot_general(ir.RankedTensorType.get(shape, element_of(left)), left, right, numbers)


def convolution(
    data: Value,
    kernel: Value,
    shape: Sequence[int],
    *,
    strides: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[tuple[int, int]] | None = None,
    groups: int = 1,
) -> Value:
    """Channels last: data (batch, *space, channels), kernel (*window, channels per group, outputs)."""
    rank = len(strides)
    space = list(range(1, rank + 1))
    numbers = stablehlo.ConvDimensionNumbers.get(
        input_batch_dimension=0,
        input_feature_dimension=rank + 1,
        input_spatial_dimensions=space,
        kernel_input_feature_dimension=rank,
        kernel_output_feature_dimension=rank + 1,
        kernel_spatial_dimensions=[dim - 1 for dim in space],
        output_batch_dimension=0,
        output_feature_dimension=rank + 1,
        output_spatial_dimensions=space,
    )
    sides = ir.RankedTensorType.get([rank, 2], ir.IntegerType.get_signless(64))
    pairs = ", ".join(f"[{low}, {high}]" for low, high in padding or [(0, 0)] * rank)
    return stablehlo.convolution(
        ir.RankedTensorType.get(list(shape), element_of(data)),
        data,
        kernel,
        dimension_numbers=numbers,
        feature_group_count=groups,
        batch_group_count=1,
        window_strides=integers(strides),
        padding=ir.DenseIntElementsAttr.parse(f"dense<[{pairs}]> : {sides}"),
        lhs_dilation=integers([1] * rank),
        rhs_dilation=integers(dilation),
    )
