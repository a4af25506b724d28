"""Probes: a copy of a program that returns the results of some nodes besides its own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from jaxlib.mlir import ir

from tpugraphs.program import mlir
from tpugraphs.program.types import Program

_LAST = 2


def add_probes(module: ir.Module, program: Program, changed: Collection[str] | None = None) -> tuple[str, ...]:
    """Makes main return, behind its own results, those of some nodes; returns their tags.

    A wrong form shows best at its own node: an untrained classifier ends in a softmax so even that errors hide in it,
    and deep programs forget their early layers. So the changed nodes are probed, and the last two that compute
    something; `None` means all. Nodes inside loops are not probed.
    """
    main = mlir.main_function(module, "module")
    block = main.regions[0].blocks[0]
    ending = list(block.operations)[-1].operation
    values = _values_by_tag(block)
    if changed is not None:
        computing = [node.tag for node in program.nodes if node.computes and node.tag in values]
        wanted = {*changed, *computing[-_LAST:]}
        values = {tag: value for tag, value in values.items() if tag in wanted}
    with module.context, ir.Location.unknown():
        results = [*ending.operands, *values.values()]
        with ir.InsertionPoint(ending):
            ir.Operation.create("func.return", operands=results)
        ending.erase()
        inputs = [argument.type for argument in block.arguments]
        kind = ir.FunctionType.get(inputs, [value.type for value in results])
        main.operation.attributes["function_type"] = ir.TypeAttr.get(kind)
        if "res_attrs" in main.operation.attributes:
            del main.operation.attributes["res_attrs"]
    return tuple(values)


def _values_by_tag(block: Any) -> dict[str, Any]:
    """The value that stands for each node, however it is written: the last one that carries its tag."""
    values: dict[str, Any] = {}
    for op in block.operations:
        tag = mlir.tag_of(op)
        if tag is not None and len(op.operation.results) == 1:
            values.pop(tag, None)
            values[tag] = op.operation.results[0]
    return values
