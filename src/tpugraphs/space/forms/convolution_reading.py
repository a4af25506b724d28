"""Convolutions in one canonical way, whatever their dimensions are called: what their forms are written on.

Channels last, padding and dilation of the data made explicit, a reversed window turned round, groups of the batch made
groups of channels. What forms then see is `Window`: positions of a window over `data`, with a stride and a dilation,
and nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from jaxlib.mlir.dialects import stablehlo

from tpugraphs.program import mlir
from tpugraphs.space.forms import ops
from tpugraphs.space.forms.ops import Value


@dataclass(frozen=True)
class Shape:
    """A convolution's figures; dimensions are those of the canonical reading."""

    batch: int
    data: tuple[int, ...]
    """Lengths in space, before padding."""
    channels: int
    window: tuple[int, ...]
    outputs: int
    space: tuple[int, ...]
    """Lengths in space of the result."""
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    interior: tuple[int, ...]
    """Zeros between neighbours of the data."""
    dilation: tuple[int, ...]
    """Of the window."""
    groups: int
    bits: int

    @property
    def rank(self) -> int:
        return len(self.window)

    @property
    def per_group(self) -> int:
        """Channels that one output sees."""
        return self.channels // self.groups

    @property
    def multiple(self) -> int:
        """Outputs of a group."""
        return self.outputs // self.groups

    @property
    def positions(self) -> int:
        return prod(self.window)

    @property
    def is_dilated(self) -> bool:
        return any(self.interior)

    @property
    def result(self) -> tuple[int, ...]:
        return (self.batch, *self.space, self.outputs)

    def bytes(self, *lengths: int) -> int:
        return prod(lengths) * self.bits // 8


@dataclass(frozen=True)
class Reading:
    """How an operation maps to the canonical reading."""

    shape: Shape
    data_order: tuple[int, ...]
    kernel_order: tuple[int, ...]
    result_order: tuple[int, ...]
    """Of the canonical result's dimensions, which becomes the operation's first, second, …"""
    reversed_dims: tuple[int, ...]
    """Of the canonical kernel."""
    batch_groups: int


def read(op: Any) -> Reading | None:
    """The canonical reading, or None: not a convolution, or of mixed types, empty, or with numbers not read here."""
    if op.name != "stablehlo.convolution":
        return None
    elements = {str(ops.element_of(value)) for value in (*op.operands, op.results[0])}
    element = ops.element_of(op.operands[0])
    numbers = mlir.convolution_numbers(op)
    if numbers is None or len(elements) != 1 or not (ops.is_float(op.operands[0]) or ops.is_integer(op.operands[0])):
        return None
    data, kernel, output = (mlir.shape_of(value) for value in (*op.operands, op.results[0]))
    rank = len(data) - 2
    if rank < 1 or 0 in (*data, *kernel, *output):
        return None
    data_order = (numbers["input_batch"], *numbers["input_spatial"], numbers["input_feature"])
    kernel_order = (*numbers["kernel_spatial"], numbers["kernel_input"], numbers["kernel_output"])
    output_order = (numbers["output_batch"], *numbers["output_spatial"], numbers["output_feature"])
    batch_groups = mlir.attribute(op, "batch_group_count", [1])[0]
    sides = mlir.attribute(op, "padding", [0] * 2 * rank)
    reversal = [word == "true" for word in _words(op, "window_reversal")] or [False] * rank
    if len(reversal) != rank:
        reversal = reversal * rank
    groups = mlir.attribute(op, "feature_group_count", [1])[0]
    shape = Shape(
        batch=data[data_order[0]] // batch_groups,
        data=tuple(data[dim] for dim in data_order[1:-1]),
        channels=data[data_order[-1]] * batch_groups,
        window=tuple(kernel[dim] for dim in kernel_order[:-2]),
        outputs=kernel[kernel_order[-1]],
        space=tuple(output[dim] for dim in output_order[1:-1]),
        strides=tuple(mlir.attribute(op, "window_strides", [1] * rank)),
        padding=tuple(zip(sides[::2], sides[1::2], strict=True)),
        interior=tuple(step - 1 for step in mlir.attribute(op, "lhs_dilation", [1] * rank)),
        dilation=tuple(mlir.attribute(op, "rhs_dilation", [1] * rank)),
        groups=max(groups, batch_groups),
        bits=ops.bits_of(element),
    )
    result_order = [output_order.index(dim) for dim in range(len(output))]
    reversed_dims = [dim for dim, turned in enumerate(reversal) if turned]
    return Reading(shape, data_order, kernel_order, tuple(result_order), tuple(reversed_dims), batch_groups)


