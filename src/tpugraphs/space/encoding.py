"""Configs as arrays: a row of named columns for each configurable node, as packs hold them and models read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpugraphs.errors import BadRequest
from tpugraphs.graph.columns import LAYOUT_CONFIG_FEATURES
from tpugraphs.space.flags import flag_columns, flag_settings
from tpugraphs.space.knobs import FLAG, FORM, LAYOUT, Config, Knob, Space
from tpugraphs.space.notation import LONGEST, TENSORS, complete, parse_layout, render

COMPILER_DECIDES = -1.0
"""In a layout's columns; forms and options are 0 where the compiler's own stands."""

Setting = tuple[int, Mapping[int, float]]
"""A row, and what its columns become."""


@dataclass(frozen=True)
class Encoding:
    """How the configs of one space become arrays. It is plain data: to encode needs neither program nor compiler."""

    columns: tuple[str, ...]
    node_ids: tuple[int, ...]
    """The graph's node behind each row, increasing."""
    settings: Mapping[str, Mapping[str, Setting]]
    """By knob and choice."""

    @staticmethod
    def of(
        space: Space, node_of_place: Mapping[str, int], *, kinds: Collection[str], forms: Iterable[str], backend: str
    ) -> Encoding:
        """A block of columns for each kind of knob: the official 18 for layouts, one a form, one an option's value.

        The kinds are those asked for and `forms` the names of all, so that every program has the same columns.
        """
        columns = (
            *(LAYOUT_CONFIG_FEATURES if LAYOUT in kinds else ()),
            *((f"form.{name}" for name in forms) if FORM in kinds else ()),
            *(flag_columns(backend) if FLAG in kinds else ()),
        )
        at = {name: index for index, name in enumerate(columns)}
        node_ids = tuple(sorted({node_of_place[knob.place] for knob in space.knobs}))
        row = {node: index for index, node in enumerate(node_ids)}
        settings = {
            knob.name: {
                choice: (row[node_of_place[knob.place]], _set(knob, choice, at, backend)) for choice in knob.choices[1:]
            }
            for knob in space.knobs
        }
        return Encoding(columns, node_ids, settings)

    def encode(self, configs: Sequence[Config]) -> NDArray[np.float32]:
        """(configs, rows, columns)"""
        blank = [COMPILER_DECIDES if name in _LAYOUT_COLUMNS else 0.0 for name in self.columns]
        out = np.tile(np.array(blank, np.float32), (len(configs), len(self.node_ids), 1))
        for index, config in enumerate(configs):
            for name, choice in config.changes:
                if choice not in self.settings.get(name, {}):
                    raise BadRequest(f"config {config.to_json()}: its space knows no {name} of {choice}")
                row, changed = self.settings[name][choice]
                for column, value in changed.items():
                    out[index, row, column] = value
        return out

    def to_json(self) -> dict[str, Any]:
        settings = {
            name: {
                choice: [row, {str(column): value for column, value in changed.items()}]
                for choice, (row, changed) in choices.items()
            }
            for name, choices in self.settings.items()
        }
        return {"columns": self.columns, "node_ids": self.node_ids, "settings": settings}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Encoding:
        settings = {
            name: {
                choice: (row, {int(column): one for column, one in changed.items()})
                for choice, (row, changed) in choices.items()
            }
            for name, choices in value["settings"].items()
        }
        return Encoding(tuple(value["columns"]), tuple(value["node_ids"]), settings)


_LAYOUT_COLUMNS = frozenset(LAYOUT_CONFIG_FEATURES)


def _set(knob: Knob, choice: str, at: Mapping[str, int], backend: str) -> dict[int, float]:
    if knob.kind == LAYOUT:
        first = at[LAYOUT_CONFIG_FEATURES[0]] + _block(knob)
        return {first + index: float(dim) for index, dim in enumerate(parse_layout(choice))}
    if knob.kind == FORM:
        return {at[f"form.{choice}"]: 1.0}
    return {at[name]: value for name, value in flag_settings(knob.name, choice, backend).items()}


def decode_layouts(rows: NDArray[np.float32], knobs: Sequence[Knob]) -> Config:
    """The config behind official layout columns, (places, 18), a row for each place that these knobs have, in order.

    Where only the minor dimensions are named, as in the release for convolutions and dots, the rest follows in
    row-major order.
    """
    places = {place: index for index, place in enumerate(dict.fromkeys(knob.place for knob in knobs))}
    if rows.shape != (len(places), len(LAYOUT_CONFIG_FEATURES)):
        expected = f"({len(places)}, {len(LAYOUT_CONFIG_FEATURES)})"
        raise BadRequest(f"layout columns: expected shape {expected}, found {rows.shape}")
    changes = {}
    for knob in knobs:
        at = _block(knob)
        named = [int(dim) for dim in rows[places[knob.place], at : at + LONGEST] if dim >= 0]
        if named:
            changes[knob.name] = _choice_of(complete(named, len(parse_layout(knob.choices[1]))), knob)
    return Config.of(changes)


def _choice_of(layout: Sequence[int], knob: Knob) -> str:
    """The choice that is this layout, wherever dimensions of length 1 stand: choices but the first end in them."""
    if render(layout) in knob.choices:
        return render(layout)
    others = [parse_layout(choice) for choice in knob.choices[2:]]
    short = [dims[0] for dims in zip(*(reversed(one) for one in others), strict=True) if len(set(dims)) == 1]
    moving = [dim for dim in layout if dim not in short]
    for choice in knob.choices[1:]:
        if [dim for dim in parse_layout(choice) if dim not in short] == moving:
            return choice
    raise BadRequest(f"{knob.name}: expected one of {', '.join(knob.choices)}, found {render(layout)}")


def _block(knob: Knob) -> int:
    """Where a tensor's layout starts; that of weights, which are results of their own node, with the output."""
    tensor = knob.name.rpartition(".")[2]
    return LONGEST * TENSORS.index("output" if tensor == "layout" else tensor)
