"""Convolutions written another way.

Each form is the formula and no more, on the canonical reading, and so is valid for one, two or three dimensions,
forward and in both gradients.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import gcd, prod
from typing import Any

from jaxlib.mlir.dialects import stablehlo

from tpugraphs.space.forms import ops
from tpugraphs.space.forms.convolution_reading import Shape, Window, canonical, read, where, writing
from tpugraphs.space.forms.form import Form
from tpugraphs.space.forms.ops import Value

_MOST_TERMS = 128
"""A sum written out is no longer than this."""
_MOST_PARTS = 64
"""So many convolutions or dots at the most take the place of one."""
_MOST_BYTES = 1 << 28
"""Of a copy that a form makes."""


# Sums over the window -------------------------------------------------------------------------------------------------


def shifted(window: Window) -> Value:
    """Σ over the window and a group's channels: the data there, times one weight for each output."""
    shape = window.shape
    split = (*shape.result[:-1], shape.groups, shape.per_group)
    spread = (*shape.result[:-1], shape.groups, shape.multiple)
    outer = list(range(len(split) - 1))

    def terms() -> Iterator[Value]:
        for offset in window.offsets:
            data, weights = ops.reshape(window.under(offset), split), window.weights(offset)
            for channel in range(shape.per_group):
                one = ops.taken(data, [0] * (len(split) - 1) + [channel], [*split[:-1], channel + 1])
                one = ops.spread(ops.reshape(one, split[:-1]), spread, outer)
                weight = ops.taken(weights, [channel, 0], [channel + 1, shape.outputs])
                weight = ops.spread(ops.reshape(weight, spread[-2:]), spread, [len(spread) - 2, len(spread) - 1])
                yield stablehlo.multiply(one, weight)

    return ops.reshape(ops.total(list(terms())), shape.result)


def dots(window: Window) -> Value:
    """Σ over the window: the data there as rows, times the kernel there as a matrix; for groups, batched."""
    return ops.total([_product(window, window.under(offset), window.weights(offset)) for offset in window.offsets])


def patches(window: Window) -> Value:
    """All that the window meets, side by side as one row, times the whole kernel as one matrix."""
    shape = window.shape
    columns = shape.positions * shape.per_group
    if shape.groups == 1:
        data = ops.joined([window.under(offset) for offset in window.offsets], shape.rank + 1)
        return _product(window, data, ops.reshape(window.kernel, (columns, shape.outputs)))
    split = (*shape.result[:-1], shape.groups, shape.per_group)
    parts = [ops.reshape(window.under(offset), split) for offset in window.offsets]
    data = ops.reshape(ops.joined(parts, len(split) - 1), (*shape.result[:-1], shape.groups * columns))
    return _product(window, data, ops.reshape(window.kernel, (columns, shape.outputs)))


def _product(window: Window, data: Value, weights: Value) -> Value:
    """(batch, *space, groups × columns) times (columns, outputs), group by group."""
    shape = window.shape
    rows, columns = prod(shape.result[:-1]), ops.shape_of(weights)[0]
    if shape.groups == 1:
        result = ops.dot(ops.reshape(data, (rows, columns)), weights, ([1], [0]))
    else:
        left = ops.reshape(data, (rows, shape.groups, columns))
        right = ops.reshape(weights, (columns, shape.groups, shape.multiple))
        result = ops.transpose(ops.dot(left, right, ([2], [0]), ([1], [1])), (1, 0, 2))
    return ops.reshape(result, shape.result)


# Other convolutions ---------------------------------------------------------------------------------------------------


def plain(window: Window) -> Value:
    """The convolution as it is, of data that is padded and dilated beforehand."""
    shape = window.shape
    return ops.convolution(
        window.data, window.kernel, shape.result, strides=shape.strides, dilation=shape.dilation, groups=shape.groups
    )


