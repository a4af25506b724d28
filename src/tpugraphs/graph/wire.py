"""Reading protobuf messages, thousands at a time: all messages of a kind take their next field in one numpy step.

A module of 40,000 instructions is 40,000 messages of a dozen fields. Field by field in Python that takes a second; here
each step reads one field of every message that has one left, so the work is a dozen steps over arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED_SIZE = {FIXED64: 8, FIXED32: 4}
_MOST_VARINT_BYTES = 10
_FEW = 24
"""Below this many messages a plain loop is faster than numpy steps."""

Ints = NDArray[np.int64]


class NotAMessage(ValueError):
    """The bytes are no protobuf message; says where and why."""


class Wire:
    """Bytes that hold messages."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = bytes(data)
        padded = self.data + bytes(2 * _MOST_VARINT_BYTES)  # so that reading a number never leaves the array
        self._bytes = np.frombuffer(padded, dtype=np.uint8)

    def root(self) -> Messages:
        """The whole as one message."""
        return Messages(self, np.zeros(1, np.int64), np.full(1, len(self.data), np.int64))

    def scan(self, starts: Ints, ends: Ints) -> Fields:
        """All fields of the messages at these places, by message, in order."""
        steps: list[tuple[Ints, ...]] = []
        cursor, active = starts.copy(), np.flatnonzero(starts < ends)
        while len(active) > _FEW:
            at, limit = cursor[active], ends[active]
            key, behind_key = self._varints(at)
            number, kind = key >> 3, key & 7
            fixed = (kind == FIXED64) * 8 + (kind == FIXED32) * 4
            value, behind = self._varints(np.where(fixed, len(self.data), behind_key))  # of fixed ones: a padding zero
            start = np.where(fixed, behind_key, behind)
            end = start + np.where(kind == BYTES, value, fixed)
            bad = (end > limit) | (end < start) | (number <= 0) | (kind > BYTES) & (kind != FIXED32)
            if bad.any():
                first = int(np.argmax(bad))
                raise _bad_field(int(at[first]), int(number[first]), int(kind[first]), int(limit[first]))
            steps.append((active, number, kind, start, end, value))
            cursor[active] = end
            active = active[end < limit]
        left: list[int] = []
        for index in active.tolist():
            self._scan_one(index, int(cursor[index]), int(ends[index]), left)
        return _in_order(len(starts), steps, np.array(left, np.uint64).view(np.int64).reshape(-1, 6))

    def _varints(self, at: Ints) -> tuple[Ints, Ints]:
        """The numbers at these places, and the places behind them."""
        byte = self._bytes[at]
        value, after = (byte & 127).astype(np.int64), at + 1
        more = np.flatnonzero(byte > 127)
        shift = 7
        while len(more):
            if shift >= 7 * _MOST_VARINT_BYTES:
                raise NotAMessage(f"a number of more than {_MOST_VARINT_BYTES} bytes at byte {int(at[more[0]])}")
            byte = self._bytes[after[more]]
            value[more] |= (byte & 127).astype(np.int64) << shift
            after[more] += 1
            more = more[byte > 127]
            shift += 7
        return value, after

    def _scan_one(self, index: int, at: int, limit: int, rows: list[int]) -> None:
        """The same for one message, with plain numbers."""
        data = self.data
        while at < limit:
            begun = at
            key = data[at]
            at += 1
            if key > 127:
                key, at = _varint(data, begun, limit)
            number, kind = key >> 3, key & 7
            value, start = 0, at
            if kind == BYTES:
                value, start = _varint(data, at, limit)
                at = start + value
            elif kind == VARINT:
                value, at = _varint(data, at, limit)
                start = at
            else:
                at += _FIXED_SIZE.get(kind, limit + 1)
            if at > limit or number == 0:
                raise _bad_field(begun, number, kind, limit)
            rows.extend((index, number, kind, start, at, value))


def _varint(data: bytes, at: int, limit: int) -> tuple[int, int]:
    value = shift = 0
    while at < limit and shift < 7 * _MOST_VARINT_BYTES:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise NotAMessage(f"a number that does not end before byte {limit}")


