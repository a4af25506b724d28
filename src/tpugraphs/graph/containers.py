"""Which of the protos that hold HLO a file is, and the modules in it.

`HloModuleProto` and XLA's `HloProto` hold one module; the release's `ModuleTuningData` one with its configs and run
times, `TuningData` many of those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tpugraphs.errors import BadFile
from tpugraphs.graph.wire import BYTES, VARINT, Ints, Messages, NotAMessage, Wire

_MODULE, _FINGERPRINT, _RUNS, _CONFIG_NODES = 1, 2, 3, 4
_COMPUTATIONS, _INSTRUCTIONS, _OPCODE = 3, 2, 2


@dataclass(frozen=True, slots=True)
class Contained:
    """A module in a file, and what stands beside it there."""

    module: memoryview
    """A serialized `HloModuleProto`."""
    fingerprint: int | None = None
    runs: Messages | None = None
    """`ConfigProfile` messages, in the release's files."""
    config_ids: Ints | None = None


def modules_in(data: bytes, label: str | Path) -> list[Contained]:
    """All modules of a file, with what it says about them."""
    try:
        return list(_modules(data))
    except NotAMessage as error:
        expected = "a serialized HloModuleProto, HloProto, ModuleTuningData or TuningData"
        raise BadFile(label, "proto", expected=expected, found=str(error)) from error


def _modules(data: bytes) -> Iterator[Contained]:
    wire = Wire(data)
    root = wire.root()
    if _is_module(root):
        yield Contained(memoryview(data))
        return
    inner, _ = root.children(_MODULE)
    if len(inner) == 1 and _is_module(inner):
        yield _tuning(wire, root) if _is_tuning(root) else Contained(_view(data, inner, 0))
        return
    for index in range(len(inner)):
        one = Messages(wire, inner.starts[index : index + 1], inner.ends[index : index + 1])
        module, _ = one.children(_MODULE)
        if len(module) != 1 or not _is_module(module):
            raise NotAMessage(f"entry {index} holds no module")
        yield _tuning(wire, one)
    if not len(inner):
        raise NotAMessage("no module in it")


def _tuning(wire: Wire, message: Messages) -> Contained:
    module, _ = message.children(_MODULE)
    runs, _ = message.children(_RUNS)
    ids = message.integers(_CONFIG_NODES).values
    return Contained(_view(wire.data, module, 0), int(message.integer(_FINGERPRINT)[0]), runs, ids)


def _view(data: bytes, messages: Messages, index: int) -> memoryview:
    return memoryview(data)[int(messages.starts[index]) : int(messages.ends[index])]


def _is_tuning(root: Messages) -> bool:
    return root.kind_of(_FINGERPRINT) == VARINT or root.kind_of(_CONFIG_NODES) is not None


def _is_module(root: Messages) -> bool:
    """Whether it has computations that have instructions that have opcodes."""
    if root.kind_of(_COMPUTATIONS) != BYTES:
        return False
    try:
        computations, _ = root.children(_COMPUTATIONS)
        instructions, _ = computations.children(_INSTRUCTIONS)
        opcodes = instructions.text(_OPCODE)
    except NotAMessage:
        return False
    return bool(opcodes) and all(name.replace("-", "").isalnum() for name in opcodes[:100])
