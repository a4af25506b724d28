"""What each form of a node would cost, by XLA's cost analysis of the node alone: nothing is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxlib.mlir import ir

from tpugraphs.graph import Costs
from tpugraphs.program import Program, mlir, xla
from tpugraphs.space.form import rewrite, tagged
from tpugraphs.space.forms import FORMS, Form


@dataclass(frozen=True, slots=True)
class NodeForms:
    """A node and its forms."""

    tag: str
    description: str
    own: Costs
    forms: Mapping[str, Costs]


def estimated(program: Program, forms: Mapping[str, Form] = FORMS) -> list[NodeForms]:
    """The nodes that have other forms, in the program's order."""
    module = mlir.parse(program.text, program.name)
    known: dict[str, Costs] = {}
    found = []
    with module.context:
        ops = tagged(module)
        for node in program.nodes:
            op = ops.get(node.tag)
            valid = [] if op is None else [name for name, form in forms.items() if form.applies(op)]
            if valid:
                costs = {name: _cost(op, name, forms, known) for name in ("", *valid)}
                found.append(NodeForms(node.tag, node.description, costs.pop(""), costs))
    return found


def _cost(op: Any, name: str, forms: Mapping[str, Form], known: dict[str, Costs]) -> Costs:
    """Of equal nodes it is looked at once."""
    text = _alone(op)
    if name:
        module = ir.Module.parse(text)
        [tag] = tagged(module)
        rewrite(module, {tag: name}, forms)
        text = mlir.to_text(module)
    if text not in known:
        known[text] = xla.costs_of(xla.hlo_of_stablehlo(text))
    return known[text]


def _alone(op: Any) -> str:
    """A module of this operation and nothing else, its operands for arguments."""
    module = ir.Module.create(ir.Location.unknown())
    kinds = [operand.type for operand in op.operands]
    with ir.InsertionPoint(module.body), ir.Location.unknown():
        function = ir.FunctionType.get(kinds, [result.type for result in op.results])
        attributes = {"sym_name": ir.StringAttr.get("main"), "function_type": ir.TypeAttr.get(function)}
        main = ir.Operation.create("func.func", attributes=attributes, regions=1)
        block = main.regions[0].blocks.append(*kinds)
        with ir.InsertionPoint(block):
            copy = op.clone()
            copy.location = ir.Location.name(mlir.long("node0"))
            for index, argument in enumerate(block.arguments):
                copy.operands[index] = argument
            ir.Operation.create("func.return", operands=list(copy.results))
    return mlir.to_text(module)
