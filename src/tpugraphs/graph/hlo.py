"""A serialized HLO module as columns: one entry per instruction of every computation, in the order of the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tpugraphs.errors import BadFile
from tpugraphs.graph.wire import Ints, Messages, NotAMessage, Ragged, Wire
from tpugraphs.types import Array


class HloFields:
    """Field numbers of XLA's protos; those that matter have kept theirs since TensorFlow 2.10."""

    MODULE_NAME, MODULE_COMPUTATIONS, MODULE_ENTRY_ID = 1, 3, 6
    COMPUTATION_NAME, COMPUTATION_INSTRUCTIONS, COMPUTATION_ID, COMPUTATION_ROOT = 1, 2, 5, 6
    NAME, OPCODE, SHAPE, METADATA, LITERAL = 1, 2, 3, 7, 8
    PARAMETER_NUMBER, TUPLE_INDEX, DIMENSIONS, WINDOW, CONVOLUTION = 9, 13, 14, 15, 16
    SLICES, DYNAMIC_SLICE_SIZES, PADDING, CUSTOM_CALL_TARGET = 17, 20, 21, 28
    DOT, GATHER, GATHER_SLICE_SIZES, SCATTER = 30, 33, 34, 48
    ID, OPERANDS, CALLED, FEATURE_GROUPS, BATCH_GROUPS, IS_STABLE, COMPARISON = 35, 36, 38, 50, 58, 60, 63
    METADATA_OP_NAME = 2
    SHAPE_TYPE, SHAPE_DIMENSIONS, SHAPE_TUPLE, SHAPE_LAYOUT, LAYOUT_MINOR_TO_MAJOR = 2, 3, 4, 5, 1
    WINDOW_DIMENSIONS, SLICE_START, SLICE_LIMIT, SLICE_STRIDE = 1, 1, 2, 3
    PADDING_DIMENSIONS, PADDING_LOW, PADDING_HIGH, PADDING_INTERIOR = 1, 1, 2, 3


@dataclass(frozen=True, slots=True)
class HloColumns:
    """The instructions of a module; ids are replaced by positions."""

    module_name: str
    messages: Messages
    """The instructions themselves, for fields that only some readers need."""
    opcodes: list[str]
    computation: Ints
    """Which computation an instruction belongs to."""
    computation_names: list[str]
    computation_sizes: Ints
    computation_roots: Ints
    """The position of each computation's root; -1 where the file names none."""
    entry: int
    """The entry computation."""
    operands: Ragged
    """Positions."""
    called: Ragged
    """Computations."""
    element_type: Ints
    dimensions: Ragged
    """Of the output's shape; empty for scalars and tuples."""
    tuple_elements: Ints
    layout: Ragged
    """Minor to major."""

    def __len__(self) -> int:
        return len(self.opcodes)

    @property
    def names(self) -> list[str]:
        return self.messages.text(HloFields.NAME)

    @property
    def is_root(self) -> Array:
        roots = np.zeros(len(self), bool)
        roots[self.computation_roots[self.computation_roots >= 0]] = True
        return roots

    def sparse(self, number: int) -> tuple[Messages, Ints]:
        """A sub-message that only some instructions have, and whose it is."""
        return self.messages.children(number)


def read_hlo(data: bytes | memoryview, label: str | Path) -> HloColumns:
    """The columns of a serialized `HloModuleProto`."""
    with proto_trouble(data, label):
        return _read(Wire(data))


@contextmanager
def proto_trouble(data: bytes | memoryview, label: str | Path) -> Iterator[None]:
    """Turns what is wrong with a module into one sentence."""
    try:
        yield
    except NotAMessage as error:
        raise BadFile(label, "HLO proto", expected="a whole serialized module", found=str(error)) from error
    except MemoryError as error:
        raise BadFile(
            label, "HLO proto", expected="a module that fits in memory", found=f"{len(data)} bytes"
        ) from error


def _read(wire: Wire) -> HloColumns:
    f = HloFields
    module = wire.root()
    computations, _ = module.children(f.MODULE_COMPUTATIONS)
    if not len(computations):
        raise NotAMessage("no computation in it")
    instructions, computation = computations.children(f.COMPUTATION_INSTRUCTIONS)
    if not len(instructions):
        raise NotAMessage("no instruction in it")
    opcodes = instructions.text(f.OPCODE)
    if "" in opcodes:
        raise NotAMessage(f"instruction {opcodes.index('')} has no opcode")
    ids, computation_ids = instructions.integer(f.ID), computations.integer(f.COMPUTATION_ID)
    find, find_computation = _Finder(ids, "instruction"), _Finder(computation_ids, "computation")
    operands, called = instructions.integers(f.OPERANDS), instructions.integers(f.CALLED)
    roots = find(computations.integer(f.COMPUTATION_ROOT), missing=True)
    owned = (roots >= 0) & (computation[roots] == np.arange(len(computations)))
    shapes, owner = instructions.children(f.SHAPE)
    tuple_elements = np.zeros(len(instructions), np.int64)
    whose, _, _ = shapes.spans(f.SHAPE_TUPLE)
    np.add.at(tuple_elements, owner[whose], 1)
    element_type = np.zeros(len(instructions), np.int64)
    element_type[owner] = shapes.integer(f.SHAPE_TYPE)
    layouts, whose = shapes.children(f.SHAPE_LAYOUT)
    entry = np.flatnonzero(computation_ids == module.integer(f.MODULE_ENTRY_ID)[0])
    return HloColumns(
        module_name=module.text(f.MODULE_NAME)[0],
        messages=instructions,
        opcodes=opcodes,
        computation=computation,
        computation_names=computations.text(f.COMPUTATION_NAME),
        computation_sizes=np.bincount(computation, minlength=len(computations)),
        computation_roots=np.where(owned, roots, -1),
        entry=int(entry[0]) if len(entry) else len(computations) - 1,
        operands=Ragged.of(find(operands.values), operands.counts),
        called=Ragged.of(find_computation(called.values), called.counts),
        element_type=element_type,
        dimensions=shapes.integers(f.SHAPE_DIMENSIONS).spread(owner, len(instructions)),
        tuple_elements=tuple_elements,
        layout=layouts.integers(f.LAYOUT_MINOR_TO_MAJOR).spread(owner[whose], len(instructions)),
    )


class _Finder:
    """From ids to positions."""

    def __init__(self, ids: Ints, what: str) -> None:
        self._order = np.argsort(ids, kind="stable")
        self._sorted, self._what = ids[self._order], what
        if (self._sorted[1:] == self._sorted[:-1]).any():
            twice = self._sorted[1:][self._sorted[1:] == self._sorted[:-1]][0]
            raise NotAMessage(f"{what} id {int(twice)} stands there twice")

    def __call__(self, ids: Ints, *, missing: bool = False) -> Ints:
        at = np.minimum(np.searchsorted(self._sorted, ids), len(self._sorted) - 1)
        absent = self._sorted[at] != ids
        if absent.any() and not missing:
            raise NotAMessage(f"{self._what} id {int(ids[np.argmax(absent)])} is named but not there")
        return np.where(absent, -1, self._order[at])
