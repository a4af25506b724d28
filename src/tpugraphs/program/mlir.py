"""StableHLO modules in memory: parsing, inlining, tagging, walking. The one place that knows JAX's MLIR bindings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jax._src.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpugraphs.errors import BadFile
from tpugraphs.program.types import InputSpec, Node

CONFIGURABLE = ("stablehlo.convolution", "stablehlo.dot_general")
MOVING = ("stablehlo.reshape", "stablehlo.transpose")
"""These are configurable too where they move data: how they are laid out decides whether they copy."""
WRITABLE = (
    "stablehlo.reduce_window",
    "stablehlo.select_and_scatter",
    "stablehlo.gather",
    "stablehlo.scatter",
    "stablehlo.power",
    "stablehlo.sort",
    "chlo.top_k",
)
"""These can be written in other ways."""
_SEVERAL = ("stablehlo.sort", "chlo.top_k")
"""And these even where they have several results."""
_PORTABLE = re.compile(rb"ML\xefR.StableHLO", re.DOTALL)
_TAG_PREFIX = "tpugraphs."
TAG = re.compile(r"tpugraphs\.node\d+")
_KEPT_PREFIX = "tpugraphs.kept."
_KEPT = re.compile(r"tpugraphs\.kept\.(node\d+)")
_PASSES_ON = ("stablehlo.reshape", "stablehlo.transpose", "stablehlo.convert", "stablehlo.broadcast_in_dim")


def parse(source: str | bytes, label: str | Path) -> ir.Module:
    """The module in text, bytecode or a portable artifact, verified; its context lives as long as it does."""
    context = jax_mlir.make_ir_context()
    with context:
        try:
            if isinstance(source, bytes) and _PORTABLE.match(source):
                return stablehlo.deserialize_portable_artifact(context, source)
            return ir.Module.parse(source)
        except (ir.MLIRError, ValueError) as error:
            first = str(error).strip().splitlines()
            found = " ".join(" ".join(first[:3]).split())[:300]
            raise BadFile(label, "StableHLO", expected="a module that parses", found=found) from error


def main_function(module: ir.Module, label: str | Path) -> Any:
    """The function named main, else the only public one."""
    functions = [op for op in module.body.operations if op.operation.name == "func.func"]
    named = [op for op in functions if ir.StringAttr(op.attributes["sym_name"]).value == "main"]
    if not named:
        found = ", ".join(ir.StringAttr(op.attributes["sym_name"]).value for op in functions) or "no function"
        raise BadFile(label, "StableHLO", expected="a function named main", found=found)
    return named[0]


def entry_block(module: ir.Module, label: str | Path = "module") -> Any:
    return main_function(module, label).regions[0].blocks[0]


def operations(block: Any) -> Iterator[Any]:
    """All operations below a block, in order, those in nested regions after the one that holds them."""
    for op in list(block.operations):
        yield op
        for region in op.operation.regions:
            for inner in region.blocks:
                yield from operations(inner)


def inline_calls(module: ir.Module, label: str | Path) -> None:
    """Replaces every call by the called function's operations, so that each operation stands for one execution."""
    functions = {
        ir.StringAttr(op.attributes["sym_name"]).value: op
        for op in module.body.operations
        if op.operation.name == "func.func"
    }
    with module.context:
        while calls := [op for op in operations(entry_block(module, label)) if op.operation.name == "func.call"]:
            for call in calls:
                callee = ir.FlatSymbolRefAttr(call.operation.attributes["callee"]).value
                _inline(call.operation, functions[callee].regions[0].blocks[0])
        main = main_function(module, label)
        for op in functions.values():
            if op != main:
                op.operation.erase()


def _inline(call: Any, body: Any) -> None:
    values = dict(zip(body.arguments, call.operands, strict=True))
    for op in body.operations:
        if op.operation.name == "func.return":
            for result, value in zip(call.results, op.operation.operands, strict=True):
                result.replace_all_uses_with(values.get(value, value))
            break
        copy = op.operation.clone(ir.InsertionPoint(call))
        for inner in (
            copy,
            *(nested.operation for region in copy.regions for b in region.blocks for nested in operations(b)),
        ):
            for index, operand in enumerate(inner.operands):
                if operand in values:
                    inner.operands[index] = values[operand]
        values.update(zip(op.operation.results, copy.results, strict=True))
    call.erase()


