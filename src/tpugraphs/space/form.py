"""Forms: the same operation written another way. Each is a rewrite of one StableHLO operation, keeping its tag."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpugraphs.errors import BadRequest
from tpugraphs.program import Program, mlir
from tpugraphs.space.knobs import FORM, Knob, Space

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Form:
    """One way of writing an operation."""

    name: str
    label: str
    applies: Callable[[Any], bool]
    """Whether the operation can be written so."""
    rewrite: Callable[[Any], Any]
    """Builds the other form in front of the operation and returns the value that takes its result's place."""


def depthwise(op: Any) -> bool:
    """A convolution of one channel each, channels last, without dilation, reversal or batch groups, not empty."""
    if op.name != "stablehlo.convolution":
        return False
    numbers = mlir.convolution_numbers(op)
    if numbers is None:
        return False
    rank = len(mlir.shape_of(op.operands[0]))
    spatial = list(range(1, rank - 1))
    kernel, output = mlir.shape_of(op.operands[1]), mlir.shape_of(op.results[0])
    channels_last = (
        (numbers["input_batch"], numbers["input_feature"], numbers["input_spatial"]) == (0, rank - 1, spatial)
        and (numbers["output_batch"], numbers["output_feature"], numbers["output_spatial"]) == (0, rank - 1, spatial)
        and (numbers["kernel_spatial"], numbers["kernel_input"], numbers["kernel_output"])
        == ([dim - 1 for dim in spatial], rank - 2, rank - 1)
    )
    groups = mlir.attribute(op, "feature_group_count", [1])[0]
    plain = (
        0 not in output
        and all(step == 1 for name in ("lhs_dilation", "rhs_dilation") for step in mlir.attribute(op, name, [1]))
        and mlir.attribute(op, "batch_group_count", [1]) == [1]
        and "true" not in str(op.attributes.get("window_reversal", ""))
        and isinstance(ir.RankedTensorType(op.results[0].type).element_type, ir.FloatType)
    )
    return channels_last and plain and rank > 2 and groups > 1 and kernel[rank - 2] == 1 and output[-1] == groups


def shifted(op: Any) -> Any:
    """A depthwise convolution as a sum over the window: a shifted slice of the padded input times one weight each."""
    data, kernel = op.operands
    output = ir.RankedTensorType(op.results[0].type)
    element, shape = output.element_type, list(output.shape)
    window = mlir.shape_of(kernel)[:-2]
    strides = mlir.attribute(op, "window_strides", [1] * len(window))
    padding = np.reshape(mlir.attribute(op, "padding", [0] * 2 * len(window)), (-1, 2))
    channels, batch = shape[-1], shape[0]
    scalar = ir.RankedTensorType.get([], element)
    zero = stablehlo.constant(ir.DenseElementsAttr.get_splat(scalar, ir.FloatAttr.get(element, 0.0)))
    low, high = ([0, *(int(side) for side in padding[:, which]), 0] for which in (0, 1))
    padded = stablehlo.pad(data, zero, _i64(low), _i64(high), _i64([0] * len(shape)))
    total = None
    for shift in np.ndindex(*window):
        stop = [at + (count - 1) * step + 1 for at, count, step in zip(shift, shape[1:-1], strides, strict=True)]
        part = stablehlo.slice(padded, _i64([0, *shift, 0]), _i64([batch, *stop, channels]), _i64([1, *strides, 1]))
        weight = stablehlo.slice(
            kernel, _i64([*shift, 0, 0]), _i64([*(at + 1 for at in shift), 1, channels]), _i64([1] * len(shape))
        )
        weight = stablehlo.reshape(ir.RankedTensorType.get([channels], element), weight)
        term = stablehlo.multiply(part, stablehlo.broadcast_in_dim(output, weight, _i64([len(shape) - 1])))
        total = term if total is None else stablehlo.add(total, term)
    return total


def _i64(values: list[int]) -> Any:
    return ir.DenseI64ArrayAttr.get([int(value) for value in values])


FORMS: Mapping[str, Form] = MappingProxyType(
    {"shifted": Form("shifted", "shifted multiply-adds", applies=depthwise, rewrite=shifted)}
)


def forms_of(text: str, forms: Mapping[str, Form] = FORMS) -> dict[str, tuple[str, ...]]:
    """The forms that are valid at each tagged node, besides its own."""
    module = mlir.parse(text, "program")
    valid = {}
    with module.context:
        for op in mlir.operations(mlir.entry_block(module)):
            tag = mlir.tag_of(op)
            if tag is not None:
                valid[tag] = tuple(name for name, form in forms.items() if form.applies(op.operation))
    return valid


def form_space(program: Program, forms: Mapping[str, Form] = FORMS) -> Space:
    """A knob for each node that has another form than its own."""
    valid = forms_of(program.text, forms)
    return Space(
        tuple(
            Knob(f"{mlir.short(node.tag)}.form", FORM, node.tag, (DEFAULT, *valid[node.tag]), node.description)
            for node in program.nodes
            if valid.get(node.tag)
        )
    )


def rewrite(module: Any, chosen: Mapping[str, str], forms: Mapping[str, Form] = FORMS) -> None:
    """Writes the chosen nodes in their chosen forms, in place; what is built carries the node's tag."""
    left = dict(chosen)
    with module.context:
        for op in list(mlir.operations(mlir.entry_block(module))):
            tag = mlir.tag_of(op)
            if tag not in left or op.operation.name == stablehlo.CustomCallOp.OPERATION_NAME:
                continue  # a layout constraint at the node's border carries its tag too
            form = forms[left.pop(tag)]
            if not form.applies(op.operation):
                raise BadRequest(f"{mlir.tag_of(op)}: cannot be written as {form.label}")
            with ir.InsertionPoint(op), op.operation.location:
                value = form.rewrite(op.operation)
            op.operation.results[0].replace_all_uses_with(value)
            op.operation.erase()
    if left:
        raise BadRequest(f"{', '.join(left)}: no such node in this program")
