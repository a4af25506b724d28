"""The spaces of one program by name, their product, and how a config of it is applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpugraphs.errors import BadRequest
from tpugraphs.program import Program, mlir
from tpugraphs.program.graphs import node_of_place
from tpugraphs.space.encoding import Encoding
from tpugraphs.space.flags import OPTIONS, compiler_options, flag_space
from tpugraphs.space.form import FORMS, Form, check, form_space, rewrite
from tpugraphs.space.knobs import FLAG, FORM, JOINT, LAYOUT, SPACES, TILE, Config, Space, product
from tpugraphs.space.layout import OPERATIONS, constrain, lay_out_inputs, layout_space
from tpugraphs.space.notation import Layout, parse_layout

KINDS = {LAYOUT: LAYOUT, FORM: FORM, "flags": FLAG}
"""By the name of a space, which knobs it has."""


def spaces_named(text: str) -> tuple[str, ...]:
    """The spaces that `layout`, `form,flags` or `joint` stands for, in one order."""
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    for name in wanted:
        if name not in (*SPACES, JOINT):
            raise BadRequest(f"{name}: no such space; expected {', '.join((*SPACES, JOINT))}, or several with commas")
    if not wanted:
        raise BadRequest(f"no space named; expected {', '.join((*SPACES, JOINT))}, or several with commas")
    return SPACES if JOINT in wanted else tuple(name for name in SPACES if name in wanted)


def space_of(
    program: Program,
    spaces: Sequence[str] = (FORM, "flags"),
    *,
    backend: str = "cpu",
    options: Mapping[str, Sequence[str]] | None = None,
    forms: Mapping[str, Form] = FORMS,
    laid_out: Sequence[str] = OPERATIONS,
) -> Space:
    """The product of some spaces of a program; `joint` stands for all.

    `options` keeps to some and their values, `laid_out` names the operations whose layouts vary.
    """
    wanted = spaces_named(",".join(spaces))
    made = {
        LAYOUT: lambda: layout_space(program, laid_out),
        FORM: lambda: form_space(program, forms),
        "flags": lambda: flag_space(backend, options),
    }
    return product(made[name]() for name in SPACES if name in wanted)


@dataclass(frozen=True, slots=True)
class Applied:
    """A program as a config wants it compiled."""

    module: Any
    options: Mapping[str, str]
    """Of the compiler."""
    input_layouts: Mapping[int, Layout]
    """Of the arguments that do not come row-major."""
    tiles: Mapping[str, str]
    """Of the kernels that are cut in another way, by their hashes."""


def apply(
    program: Program,
    config: Config,
    *,
    backend: str = "cpu",
    forms: Mapping[str, Form] = FORMS,
    keep: bool = False,
) -> Applied:
    """The rewritten module, the options to compile it with, and how its arguments are laid out.

    With `keep`, rewritten nodes stay as they were beside their forms, for probes to compare.
    """
    module = mlir.parse(program.text, program.name)
    layouts: dict[str, dict[str, Layout]] = {}
    inputs: dict[int, Layout] = {}
    written: dict[str, str] = {}
    flags: dict[str, str] = {}
    tiles: dict[str, str] = {}
    for name, choice in config.changes:
        owner, _, aspect = name.rpartition(".")
        if not owner:
            flags[name] = choice
        elif aspect == FORM:
            written[mlir.long(owner)] = choice
        elif aspect == TILE:
            tiles[owner] = choice
        elif owner.startswith("input"):
            inputs[_input(owner, program)] = parse_layout(choice)
        else:
            layouts.setdefault(mlir.long(owner), {})[aspect] = parse_layout(choice)
    check(module, written, forms)
    constrain(module, layouts)
    rewrite(module, written, forms, keep=keep)
    lay_out_inputs(module, inputs)
    return Applied(module, compiler_options(flags, backend), inputs, tiles)


def may_change_results(config: Config, backend: str) -> bool:
    """Whether an option is chosen that may do more to results than add in another order."""
    chosen = config.as_dict()
    return any(option.may_change_results for option in OPTIONS[backend] if option.name in chosen)


def encoding_of(program: Program, space: Space, hlo: bytes, spaces: Sequence[str], *, backend: str = "cpu") -> Encoding:
    """How configs of the space become arrays over the graph of the program's lowered module."""
    kinds = [KINDS[name] for name in spaces_named(",".join(spaces))]
    return Encoding.of(space, node_of_place(program, hlo), kinds=kinds, forms=FORMS, backend=backend)


def _input(owner: str, program: Program) -> int:
    number = owner.removeprefix("input")
    if not number.isdecimal() or int(number) >= len(program.inputs):
        raise BadRequest(f"{owner}: no such input in this program")
    return int(number)