def _bad_field(at: int, number: int, kind: int, limit: int) -> NotAMessage:
    if number == 0 or kind not in (VARINT, FIXED64, BYTES, FIXED32):
        return NotAMessage(f"no field at byte {at} (number {number}, wire type {kind})")
    return NotAMessage(f"field {number} at byte {at} reaches beyond its message's end at byte {limit}")


def _in_order(count: int, steps: list[tuple[Ints, ...]], left: Ints) -> Fields:
    """Puts what the steps found, and what the loop found after them, behind each other message by message."""
    parts = [np.concatenate([*(step[part] for step in steps), left[:, part]]) for part in range(6)]
    message = parts[0]
    turn = np.repeat(np.arange(len(steps) + 1), [*(len(step[0]) for step in steps), len(left)])
    begins = np.flatnonzero(np.diff(left[:, 0], prepend=-1))  # the loop took one message after the other
    turn[len(turn) - len(left) :] += np.arange(len(left)) - np.repeat(begins, np.diff(np.append(begins, len(left))))
    counts = np.bincount(message, minlength=count)
    place = (np.cumsum(counts) - counts)[message] + turn
    ordered = [np.empty_like(part) for part in parts]
    for target, part in zip(ordered, parts, strict=True):
        target[place] = part
    return Fields(*ordered)


@dataclass(frozen=True, slots=True)
class Fields:
    """Fields of many messages, sorted by message, within one in the order of the file."""

    message: Ints
    number: Ints
    kind: Ints
    start: Ints
    """Where the content starts: of bytes, the bytes."""
    end: Ints
    value: Ints
    """The number, of varints; the length, of bytes."""


