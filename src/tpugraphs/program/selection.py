"""Several programs: patterns over the zoo, a tier of it, files and functions; each captured when its turn comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from tpugraphs.errors import BadRequest
from tpugraphs.program import xla
from tpugraphs.program.capture import capture_zoo, resolve_source
from tpugraphs.program.isolated import IsolatedXla
from tpugraphs.program.types import Program
from tpugraphs.program.zoo import PROGRAMS

_TIER = "tier:"


@dataclass(frozen=True, slots=True)
class Selected:
    """A program to come."""

    name: str
    family: str
    """Programs of one family belong on one side of a split."""
    capture: Callable[[], tuple[Program, bytes]]
    """The program and its serialized HLO module, as lowered."""


def select_programs(patterns: Sequence[str], *, arguments: tuple[str, ...] = ()) -> list[Selected]:
    """Programs by patterns over names, variants and families of the zoo (`resnet*`, `*/train/*`), by `tier:small`,
    or by what a single source may be: `MODULE.py:FUNCTION`, a StableHLO or HLO file."""
    found: dict[str, Selected] = {}
    for pattern in patterns:
        for selected in _of_zoo(pattern) or [_of_source(pattern, arguments)]:
            if (twin := found.get(selected.name)) is not None and pattern not in PROGRAMS and not _of_zoo(pattern):
                raise BadRequest(f"{pattern}: another program is called {twin.name} too; rename one of them")
            found.setdefault(selected.name, selected)
    return list(found.values())


def _of_zoo(pattern: str) -> list[Selected]:
    wanted = pattern.lower()
    if pattern in PROGRAMS:
        programs = [PROGRAMS[pattern]]
    elif wanted.startswith(_TIER):
        programs = list(PROGRAMS.tier(wanted.removeprefix(_TIER)))
        if not programs:
            raise BadRequest(f"{pattern}: no such tier; expected tier:small, tier:medium or tier:large")
    else:
        programs = [
            one
            for one in PROGRAMS.values()
            if any(fnmatch(text, wanted) for text in (one.name, one.entry.variant, one.family.lower()))
        ]

    def capture(one: object) -> tuple[Program, bytes]:
        program = capture_zoo(PROGRAMS[str(one)])
        return program, xla.hlo_of_stablehlo(program.text)

    return [Selected(one.name, one.family, lambda name=one.name: capture(name)) for one in programs]


def _of_source(source: str, arguments: tuple[str, ...]) -> Selected:
    if "*" in source:
        raise BadRequest(f"{source}: no program of the zoo is like this; `tpugraphs programs` lists them")
    name = Path(source).stem if ":" not in source else source.rpartition(":")[2]

    def capture() -> tuple[Program, bytes]:
        program = resolve_source(source, arguments=arguments)
        if ".py:" in source:
            return program, xla.hlo_of_stablehlo(program.text)
        with IsolatedXla() as isolated:  # what a file says may make XLA abort
            return program, isolated.hlo_of_stablehlo(program.text, Path(source))

    if not Path(source.rpartition(":")[0] if ".py:" in source else source).exists():
        resolve_source(source, arguments=arguments)  # says what is wrong with it
    return Selected(name, name, capture)
