"""A form that is wrong in one place is caught in every small program of the zoo where it applies."""

from __future__ import annotations

from typing import Any

import pytest
from jaxlib.mlir import ir

from tests.kit.programs import outputs, quickly
from tests.program.test_capture import WRITTEN
from tpugraphs.measure import check
from tpugraphs.program import Program, ZooProgram, mlir, programs, resolve_source
from tpugraphs.program.capture import capture_zoo
from tpugraphs.program.probes import return_also
from tpugraphs.space import Config
from tpugraphs.space.form import FORMS, Form, forms_of, tagged
from tpugraphs.space.forms import ops
from tpugraphs.types import AS_IT_WAS

OPERAND = {
    "convolution": 1, "dot_general": 1, "reduce_window": 0, "select_and_scatter": 1, "gather": 0, "scatter": 2,
    "power": 0, "sort": 0, "top_k": 0,
}  # fmt: skip
"""Which operand a wrong form reads wrongly: weights, table, what is pooled."""


def damaged(value: Any) -> Any:
    """Ones in place of the first half of its longest dimension: what is wrong in one place may meet nothing but zeros
    there, as a masked token does; and of tables not the rows, some of which nobody takes."""
    shape = ops.shape_of(value)
    dim = max(range(len(shape)), key=lambda dim: (shape[dim] if dim or len(shape) == 1 else 0, dim))
    here = [(shape[dim] + 1) // 2 if at == dim else 0 for at in range(len(shape))]
    return ops.padded(
        ops.taken(value, here, shape), here, [0] * len(shape), None, ops.filled(1, (), ops.element_of(value))
    )


def wrong(form: Form) -> Form:
    def rewrite(op: Any) -> Any:
        index = OPERAND[mlir.operation_of(op)]
        copy = op.clone()
        copy.operands[index] = damaged(op.operands[index])
        written = form.rewrite(copy)
        copy.erase()
        return written

    return Form(form.name, f"{form.label}, wrong", "", form.applies, rewrite)


def nodes_by_form(program: Program) -> dict[str, list[str]]:
    nodes_of: dict[str, list[str]] = {}
    for tag, forms in forms_of(program.text).items():
        for form in forms:
            nodes_of.setdefault(form, []).append(tag)
    return nodes_of


def caught(program: Program, tag: str, form: str) -> bool:
    """As tuning does it: the whole program written so, and compared with the default."""
    config = Config.of({f"{mlir.short(tag)}.form": form})
    return check.deviation(outputs(program, config, {form: wrong(FORMS[form])}), outputs(program, Config()))[0] > 1


@pytest.mark.parametrize("name", WRITTEN)
def test_wrong_forms_are_caught(name: str) -> None:
    program = resolve_source(name)
    nodes_of = nodes_by_form(program)
    assert len(nodes_of) >= 3
    for form, tags in nodes_of.items():
        tag = tags[len(tags) // 2]
        assert caught(program, tag, form), f"{form} of {tag}"


@pytest.mark.parametrize("program", programs.tier("small"), ids=lambda program: program.name)
def test_in_every_small_program_wrong_forms_are_caught_and_right_ones_pass(program: ZooProgram) -> None:
    """All forms in one module, right and wrong, beside a node instead of in its place: what the gate compares. Inside
    loops, where it compares the program's results, one by one."""
    captured = capture_zoo(program)
    module, names, inside_loops = with_forms_beside(captured)
    found = dict(zip(names, quickly(captured, module)[-len(names) :], strict=True)) if names else {}
    for tag, form, kind in names:
        if kind != AS_IT_WAS:
            pair = {tag: found[tag, form, kind], f"{tag}{AS_IT_WAS}": found[tag, form, AS_IT_WAS]}
            excess, where = check.deviation(pair, {})
            assert (excess > 1) == (kind == "wrong"), f"{kind} {form} of {where}"
    for form, tag in inside_loops.items():
        assert caught(captured, tag, form), f"{form} of {tag}"


def with_forms_beside(program: Program) -> tuple[bytes, list[tuple[str, str, str]], dict[str, str]]:
    """The program that returns for each form a node as it was, in the right and in a wrong form; the names of these;
    and for the forms that hold inside loops alone, a node."""
    module = mlir.parse(program.text, program.name)
    entry = mlir.entry_block(module)
    values: dict[tuple[str, str, str], Any] = {}
    inside_loops = {}
    with module.context:
        found = tagged(module)
        for form, tags in nodes_by_form(program).items():
            outside = [tag for tag in tags if found[tag].block == entry]
            if not outside:
                inside_loops[form] = tags[len(tags) // 2]
                continue
            tag = outside[len(outside) // 2]
            values[tag, form, AS_IT_WAS] = found[tag].results[0]
            for kind, one in (("right", FORMS[form]), ("wrong", wrong(FORMS[form]))):
                with ir.InsertionPoint(found[tag]), ir.Location.unknown():
                    copy = found[tag].clone()
                    values[tag, form, kind] = one.rewrite(copy)
                    copy.erase()
    return_also(module, list(values.values()))
    return mlir.to_bytecode(module), list(values), inside_loops
