"""Probes: a copy of a program that returns the results of some nodes besides its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from jaxlib.mlir import ir

from tpugraphs.program import mlir
from tpugraphs.program.types import Program
from tpugraphs.types import AS_IT_WAS

_LAST = 2


def add_probes(module: ir.Module, program: Program, changed: Collection[str] | None = None) -> tuple[str, ...]:
    """Makes main return, behind its own results, those of some nodes; returns their names, which are tags.

    A wrong form shows best at its own node: an untrained classifier ends in a softmax so even that errors hide in it,
    and deep programs forget their early layers. So the changed nodes are probed, and the last two that compute
    something; `None` means all. Nodes inside loops are not probed. Of a result of which the program uses slices alone,
    these are returned: what else a form puts there is nobody's concern. Of a node that was kept as it was beside its
    form, that result is returned too, under its tag with `AS_IT_WAS` behind.
    """
    block = mlir.entry_block(module)
    values = _values_by_tag(block)
    if changed is not None:
        computing = [node.tag for node in program.nodes if node.computes and node.tag in values]
        wanted = {*changed, *computing[-_LAST:]}
        values = {tag: value for tag, value in values.items() if tag in wanted}
    values = dict(_seen(values, block))
    values |= {
        f"{tag}{AS_IT_WAS}": op.operation.results[0]
        for op in block.operations
        if (tag := mlir.kept_tag_of(op)) in values
    }
    return_also(module, list(values.values()))
    return tuple(values)


def return_also(module: ir.Module, values: Sequence[Any]) -> None:
    """Makes main return these behind its own results."""
    main = mlir.main_function(module, "module")
    block = main.regions[0].blocks[0]
    ending = list(block.operations)[-1].operation
    with module.context, ir.Location.unknown():
        results = [*ending.operands, *values]
        with ir.InsertionPoint(ending):
            ir.Operation.create("func.return", operands=results)
        ending.erase()
        inputs = [argument.type for argument in block.arguments]
        kind = ir.FunctionType.get(inputs, [value.type for value in results])
        main.operation.attributes["function_type"] = ir.TypeAttr.get(kind)
        if "res_attrs" in main.operation.attributes:
            del main.operation.attributes["res_attrs"]


def _values_by_tag(block: Any) -> dict[str, Any]:
    """The value that stands for each node, however it is written: the last that others use of what carries its tag, of
    several results at once the first."""
    values: dict[str, Any] = {}
    for op in block.operations:
        tag = mlir.tag_of(op)
        used = next((value for value in op.operation.results if tag and _leaves(value, tag)), None)
        if tag is not None and used is not None:
            values.pop(tag, None)
            values[tag] = used
    return values


def _leaves(value: Any, tag: str) -> bool:
    return any(mlir.tag_of(use.owner) != tag for use in value.uses)


def _seen(values: dict[str, Any], block: Any) -> Iterator[tuple[str, Any]]:
    """What the program sees of each value, in the order of the block."""
    place = {op.operation: index for index, op in enumerate(block.operations)}
    for tag, value in values.items():
        parts = _slices(value)
        if not parts:
            yield tag, value
        for number, part in enumerate(sorted(parts, key=lambda part: place[part])):
            yield f"{tag} slice {number}", part.results[0]


def _slices(value: Any) -> list[Any]:
    """The program's own slices of a value, also where it is reversed first; none if it is used in any other way."""
    found = []
    for use in value.uses:
        owner = use.owner
        if mlir.tag_of(owner) is not None or owner.name not in ("stablehlo.slice", "stablehlo.reverse"):
            return []
        parts = [owner] if owner.name == "stablehlo.slice" else _slices(owner.results[0])
        if not parts:
            return []
        found += parts
    return found