def _words(op: Any, name: str) -> list[str]:
    if name not in op.attributes:
        return []
    text = str(op.attributes[name]).partition(":")
    body = text[2] if text[0].startswith("array<i1") else text[0]
    return [word.strip(" [<>]") for word in body.replace("dense", "").strip(" <>").split(",")]


@dataclass(frozen=True)
class Window:
    """What a form computes: for each output position, products of the data under the window with the kernel."""

    shape: Shape
    data: Value
    """(batch, *space, channels), padded."""
    kernel: Value
    """(*window, channels per group, outputs)"""

    @cached_property
    def offsets(self) -> list[tuple[int, ...]]:
        """The window's positions."""
        return list(itertools.product(*(range(length) for length in self.shape.window)))

    def under(self, offset: Sequence[int]) -> Value:
        """The data that this position of the window meets: (batch, *result's space, channels)."""
        shape = self.shape
        start = [at * step for at, step in zip(offset, shape.dilation, strict=True)]
        stop = [at + (n - 1) * step + 1 for at, n, step in zip(start, shape.space, shape.strides, strict=True)]
        return ops.taken(self.data, [0, *start, 0], [shape.batch, *stop, shape.channels], [1, *shape.strides, 1])

    def weights(self, offset: Sequence[int]) -> Value:
        """The kernel there: (channels per group, outputs)."""
        shape = self.shape
        stop = [at + 1 for at in offset]
        part = ops.taken(self.kernel, [*offset, 0, 0], [*stop, shape.per_group, shape.outputs])
        return ops.reshape(part, (shape.per_group, shape.outputs))


def canonical(op: Any, reading: Reading) -> tuple[Value, Value]:
    """Data, before padding, and kernel, in the canonical order."""
    data = ops.transpose(op.operands[0], reading.data_order)
    kernel = ops.transpose(op.operands[1], reading.kernel_order)
    if reading.reversed_dims:
        kernel = stablehlo.reverse(kernel, ops.integers(reading.reversed_dims))
    shape = reading.shape
    if reading.batch_groups > 1:  # (groups, batch) there is (groups, channels) here
        groups, channels, rank = reading.batch_groups, shape.channels // reading.batch_groups, shape.rank
        data = ops.reshape(data, (groups, shape.batch, *shape.data, channels))
        data = ops.transpose(data, (1, *range(2, rank + 2), 0, rank + 2))
        data = ops.reshape(data, (shape.batch, *shape.data, shape.channels))
    return data, kernel


def writing(formula: Callable[[Window], Value], *, wide: bool = False) -> Callable[[Any], Value]:
    """A rewrite: reads the operation, lays the window open, and gives the formula's result the operation's order.

    `wide` is for sums that are written out: half precision is summed in float32, as the compilers do inside.
    """

    def rewrite(op: Any) -> Value:
        reading = ops.known(read(op))
        data, kernel = canonical(op, reading)
        shape, element = reading.shape, ops.element_of(data)
        if wide:
            data, kernel = ops.widened(data), ops.widened(kernel)
        low, high = ([0, *(side[which] for side in shape.padding), 0] for which in (0, 1))
        data = ops.padded(data, low, high, [0, *shape.interior, 0])
        result = formula(Window(shape, data, kernel))
        return ops.transpose(ops.converted(result, element), reading.result_order)

    return rewrite


def where(valid: Callable[[Shape], bool]) -> Callable[[Any], bool]:
    def applies(op: Any) -> bool:
        reading = read(op)
        return reading is not None and valid(reading.shape)

    return applies
