"""Writing protobuf messages, the plain way: what the reader's columns are compared with."""

from __future__ import annotations

from collections.abc import Iterable

Value = int | bytes | str | list[int]


def varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(fields: Iterable[tuple[int, Value]], *, packed: bool = True) -> bytes:
    """Fields by number: an int is a varint, bytes and text as they are, a list of ints a repeated field."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        elif isinstance(value, list) and not packed:
            out += b"".join(varint(number << 3) + varint(one) for one in value)
        else:
            raw = b"".join(map(varint, value)) if isinstance(value, list) else value
            raw = raw.encode() if isinstance(raw, str) else raw
            out += varint(number << 3 | 2) + varint(len(raw)) + raw
    return out


def instruction(name: str, opcode: str, identity: int, operands: list[int] | None = None, *more: bytes) -> bytes:
    """An `HloInstructionProto` of an f32[2,3] value."""
    shape = message([(2, 11), (3, [2, 3]), (5, message([(1, [1, 0])]))])
    fields = [(1, name), (2, opcode), (3, shape), (35, identity)]
    return message([*fields, *([(36, operands)] if operands else [])]) + b"".join(more)


def module(*computations: tuple[str, list[bytes], int], entry: int | None = None) -> bytes:
    """An `HloModuleProto` of computations given as name, instructions, id of the root."""
    parts = [
        message([(1, name), *((2, one) for one in instructions), (5, index + 1), (6, root)])
        for index, (name, instructions, root) in enumerate(computations)
    ]
    return message([(1, "made_up"), *((3, part) for part in parts), (6, entry or len(parts))])
