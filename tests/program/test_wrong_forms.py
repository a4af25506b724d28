"""A form that is wrong in one place is caught in every program that it is tried in, wherever the node stands."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.programs import outputs
from tests.program.test_capture import WRITTEN
from tpugraphs.measure import check
from tpugraphs.program import mlir, resolve_source
from tpugraphs.space import Config
from tpugraphs.space.form import FORMS, Form, forms_of
from tpugraphs.space.forms import ops

pytestmark = pytest.mark.xdist_group("zoo")
OPERAND = {"convolution": 1, "dot_general": 1, "reduce_window": 0, "select_and_scatter": 1, "gather": 0, "scatter": 2}
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
        index = OPERAND[op.name.removeprefix("stablehlo.")]
        op.operands[index] = damaged(op.operands[index])
        return form.rewrite(op)

    return Form(form.name, f"{form.label}, wrong", "", form.applies, rewrite)


@pytest.mark.parametrize("name", WRITTEN)
def test_wrong_forms_are_caught(name: str) -> None:
    program = resolve_source(name)
    expected = outputs(program, Config())
    nodes_of: dict[str, list[str]] = {}
    for tag, forms in forms_of(program.text).items():
        for form in forms:
            nodes_of.setdefault(form, []).append(tag)
    assert len(nodes_of) >= 3
    for form, tags in nodes_of.items():
        tag = tags[len(tags) // 2]
        config = Config.of({f"{mlir.short(tag)}.form": form})
        excess, _ = check.deviation(outputs(program, config, {form: wrong(FORMS[form])}), expected)
        assert excess > 1, f"{form} of {tag}"
