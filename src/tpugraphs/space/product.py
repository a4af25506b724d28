"""The product of form and option spaces of one program, and how a config of it is applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpugraphs.program import Program, mlir
from tpugraphs.space.flags import OPTIONS, xla_options
from tpugraphs.space.form import DEFAULT, FORMS, Form, forms_of, rewrite
from tpugraphs.space.knobs import Config, Knob, Space


def space_of(program: Program, forms: Mapping[str, Form] = FORMS) -> Space:
    """All knobs of a program: a form knob per node that has one, and the options."""
    valid = forms_of(program.text, forms)
    nodes = [
        Knob(node.tag, "form", (DEFAULT, *valid[node.tag]), node.description)
        for node in program.nodes
        if valid.get(node.tag)
    ]
    options = [Knob(name, "flag", tuple(choices), name.replace("_", " ")) for name, choices in OPTIONS.items()]
    return Space((*nodes, *options))


def apply(program: Program, config: Config, forms: Mapping[str, Form] = FORMS) -> tuple[Any, dict[str, str]]:
    """The rewritten module, and the XLA options to compile it with."""
    module = mlir.parse(program.text, program.name)
    chosen = config.as_dict()
    options = {name: chosen.pop(name) for name in OPTIONS if name in chosen}
    rewrite(module, chosen, forms)
    return module, xla_options(options)