def by_group(window: Window) -> Value:
    """A plain convolution for each group, side by side."""
    shape = window.shape
    space = ops.shape_of(window.data)[1:-1]
    parts = []
    for group in range(shape.groups):
        first, last = group * shape.per_group, (group + 1) * shape.per_group
        data = ops.taken(window.data, [0] * (shape.rank + 1) + [first], [shape.batch, *space, last])
        first, last = group * shape.multiple, (group + 1) * shape.multiple
        kernel = ops.taken(window.kernel, [0] * (shape.rank + 1) + [first], [*shape.window, shape.per_group, last])
        result = (*shape.result[:-1], shape.multiple)
        parts.append(ops.convolution(data, kernel, result, strides=shape.strides, dilation=shape.dilation))
    return ops.joined(parts, shape.rank + 1)


def dense(window: Window) -> Value:
    """One plain convolution, whose kernel has zeros for what other groups see."""
    shape = window.shape
    parts = []
    for group in range(shape.groups):
        first, last = group * shape.multiple, (group + 1) * shape.multiple
        kernel = ops.taken(window.kernel, [0] * (shape.rank + 1) + [first], [*shape.window, shape.per_group, last])
        above, below = group * shape.per_group, (shape.groups - group - 1) * shape.per_group
        parts.append(ops.padded(kernel, [*[0] * shape.rank, above, 0], [*[0] * shape.rank, below, 0]))
    kernel = ops.joined(parts, shape.rank + 1)
    return ops.convolution(window.data, kernel, shape.result, strides=shape.strides, dilation=shape.dilation)


# Few outputs under large windows: the gradient of a kernel ------------------------------------------------------------


def by_output(window: Window) -> Value:
    """For each of the few output positions, one product of everything under the window with the whole kernel."""
    shape = window.shape
    columns = shape.positions * shape.per_group
    parts = []
    for at in itertools.product(*(range(length) for length in shape.space)):
        data = _under_all(window, at)
        if shape.groups == 1:
            data = ops.reshape(data, (shape.batch, columns))
            kernel = ops.reshape(window.kernel, (columns, shape.outputs))
            part = ops.dot(data, kernel, ([1], [0]))
        else:  # every output has one channel of its own
            data = ops.reshape(data, (shape.batch, shape.positions, shape.groups, shape.per_group))
            data = ops.transpose(data, (0, 1, 3, 2))
            kernel = ops.reshape(window.kernel, (shape.positions, shape.per_group, shape.groups))
            kernel = ops.spread(kernel, ops.shape_of(data), [1, 2, 3])
            part = ops.summed(stablehlo.multiply(data, kernel), [1, 2])
        parts.append(ops.reshape(part, (shape.batch, 1, shape.outputs)))
    return ops.reshape(ops.joined(parts, 1), shape.result)


def _under_all(window: Window, at: Sequence[int]) -> Value:
    """(batch, *window, channels), for one output position."""
    shape = window.shape
    start = [index * step for index, step in zip(at, shape.strides, strict=True)]
    stop = [first + (n - 1) * step + 1 for first, n, step in zip(start, shape.window, shape.dilation, strict=True)]
    return ops.taken(window.data, [0, *start, 0], [shape.batch, *stop, shape.channels], [1, *shape.dilation, 1])


# Dilated data: transposed convolutions, and the gradient of what has strides ------------------------------------------


