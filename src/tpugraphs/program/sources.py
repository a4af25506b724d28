"""Telling apart what a user may name: files by what is in them, dump folders, modules, programs of the zoo."""

from __future__ import annotations

import re
from pathlib import Path

from tpugraphs.errors import BadFile, BadRequest

BYTECODE = b"ML\xefR"
_HLO_TEXT = re.compile(rb"\s*(?:(?://|#)[^\n]*\n\s*)*HloModule\s")
_STABLEHLO_TEXT = re.compile(rb"\s*(?:(?://|#)[^\n]*\n\s*)*(?:module\b|func\.func\b|\"builtin\.module\")")
_DUMPED = re.compile(r"(?P<module>module_\d+\..*?)\.(?:\w+_)?before_optimizations\.(?P<kind>hlo\.pb|txt)$")
KINDS = "StableHLO text or bytecode, HLO text, a serialized HLO proto, or a .pb of the TpuGraphs release"


def read_source(path: Path) -> bytes:
    """The content of a file that was named as a source."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise BadFile(path, "source", expected="a file", found="nothing") from error
    except MemoryError as error:
        found = f"{path.stat().st_size} bytes"
        raise BadFile(path, "source", expected="a file that fits in memory", found=found) from error
    except OSError as error:
        raise BadFile(path, "source", expected="a readable file", found=error.strerror or str(error)) from error
    if not data.strip():
        raise BadFile(path, "source", expected=KINDS, found="an empty file")
    return data


def kind_of(data: bytes, path: Path) -> str:
    """`stablehlo`, `hlo-text` or `proto`, by the content."""
    if data.startswith(BYTECODE) or _STABLEHLO_TEXT.match(data):
        return "stablehlo"
    if _HLO_TEXT.match(data):
        return "hlo-text"
    head = data[:4096]
    if b"\0" not in head and all(byte >= 32 or byte in b"\t\n\r\f" for byte in head):
        first = head.splitlines()[0][:60].decode("utf-8", "replace")
        raise BadFile(path, "source", expected=KINDS, found=f"text that starts with {first!r}")
    return "proto"


def dumped_modules(folder: Path) -> list[Path]:
    """The modules in XLA's dump folder as they were before optimisation, protos rather than text, largest first."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        match = _DUMPED.match(path.name)
        if match is not None and (match["module"] not in found or match["kind"] == "hlo.pb"):
            found[match["module"]] = path
    if not found:
        raise BadRequest(
            f"{folder}: no module in it; expected XLA's dump folder with files like module_0001.NAME."
            f"before_optimizations.txt, made with XLA_FLAGS=--xla_dump_to={folder}"
        )
    return sorted(found.values(), key=lambda path: (-path.stat().st_size, path.name))
