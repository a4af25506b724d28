"""From a module's columns to a Graph: the 140 official features, edges and splits, equal to the release to the bit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from tpugraphs.graph.columns import ELEMENT_TYPE_CODES, NODE_FEATURES
from tpugraphs.graph.graph import Graph
from tpugraphs.graph.hlo import HloColumns, HloFields, proto_trouble, read_hlo
from tpugraphs.graph.opcodes import OPCODES
from tpugraphs.graph.wire import Ints, Messages, Ragged
from tpugraphs.types import Array

_COLUMN = {name: index for index, name in enumerate(NODE_FEATURES)}
_ID = {name: index for index, name in enumerate(OPCODES)}
_SPLITTERS = ("cluster", "while", "cond")
"""A computation whose name holds one of these ends a part."""

Features = Array


def graph_of_hlo(data: bytes | memoryview, label: str | Path) -> Graph:
    """The graph of a serialized `HloModuleProto`."""
    with proto_trouble(data, label):
        return graph_of(read_hlo(data, label))


def graph_of(hlo: HloColumns, config_ids: Array | None = None) -> Graph:
    """The graph of a module; every instruction of every computation is a node."""
    return Graph(
        node_opcode=opcode_ids(hlo),
        node_feat=node_features(hlo),
        edge_index=edges(hlo),
        node_splits=splits(hlo),
        node_config_ids=config_ids,
    )


def opcode_ids(hlo: HloColumns) -> Array:
    """uint8 ids; opcodes that the release's table does not know are 0."""
    return np.fromiter((_ID.get(name, 0) for name in hlo.opcodes), np.uint8, len(hlo))


def unknown_opcodes(hlo: HloColumns) -> dict[str, int]:
    """Opcodes that became 0, with how often."""
    return dict(Counter(name for name in hlo.opcodes if name not in _ID))