def phases(op: Any) -> Value:
    """A convolution for each phase of the output, since neighbours meet other weights; no zero is multiplied.

    With data that has d - 1 zeros between neighbours, output position d·q + r meets the data at q + e for those places
    w of the window that make (r + w·dilation - low) a multiple e·d.
    """
    reading = ops.known(read(op))
    data, kernel = canonical(op, reading)
    shape = reading.shape
    steps = [between + 1 for between in shape.interior]
    lengths = [-(-n // d) for n, d in zip(shape.space, steps, strict=True)]
    parts = [_phase(shape, data, kernel, rest, lengths) for rest in itertools.product(*(range(step) for step in steps))]
    stacked = ops.joined([ops.reshape(part, (1, *ops.shape_of(part))) for part in parts], 0)
    rank = shape.rank
    stacked = ops.reshape(stacked, (*steps, shape.batch, *lengths, shape.outputs))
    pairs = [dim for index in range(rank) for dim in (rank + 1 + index, index)]
    whole = ops.transpose(stacked, (rank, *pairs, 2 * rank + 1))
    whole = ops.reshape(whole, (shape.batch, *(n * d for n, d in zip(lengths, steps, strict=True)), shape.outputs))
    return ops.transpose(ops.taken(whole, [0] * (rank + 2), shape.result), reading.result_order)


def _phase(shape: Shape, data: Value, kernel: Value, rest: Sequence[int], lengths: Sequence[int]) -> Value:
    start, stop, step, dilation, padding = [], [], [], [], []
    for index, r in enumerate(rest):
        d, spacing, low = shape.interior[index] + 1, shape.dilation[index], shape.padding[index][0]
        places = [w for w in range(shape.window[index]) if (r + w * spacing - low) % d == 0]
        if not places:
            return ops.filled(0, (shape.batch, *lengths, shape.outputs), ops.element_of(data))
        common = gcd(d, spacing)
        start.append(places[0])
        stop.append(places[-1] + 1)
        step.append(d // common)
        dilation.append(spacing // common)
        first, last = ((r + w * spacing - low) // d for w in (places[0], places[-1]))
        padding.append((-first, lengths[index] - 1 + last - (shape.data[index] - 1)))
    part = ops.taken(kernel, [*start, 0, 0], [*stop, shape.per_group, shape.outputs], [*step, 1, 1])
    result = (shape.batch, *lengths, shape.outputs)
    return ops.convolution(
        data, part, result, strides=[1] * shape.rank, dilation=dilation, padding=padding, groups=shape.groups
    )


def _has_phases(shape: Shape) -> bool:
    steps = [between + 1 for between in shape.interior]
    return shape.is_dilated and all(step == 1 for step in shape.strides) and prod(steps) <= _MOST_PARTS


def _fits(shape: Shape) -> bool:
    """Whether what the window meets, side by side, is no huge copy."""
    return shape.bytes(*shape.result[:-1], shape.positions, shape.channels) <= _MOST_BYTES


FORMS = (
    Form(
        "shifted",
        "shifted multiply-adds",
        "as many multiply-adds, elementwise and fused; for few channels a group",
        applies=where(lambda shape: shape.groups > 1 and shape.positions * shape.per_group <= _MOST_TERMS),
        rewrite=writing(shifted, wide=True),
    ),
    Form(
        "dots",
        "a dot for each place of the window",
        "as many multiply-adds, in matrix products; the data is read once for each place of the window",
        applies=where(lambda shape: shape.positions <= _MOST_PARTS and shape.per_group > 1),
        rewrite=writing(dots),
    ),
    Form(
        "patches",
        "patches and a dot",
        "one matrix product; copies the data once for each place of the window",
        applies=where(
            lambda shape: 1 < shape.positions <= _MOST_PARTS and shape.per_group * shape.positions > 1 and _fits(shape)
        ),
        rewrite=writing(patches),
    ),
    Form(
        "plain",
        "a plain convolution of padded data",
        "copies the data with zeros around and between; what is left is a plain convolution",
        applies=where(lambda shape: shape.is_dilated or any(map(any, shape.padding))),
        rewrite=writing(plain),
    ),
    Form(
        "by-group",
        "a plain convolution for each group",
        "as many multiply-adds, in that many convolutions",
        applies=where(lambda shape: 1 < shape.groups <= _MOST_PARTS),
        rewrite=writing(by_group),
    ),
    Form(
        "dense",
        "one plain convolution with zeros between groups",
        "as many times the multiply-adds as there are groups",
        applies=where(
            lambda shape: (
                1 < shape.groups <= _MOST_PARTS
                and shape.bytes(shape.positions, shape.channels, shape.outputs) <= _MOST_BYTES
            )
        ),
        rewrite=writing(dense),
    ),
    Form(
        "by-output",
        "a product for each output position",
        "as many multiply-adds, in one long product for each of few outputs: for gradients of kernels",
        applies=where(
            lambda shape: (
                prod(shape.space) <= _MOST_PARTS
                and shape.positions > prod(shape.space)
                and (shape.groups == 1 or shape.multiple == 1)
            )
        ),
        rewrite=writing(by_output, wide=True),
    ),
    Form(
        "phases",
        "a plain convolution for each phase",
        "the multiply-adds by zeros between the data's neighbours are left out",
        applies=where(_has_phases),
        rewrite=phases,
    ),
)
