"""A config from a file, and the program written so."""

from __future__ import annotations

from pathlib import Path

from tpugraphs import files
from tpugraphs.errors import BadFile
from tpugraphs.program import Program, mlir
from tpugraphs.space.knobs import Config
from tpugraphs.space.product import apply, space_of

_EXPECTED = 'a config such as {"node3.form": "dots"}, or {"program": "<hash>", "config": {...}}'


def read_config(path: Path, program: Program) -> Config:
    """A config of this program, checked against its layouts and forms."""
    value = files.read_json(path, "config")
    if not isinstance(value, dict):
        raise BadFile(path, "config", expected=_EXPECTED, found=f"a {type(value).__name__}")
    if "config" in value:
        if value.get("program") != program.digest:
            found = str(value.get("program"))
            raise BadFile(path, "program", expected=f"{program.digest}, which is {program.name}", found=found)
        value = value["config"]
    if not isinstance(value, dict) or not all(isinstance(choice, str) for choice in value.values()):
        raise BadFile(path, "config", expected=_EXPECTED, found="something else")
    return space_of(program, ("layout", "form")).config(value)


def rewritten_text(program: Program, path: Path) -> str:
    """The program's StableHLO in the forms and layouts of the file's config."""
    return mlir.to_text(apply(program, read_config(path, program)).module)
