"""Layouts: in which order the dimensions of a node's operands and result, and of weights, lie in memory.

A choice is XLA's notation, minor to major: `{1,0}` is a row-major matrix. It is applied as a layout constraint on the
values at the original node's border, before any form rewrites what is inside; the compiler inserts the copies. Weights
get theirs as the program's arguments, so that they are laid out anew once, and not in every call.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpugraphs.errors import BadRequest
from tpugraphs.program import Program, mlir
from tpugraphs.space.knobs import LAYOUT, Knob, Space
from tpugraphs.space.notation import LONGEST, TENSORS, Layout, render

OPERATIONS = ("convolution", "dot_general", "reshape")
"""Whose layouts vary, as in the paper; `transpose` may be asked for besides."""
COMPILER = "default"


def layout_space(program: Program, operations: Sequence[str] = OPERATIONS) -> Space:
    """A knob for each operand and result of the nodes, and for each weight, that has more than one layout."""
    module = mlir.parse(program.text, program.name)
    knobs = []
    with module.context:
        for op in mlir.operations(mlir.entry_block(module)):
            tag = mlir.tag_of(op)
            if tag is None or op.operation.name.removeprefix("stablehlo.") not in operations:
                continue
            label = mlir.describe(op.operation)
            for tensor, value in _tensors(op.operation):
                knob = _knob(f"{mlir.short(tag)}.{tensor}", tag, mlir.shape_of(value), f"{tensor} of {label}")
                knobs.extend(knob)
        for index, spec in enumerate(program.inputs):
            if spec.fan_in is not None:
                shape = "x".join(map(str, spec.shape))
                knobs.extend(_knob(f"input{index}.layout", f"input{index}", spec.shape, f"weights {shape}"))
    return Space(tuple(knobs))


def _knob(name: str, place: str, shape: Sequence[int], label: str) -> Iterator[Knob]:
    choices = [render(layout) for layout in layouts_of(shape)]
    if len(choices) > 1:
        yield Knob(name, LAYOUT, place, (COMPILER, *choices), f"layout of {label}")


def layouts_of(shape: Sequence[int]) -> list[Layout]:
    """The layouts of a shape that differ in memory, row-major first: where dimensions of length 1 stand is nothing."""
    if len(shape) > LONGEST:
        return []
    long = [dim for dim in reversed(range(len(shape))) if shape[dim] != 1]
    short = [dim for dim in reversed(range(len(shape))) if shape[dim] == 1]
    row_major = tuple(reversed(range(len(shape))))
    others = ((*order, *short) for order in itertools.permutations(long) if list(order) != long)
    return [row_major, *others]


def constrain(module: ir.Module, chosen: Mapping[str, Mapping[str, Layout]]) -> None:
    """Puts layout constraints at the borders of nodes, by tag and tensor, in place."""
    left = dict(chosen)
    with module.context:
        for op in list(mlir.operations(mlir.entry_block(module))):
            layouts = left.pop(mlir.tag_of(op) or "", None)
            if layouts is None:
                continue
            _constrain(op.operation, layouts)
    if left:
        raise BadRequest(f"{', '.join(left)}: no such node in this program")


def _constrain(op: Any, layouts: Mapping[str, Layout]) -> None:
    tensors = dict(_tensors(op))
    for tensor, layout in layouts.items():
        if tensor not in tensors:
            raise BadRequest(f"{mlir.tag_of(op)}: has no {tensor}")
        rank = len(mlir.shape_of(tensors[tensor]))
        if sorted(layout) != list(range(rank)):
            raise BadRequest(f"{mlir.tag_of(op)}: {render(layout)} is no layout of rank {rank}")
        if tensor == "output":
            result = op.results[0]
            with ir.InsertionPoint.after(op), op.location:
                constraint = _constraint(result, layout)
            result.replace_all_uses_except(constraint.result, constraint)
        else:
            with ir.InsertionPoint(op), op.location:
                op.operands[TENSORS.index(tensor) - 1] = _constraint(tensors[tensor], layout).result


def _constraint(value: Any, layout: Layout) -> Any:
    def tensor_of(dims: Iterable[int]) -> Any:
        dims = list(dims)
        kind = ir.RankedTensorType.get([len(dims)], ir.IndexType.get())
        return ir.DenseIntElementsAttr.parse(f"dense<[{', '.join(map(str, dims))}]> : {kind}")

    row_major = tensor_of(reversed(range(len(layout))))
    return ir.Operation.create(
        stablehlo.CustomCallOp.OPERATION_NAME,
        results=[value.type],
        operands=[value],
        attributes={
            "call_target_name": ir.StringAttr.get("LayoutConstraint"),
            "operand_layouts": ir.ArrayAttr.get([row_major]),  # XLA looks at the result's alone
            "result_layouts": ir.ArrayAttr.get([tensor_of(layout)]),
        },
    )


def lay_out_inputs(module: ir.Module, layouts: Mapping[int, Layout]) -> None:
    """Declares in which layout the program's arguments come."""
    if not layouts:
        return
    main = mlir.main_function(module, "module")
    with module.context:
        count = len(main.regions[0].blocks[0].arguments)
        if "arg_attrs" in main.operation.attributes:
            attributes = [dict(_items(one)) for one in ir.ArrayAttr(main.operation.attributes["arg_attrs"])]
        else:
            attributes = [{} for _ in range(count)]
        for index, layout in layouts.items():
            attributes[index]["mhlo.layout_mode"] = ir.StringAttr.get(render(layout))
        main.operation.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(one) for one in attributes])


def _items(attribute: Any) -> Iterator[tuple[str, Any]]:
    return ((named.name, named.attr) for named in ir.DictAttr(attribute))


def _tensors(op: Any) -> Iterator[tuple[str, Any]]:
    """The values at a node's border, by the names of the official blocks."""
    yield "output", op.results[0]
    yield from zip(TENSORS[1:], op.operands, strict=False)
