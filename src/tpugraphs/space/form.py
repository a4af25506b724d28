"""The form space: for each node the ways of writing it that hold there; and writing a program so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tpugraphs.errors import BadRequest
from tpugraphs.program import Program, mlir
from tpugraphs.space.forms import FORMS, Form
from tpugraphs.space.knobs import FORM, Knob, Space

__all__ = ["DEFAULT", "FORMS", "Form", "check", "form_space", "forms_of", "rewrite", "tagged"]

DEFAULT = "default"


def forms_of(text: str, forms: Mapping[str, Form] = FORMS) -> dict[str, tuple[str, ...]]:
    """The forms that are valid at each tagged node, besides its own."""
    module = mlir.parse(text, "program")
    with module.context:
        return {
            tag: tuple(name for name, form in forms.items() if form.applies(op)) for tag, op in tagged(module).items()
        }


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


def check(module: Any, chosen: Mapping[str, str], forms: Mapping[str, Form] = FORMS) -> None:
    """Refuses nodes that are not there and forms that do not hold; of a module that is as it was captured."""
    with module.context:
        found = tagged(module)
        for tag, name in chosen.items():
            if tag not in found:
                raise BadRequest(f"{tag}: no such node in this program")
            if name not in forms:
                raise BadRequest(f"{tag}: no such form as {name}; expected one of {', '.join(forms)}")
            if not forms[name].applies(found[tag]):
                raise BadRequest(f"{tag}: cannot be written as {forms[name].label}")


def rewrite(module: Any, chosen: Mapping[str, str], forms: Mapping[str, Form] = FORMS, *, keep: bool = False) -> None:
    """Writes the chosen nodes in their chosen forms, in place; what is built carries the node's tag.

    With `keep`, a node with one result stays as it was beside its other form, used by nobody, for probes to compare.
    """
    with module.context:
        for tag, op in tagged(module).items():
            if tag in chosen:
                with ir.InsertionPoint(op), op.location:
                    written = forms[chosen[tag]].rewrite(op)
                for result, value in zip(op.results, written if isinstance(written, list) else [written], strict=True):
                    result.replace_all_uses_with(value)
                if keep and len(op.results) == 1:
                    op.location = mlir.kept(tag)
                else:
                    op.erase()


def tagged(module: Any) -> dict[str, Any]:
    """Operations by their tags, in order; a layout constraint at a node's border carries its tag too."""

    def found() -> Iterator[tuple[str, Any]]:
        for op in mlir.operations(mlir.entry_block(module)):
            tag = mlir.tag_of(op)
            if tag is not None and op.operation.name != stablehlo.CustomCallOp.OPERATION_NAME:
                yield tag, op.operation

    return dict(found())