class Messages:
    """Messages of one kind, whose fields are read as columns: entry i belongs to message i."""

    def __init__(self, wire: Wire, starts: Ints, ends: Ints) -> None:
        self.wire = wire
        self.starts, self.ends = starts, ends
        self._fields = wire.scan(starts, ends)

    def __len__(self) -> int:
        return len(self.starts)

    def kind_of(self, number: int) -> int | None:
        """The wire type of a field, None where no message has it."""
        which = np.flatnonzero(self._fields.number == number)
        return int(self._fields.kind[which[0]]) if len(which) else None

    def integer(self, number: int, default: int = 0) -> Ints:
        """A scalar field; where it stands twice, the last counts."""
        which = self._of(number, VARINT)
        values = np.full(len(self), default, np.int64)
        values[self._fields.message[which]] = self._fields.value[which]
        return values

    def text(self, number: int) -> list[str]:
        """A string field."""
        which = self._of(number, BYTES)
        fields, data = self._fields, self.wire.data
        texts = [""] * len(self)
        places = zip(
            fields.message[which].tolist(), fields.start[which].tolist(), fields.end[which].tolist(), strict=True
        )
        known: dict[bytes, str] = {}
        for index, start, end in places:
            raw = data[start:end]
            text = known.get(raw)
            if text is None:
                text = known[raw] = raw.decode("utf-8", "replace")
            texts[index] = text
        return texts

    def spans(self, number: int) -> tuple[Ints, Ints, Ints]:
        """Of a field of bytes: which message, start and end, for each time it stands there."""
        which = self._of(number, BYTES)
        return self._fields.message[which], self._fields.start[which], self._fields.end[which]

    def children(self, number: int) -> tuple[Messages, Ints]:
        """The messages in a field, and which message each belongs to."""
        owner, starts, ends = self.spans(number)
        return Messages(self.wire, starts, ends), owner

    def integers(self, number: int) -> Ragged:
        """A repeated field of integers, packed or not."""
        fields = self._fields
        here = np.flatnonzero(fields.number == number)
        kinds = fields.kind[here]
        if not np.isin(kinds, (VARINT, BYTES)).all():
            raise NotAMessage(f"field {number} at byte {int(fields.start[here[0]])} holds no integers")
        packed = here[kinds == BYTES]
        values, counts = self._packed(fields.start[packed], fields.end[packed])
        if len(packed) == len(here):
            return Ragged.of(values, np.bincount(fields.message[packed], counts, minlength=len(self)).astype(np.int64))
        every = np.ones(len(here), np.int64)
        every[kinds == BYTES] = counts
        offsets = np.cumsum(every) - every
        merged = np.empty(int(every.sum()), np.int64)
        merged[offsets[kinds == VARINT]] = fields.value[here[kinds == VARINT]]
        merged[_ranges(offsets[kinds == BYTES], counts)] = values
        return Ragged.of(merged, np.bincount(fields.message[here], every, minlength=len(self)).astype(np.int64))

    def _packed(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
        lengths = ends - starts
        places = _ranges(starts, lengths)
        raw = self.wire._bytes[places]
        last = raw < 128
        closing = np.cumsum(lengths) - 1
        if len(raw) and not last[closing[lengths > 0]].all():
            raise NotAMessage("a list of integers that ends within a number")
        stops = np.flatnonzero(last)
        begins = np.concatenate(([0], stops[:-1] + 1)) if len(stops) else stops
        if len(stops) == len(raw):
            values = raw.astype(np.int64)
        else:
            sizes = stops - begins + 1
            if sizes.max() > _MOST_VARINT_BYTES:
                raise NotAMessage(f"a number of more than {_MOST_VARINT_BYTES} bytes in a list of integers")
            shift = 7 * (np.arange(len(raw)) - np.repeat(begins, sizes))
            bits = (raw & 127).astype(np.uint64) << shift.astype(np.uint64)
            values = np.bitwise_or.reduceat(bits, begins).view(np.int64)
        running = np.concatenate(([0], np.cumsum(last)))
        edges = np.concatenate(([0], np.cumsum(lengths)))
        return values, np.diff(running[edges])

    def _of(self, number: int, kind: int) -> Ints:
        which = np.flatnonzero(self._fields.number == number)
        if (self._fields.kind[which] != kind).any():
            wrong = which[self._fields.kind[which] != kind][0]
            raise NotAMessage(
                f"field {number} at byte {int(self._fields.start[wrong])}: expected wire type {kind}, "
                f"found {int(self._fields.kind[wrong])}"
            )
        return which


def _ranges(starts: Ints, lengths: Ints) -> Ints:
    """start, start + 1, … of each range, behind each other."""
    total = int(lengths.sum())
    if not total:
        return np.zeros(0, np.int64)
    offsets = np.cumsum(lengths) - lengths
    return np.arange(total) + np.repeat(starts - offsets, lengths)


@dataclass(frozen=True, slots=True)
class Ragged:
    """A list of integers per entry, all behind each other."""

    values: Ints
    counts: Ints
    offsets: Ints

    @staticmethod
    def of(values: Ints, counts: Ints) -> Ragged:
        return Ragged(values, counts, np.cumsum(counts) - counts)

    @property
    def owners(self) -> Ints:
        """Which entry each value belongs to."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def first(self, length: int, fill: int = 0) -> Ints:
        """The first values of each list as columns."""
        out = np.full((len(self.counts), length), fill, np.int64)
        for column in range(length):
            has = self.counts > column
            out[has, column] = self.values[self.offsets[has] + column]
        return out

    def sums(self) -> Ints:
        return self._reduced(np.add, 0)

    def products(self) -> Ints:
        """Of an empty list 1; beyond 64 bits they wrap around, as in the official extractor."""
        return self._reduced(np.multiply, 1)

    def _reduced(self, function: np.ufunc, empty: int) -> Ints:
        out = np.full(len(self.counts), empty, np.int64)
        has = self.counts > 0
        if has.any():
            out[has] = function.reduceat(self.values, self.offsets[has])
        return out

    def spread(self, rows: Ints, count: int) -> Ragged:
        """The same lists as those of `rows` among `count` entries; the others are empty."""
        if (np.diff(rows) <= 0).any():
            raise NotAMessage("a field that may stand once stands there twice")
        counts = np.zeros(count, np.int64)
        counts[rows] = self.counts
        return Ragged.of(self.values, counts)
