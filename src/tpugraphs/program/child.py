"""What a child process does with text and protos from files: XLA may abort on them, and then only the child dies."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tpugraphs.child import serve
from tpugraphs.program import xla
from tpugraphs.program.capture import program_of_module
from tpugraphs.program.sources import BYTECODE
from tpugraphs.program.types import Program


def hlo_text(source: str, target: str) -> dict[str, Any]:
    """HLO text to a proto."""
    Path(target).write_bytes(xla.hlo_of_text(Path(source).read_text(encoding="utf-8")))
    return {}


def stablehlo(source: str, target: str, name: str) -> dict[str, Any]:
    """StableHLO, text or portable bytecode, to text with tagged nodes."""
    data = Path(source).read_bytes()
    return _written(program_of_module(data if data.startswith(BYTECODE) else data.decode("utf-8"), name), target)


def _written(program: Program, target: str) -> dict[str, Any]:
    Path(target).write_text(program.text, encoding="utf-8")
    return {"nodes": [asdict(node) for node in program.nodes], "inputs": [asdict(spec) for spec in program.inputs]}


def raised(source: str, target: str, name: str) -> dict[str, Any]:
    """An HLO proto to StableHLO text with tagged nodes."""
    return _written(program_of_module(xla.stablehlo_of_hlo(Path(source).read_bytes()), name), target)


def lower(source: str, target: str) -> dict[str, Any]:
    """Tagged StableHLO text to a proto."""
    Path(target).write_bytes(xla.hlo_of_stablehlo(Path(source).read_text(encoding="utf-8")))
    return {}


def simplify(source: str, target: str) -> dict[str, Any]:
    """A proto to the one that enters layout assignment."""
    Path(target).write_bytes(xla.simplified(Path(source).read_bytes()))
    return {}


def costs(source: str) -> dict[str, Any]:
    """XLA's cost analysis of a proto."""
    return asdict(xla.costs_of(Path(source).read_bytes()))


if __name__ == "__main__":
    serve({function.__name__: function for function in (hlo_text, stablehlo, raised, lower, simplify, costs)})