def edges(hlo: HloColumns) -> Array:
    """Rows of (consumer, producer): operands, and the roots of called computations; sorted, each once."""
    consumers = [hlo.operands.owners, hlo.called.owners]
    producers = [hlo.operands.values, hlo.computation_roots[hlo.called.values]]
    key = np.concatenate(consumers) * len(hlo) + np.concatenate(producers)
    key = np.unique(key[np.concatenate(producers) >= 0])
    return np.stack((key // len(hlo), key % len(hlo)), axis=1)


def splits(hlo: HloColumns) -> Array:
    """(1, s): where parts of the module begin and end."""
    ends = np.cumsum(hlo.computation_sizes)
    marks = [0, *(int(ends[index]) for index, name in enumerate(hlo.computation_names) if _splits(name))]
    if marks[-1] != len(hlo):
        marks.append(len(hlo))
    return np.array([marks], np.int64)


def _splits(name: str) -> bool:
    return any(word in name for word in _SPLITTERS)


def node_features(hlo: HloColumns) -> Features:
    """(n, 140) float32. Rows start as what an instruction without window, slices and the like has, which most are."""
    out = np.empty((len(hlo), len(NODE_FEATURES)), np.float32)
    out[:] = _PLAIN
    f, instructions = HloFields, hlo.messages
    out[:, _COLUMN["is_root"]] = hlo.is_root
    codes = np.full(max(ELEMENT_TYPE_CODES) + 1, -1)
    codes[list(ELEMENT_TYPE_CODES)] = np.arange(len(ELEMENT_TYPE_CODES))
    kind = np.where(hlo.element_type < len(codes), codes[np.minimum(hlo.element_type, len(codes) - 1)], -1)
    known = kind >= 0
    out[np.flatnonzero(known), _COLUMN["element_type_invalid"] + kind[known]] = 1
    _put(out, "shape_dim_0", None, _first_sum_product(hlo.dimensions, 6))
    out[:, _COLUMN["tuple_elements"]] = hlo.tuple_elements
    out[:, _COLUMN["parameter_number"]] = instructions.integer(f.PARAMETER_NUMBER)
    _put(out, "dimension_0", None, instructions.integers(f.DIMENSIONS).first(6))
    out[:, _COLUMN["feature_group_count"]] = instructions.integer(f.FEATURE_GROUPS)
    out[:, _COLUMN["batch_group_count"]] = instructions.integer(f.BATCH_GROUPS)
    out[:, _COLUMN["is_stable"]] = instructions.integer(f.IS_STABLE)
    dynamic = instructions.integers(f.DYNAMIC_SLICE_SIZES)
    has = np.flatnonzero(dynamic.counts)
    _put(out, "dynamic_slice_size_0", has, _first_sum_product(dynamic, 2)[has])
    _put(out, "layout_minor_to_major_0", None, hlo.layout.first(6))
    _windows(out, hlo)
    _convolutions(out, hlo)
    _slices(out, hlo)
    _paddings(out, hlo)
    return out


def _windows(out: Features, hlo: HloColumns) -> None:
    windows, rows = hlo.sparse(HloFields.WINDOW)
    dimensions, owner = windows.children(HloFields.WINDOW_DIMENSIONS)
    columns = ("window_size", "window_stride", "window_padding_low", "window_padding_high")
    for number, name in enumerate((*columns, "window_dilation", "base_dilation"), start=1):
        _put(out, f"{name}_0", rows, _first_sum_product(by_owner(dimensions, owner, number, len(windows)), 6))
    reversal = by_owner(dimensions, owner, 7, len(windows))
    _put(out, "window_reversal_0", rows, reversal.first(6))
    _put(out, "window_reversal_true", rows, np.stack((reversal.sums(), reversal.counts - reversal.sums()), axis=1))


def _convolutions(out: Features, hlo: HloColumns) -> None:
    numbers, rows = hlo.sparse(HloFields.CONVOLUTION)
    scalars = {
        "convolution_kernel_input_feature_dim": 3,
        "convolution_kernel_output_feature_dim": 4,
        "convolution_input_batch_dim": 7,
        "convolution_input_feature_dim": 8,
        "convolution_output_batch_dim": 9,
        "convolution_output_feature_dim": 10,
    }
    for name, number in scalars.items():
        out[rows, _COLUMN[name]] = numbers.integer(number)
    _put(out, "convolution_kernel_spatial_dim_0", rows, numbers.integers(6).first(4))
    _put(out, "convolution_input_spatial_dim_0", rows, numbers.integers(11).first(4))


def _slices(out: Features, hlo: HloColumns) -> None:
    dimensions, owner = hlo.sparse(HloFields.SLICES)
    rows = np.unique(owner)
    f = HloFields
    for name, number in (("start", f.SLICE_START), ("stride", f.SLICE_STRIDE), ("limit", f.SLICE_LIMIT)):
        _put(out, f"slice_{name}_0", rows, _first_sum_product(by_owner(dimensions, owner, number, len(hlo)), 2)[rows])


def _paddings(out: Features, hlo: HloColumns) -> None:
    paddings, rows = hlo.sparse(HloFields.PADDING)
    dimensions, owner = paddings.children(HloFields.PADDING_DIMENSIONS)
    for name, number in (("low", HloFields.PADDING_LOW), ("high", HloFields.PADDING_HIGH)):
        values = by_owner(dimensions, owner, number, len(paddings))
        _put(out, f"padding_{name}_0", rows, _first_sum_product(values, 2))


def by_owner(messages: Messages, owner: Ints, number: int, count: int) -> Ragged:
    """A scalar field of sub-messages as one list per owner."""
    return Ragged.of(messages.integer(number), np.bincount(owner, minlength=count))


def _first_sum_product(lists: Ragged, length: int) -> Ints:
    return np.concatenate((lists.first(length), lists.sums()[:, None], lists.products()[:, None]), axis=1)


def _put(out: Features, first_column: str, rows: Ints | None, values: Ints) -> None:
    start = _COLUMN[first_column]
    if rows is None:
        out[:, start : start + values.shape[1]] = values
    else:
        out[rows[:, None], np.arange(start, start + values.shape[1])] = values


_PLAIN = np.array([name.endswith("_product") for name in NODE_FEATURES], np.float32)
"""A product over nothing is 1."""