def generalize_dots(module: ir.Module, label: str | Path) -> None:
    """Writes plain dots, which come out of HLO, as general ones."""
    with module.context:
        for op in list(operations(entry_block(module, label))):
            dot = op.operation
            if dot.name != "stablehlo.dot":
                continue
            numbers = stablehlo.DotDimensionNumbers.get(
                lhs_batching_dimensions=[],
                rhs_batching_dimensions=[],
                lhs_contracting_dimensions=[len(shape_of(dot.operands[0])) - 1],
                rhs_contracting_dimensions=[0],
            )
            precision = dot.attributes.get("precision_config")
            with ir.InsertionPoint(dot), dot.location:
                result = stablehlo.dot_general(
                    dot.results[0].type, dot.operands[0], dot.operands[1], numbers, precision_config=precision
                )
            dot.results[0].replace_all_uses_with(result)
            dot.erase()


_EFFECTS = ("infeed", "outfeed", "send", "recv", "custom_call", "func.return", "stablehlo.return")


def remove_unused(module: ir.Module, label: str | Path) -> None:
    """Removes what nobody uses, as XLA does before its first pass: such a node would never be compiled."""
    block = entry_block(module, label)
    for op in reversed(list(block.operations)):
        used = any(True for result in op.operation.results for _ in result.uses)
        if not used and not any(_has_effect(inner) for inner in _with_inner(op)):
            op.operation.erase()


def _with_inner(op: Any) -> Iterator[Any]:
    yield op.operation
    for region in op.operation.regions:
        for block in region.blocks:
            for inner in operations(block):
                if inner.operation.name != "stablehlo.return":
                    yield inner.operation


def _has_effect(op: Any) -> bool:
    return op.name.endswith(_EFFECTS)


def tag_nodes(module: ir.Module, label: str | Path) -> tuple[Node, ...]:
    """Gives every configurable node a tag as its location, in order, and describes it; other locations are dropped."""
    nodes = []
    with module.context:
        for op in operations(entry_block(module, label)):
            if is_configurable(op.operation):
                tag = long(f"node{len(nodes)}")
                op.operation.location = ir.Location.name(tag)
                nodes.append(Node(tag, operation_of(op.operation), describe(op.operation)))
            else:
                op.operation.location = ir.Location.unknown()
    return tuple(nodes)


def is_configurable(op: Any) -> bool:
    """Convolutions and dots, and what else can be written in other ways; reshapes and transposes of more than one long
    dimension that do not merely add or drop dimensions of length 1."""
    if op.name in CONFIGURABLE:
        return True
    if op.name in WRITABLE:
        return len(op.results) == 1 or op.name in _SEVERAL
    if op.name not in MOVING:
        return False
    before, after = (_long(shape_of(value)) for value in (op.operands[0], op.results[0]))
    return max(len(before), len(after)) > 1 and (op.name == "stablehlo.transpose" or before != after)


def _long(shape: tuple[int, ...]) -> list[int]:
    return [length for length in shape if length != 1]


def short(tag: str) -> str:
    """`node3`, of the tag `tpugraphs.node3`."""
    return tag.removeprefix(_TAG_PREFIX)


def long(name: str) -> str:
    """The tag of `node3`."""
    return f"{_TAG_PREFIX}{name}"


def tag_of(op: Any) -> str | None:
    """The tag in an operation's location."""
    match = TAG.search(str(op.operation.location))
    return match[0] if match else None


def kept(tag: str) -> Any:
    """The location of a node as it was, beside the form it was written in: no tag, but its name."""
    return ir.Location.name(f"{_KEPT_PREFIX}{short(tag)}")


def kept_tag_of(op: Any) -> str | None:
    """The tag of the node that this operation is as it was."""
    match = _KEPT.search(str(op.operation.location))
    return long(match[1]) if match else None


def to_text(module: ir.Module) -> str:
    return str(module.operation.get_asm(enable_debug_info=True))


def to_bytecode(module: ir.Module) -> bytes:
    return jax_mlir.module_to_bytecode(module)


def shape_of(value: Any) -> tuple[int, ...]:
    return tuple(ir.RankedTensorType(value.type).shape)


def integers(attribute: Any) -> list[int]:
    """An attribute's integers, flattened, whichever of MLIR's ways of holding them is used."""
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return list(attribute)
    if isinstance(attribute, ir.IntegerAttr):
        return [attribute.value]
    return np.array(attribute).reshape(-1).tolist()


def attribute(op: Any, name: str, default: list[int]) -> list[int]:
    return integers(op.attributes[name]) if name in op.attributes else default


def operation_of(op: Any) -> str:
    """An operation's name without its dialect."""
    return op.name.partition(".")[2]


def describe(op: Any) -> str:
    """A configurable node in words."""
    output = "x".join(map(str, shape_of(op.results[0])))
    if op.name != "stablehlo.convolution":
        return f"{operation_of(op).removesuffix('_general').replace('_', ' ')}, {output}"
    numbers = convolution_numbers(op)
    if numbers is None:
        return f"convolution, {output}"
    kernel = shape_of(op.operands[1])
    window = "x".join(str(kernel[dim]) for dim in numbers["kernel_spatial"])
    groups = attribute(op, "feature_group_count", [1])[0]
    depthwise = groups > 1 and kernel[numbers["kernel_input"]] == 1
    kind = "depthwise " if depthwise else f"{groups}-group " if groups > 1 else ""
    strides = attribute(op, "window_strides", [])
    stride = f" stride {'x'.join(map(str, strides))}" if any(step != 1 for step in strides) else ""
    return f"{kind}{window} convolution{stride}, {output}"


_DIMS = re.compile(r"#stablehlo\.conv<\[(.*?)\]x\[(.*?)\]->\[(.*?)\]>")


def convolution_numbers(op: Any) -> dict[str, Any] | None:
    """Which dimension is which, by name; None for numbers this does not read."""
    match = _DIMS.fullmatch(str(op.attributes["dimension_numbers"]))
    if match is None:
        return None
    data, kernel, output = ([part.strip() for part in group.split(",")] for group in match.groups())
    spatial = [str(index) for index in range(len(data) - 2)]
    return {
        "input_batch": data.index("b"),
        "input_feature": data.index("f"),
        "input_spatial": [data.index(dim) for dim in spatial],
        "kernel_input": kernel.index("i"),
        "kernel_output": kernel.index("o"),
        "kernel_spatial": [kernel.index(dim) for dim in spatial],
        "output_batch": output.index("b"),
        "output_feature": output.index("f"),
        "output_spatial": [output.index(dim) for dim in spatial],
    }


def input_specs(module: ir.Module, label: str | Path) -> tuple[InputSpec, ...]:
    """The program's arguments; weights are found by following the second operand of its nodes back."""
    block = entry_block(module, label)
    fan_in = {}
    for op in operations(block):
        if op.operation.name in CONFIGURABLE:
            weights = _source(op.operation.operands[1], block)
            if weights is not None:
                fan_in.setdefault(weights, _fan_in(op.operation))
    specs = []
    for index, argument in enumerate(block.arguments):
        if not isinstance(argument.type, ir.RankedTensorType):
            raise BadFile(label, f"argument {index}", expected="a tensor", found=str(argument.type))
        kind = ir.RankedTensorType(argument.type)
        dynamic = [str(dim) for dim in range(kind.rank) if kind.is_dynamic_dim(dim)]
        if dynamic:
            found = f"{kind} (dimension {', '.join(dynamic)} is dynamic); give it a length and lower the program again"
            raise BadFile(label, f"argument {index}", expected="a static shape", found=found)
        specs.append(InputSpec(tuple(kind.shape), _numpy_dtype(kind.element_type, label), fan_in.get(index)))
    return tuple(specs)


def _source(value: Any, entry: Any) -> int | None:
    """The number of the program's argument that a value is, seen through reshaping and into loops; else None."""
    while True:
        if isinstance(value, ir.BlockArgument):
            block = value.owner
            if block == entry:
                return value.arg_number
            if block.owner.name != "stablehlo.while":
                return None
            value = block.owner.operands[value.arg_number]
        elif value.owner.name in _PASSES_ON:
            value = value.owner.operands[0]
        else:
            return None


def _fan_in(op: Any) -> int:
    weights = shape_of(op.operands[1])
    if op.name == "stablehlo.dot_general":
        contracted = re.search(
            r"rhs_contracting_dimensions = \[([\d, ]*)\]", str(op.attributes["dot_dimension_numbers"])
        )
        dims = [int(dim) for dim in contracted[1].split(",")] if contracted else []
        return max(1, int(np.prod([weights[dim] for dim in dims])))
    numbers = convolution_numbers(op)
    outputs = weights[numbers["kernel_output"]] if numbers else weights[-1]
    return max(1, int(np.prod(weights)) // max(1, outputs))


_DTYPES = {
    "i1": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "ui8": "uint8", "ui16": "uint16", "ui32": "uint32", "ui64": "uint64",
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
    "complex<f32>": "complex64", "complex<f64>": "complex128",
}  # fmt: skip


def _numpy_dtype(element: Any, label: str | Path) -> str:
    name = _DTYPES.get(str(element))
    if name is None:
        raise BadFile(label, "StableHLO", expected="arguments of a numpy dtype", found=str(element))
    return name
