"""The two forms an official npz file takes, as data: keys, kinds, shapes; and the checks that every file must pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tpugraphs.data.npz import ArrayHeader
from tpugraphs.errors import BadFile
from tpugraphs.graph.columns import LAYOUT_CONFIG_FEATURES, NODE_FEATURES, TILE_CONFIG_FEATURES
from tpugraphs.types import Array

_KINDS = {"float": "f", "integer": "iu", "number": "iuf"}


@dataclass(frozen=True, slots=True)
class Field:
    """One array of a file; letters in a shape are lengths that agree wherever the letter stands."""

    key: str
    kind: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Schema:
    """One kind of official file."""

    name: str
    fields: tuple[Field, ...]
    config_key: str
    config_columns: tuple[str, ...]
    top_k: tuple[int, ...]
    """The K of the official top-K errors."""
    equal_rows_are_repeats: bool
    """Whether two rows of equal config features are one config measured twice, or only look alike."""

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(field.key for field in self.fields)

    @property
    def graph_keys(self) -> tuple[str, ...]:
        """What is neither a config nor a run time."""
        return tuple(key for key in self.keys if key not in (self.config_key, RUNTIME))


RUNTIME = "config_runtime"
NORMALIZER = "config_runtime_normalizers"

_GRAPH_FIELDS = (
    Field("node_feat", "float", ("n", len(NODE_FEATURES))),
    Field("node_opcode", "integer", ("n",)),
    Field("edge_index", "integer", ("m", 2)),
)

LAYOUT = Schema(
    name="layout",
    fields=(
        *_GRAPH_FIELDS,
        Field("node_config_feat", "float", ("c", "nc", len(LAYOUT_CONFIG_FEATURES))),
        Field("node_config_ids", "integer", ("nc",)),
        Field(RUNTIME, "number", ("c",)),
        Field("node_splits", "integer", (1, "s")),
    ),
    config_key="node_config_feat",
    config_columns=LAYOUT_CONFIG_FEATURES,
    top_k=(1, 10, 100),
    equal_rows_are_repeats=True,
)

TILE = Schema(
    name="tile",
    fields=(
        *_GRAPH_FIELDS,
        Field("config_feat", "float", ("c", len(TILE_CONFIG_FEATURES))),
        Field(RUNTIME, "number", ("c",)),
        Field(NORMALIZER, "number", ("c",)),
    ),
    config_key="config_feat",
    config_columns=TILE_CONFIG_FEATURES,
    top_k=(1, 5, 10),
    equal_rows_are_repeats=False,  # kernels of reshapes have no bounds: their rows are all zeros, their times differ
)

SCHEMAS = {schema.name: schema for schema in (LAYOUT, TILE)}
NAMED = "named"


def named_schema(columns: Sequence[str]) -> Schema:
    """What this project's own spaces have: like layouts, with columns of their own that the manifest names."""
    features = Field("node_config_feat", "float", ("c", "nc", len(columns)))
    fields = tuple(features if field.key == LAYOUT.config_key else field for field in LAYOUT.fields)
    return replace(LAYOUT, name=NAMED, fields=fields, config_columns=tuple(columns))


def detect_schema(headers: Mapping[str, ArrayHeader], label: str | Path) -> Schema:
    """The schema whose keys a file has, all of them and no others."""
    for schema in SCHEMAS.values():
        if schema.config_key in headers:
            break
    else:
        wanted = " or ".join(schema.config_key for schema in SCHEMAS.values())
        raise BadFile(label, "keys", expected=f"the key {wanted}", found=", ".join(headers) or "none")
    for key in schema.keys:
        if key not in headers:
            raise BadFile(label, key, expected=f"this key in a {schema.name} file", found=", ".join(headers))
    for key in headers:
        if key not in schema.keys:
            raise BadFile(label, key, expected=f"only the keys of a {schema.name} file", found="this one more")
    return schema


def check_headers(schema: Schema, headers: Mapping[str, ArrayHeader], label: str | Path) -> dict[str, int]:
    """Checks dtypes and shapes against each other; returns the length behind each letter."""
    lengths: dict[str, int] = {}
    owner: dict[str, str] = {}
    for field in schema.fields:
        header = headers[field.key]
        if header.dtype.kind not in _KINDS[field.kind]:
            raise BadFile(label, field.key, expected=f"a dtype of kind {field.kind}", found=header.dtype.name)
        expected = ", ".join(str(length) for length in field.shape)
        if len(header.shape) != len(field.shape):
            raise BadFile(label, field.key, expected=f"shape ({expected})", found=f"shape {header.shape}")
        for wanted, actual in zip(field.shape, header.shape, strict=True):
            if isinstance(wanted, int):
                if wanted != actual:
                    raise BadFile(label, field.key, expected=f"shape ({expected})", found=f"shape {header.shape}")
            elif lengths.setdefault(wanted, actual) != actual:
                also = f"{wanted} = {lengths[wanted]} as in {owner[wanted]}"
                raise BadFile(label, field.key, expected=f"shape ({expected}) with {also}", found=f"{header.shape}")
            else:
                owner.setdefault(wanted, field.key)
    for letter, what in (("n", "node"), ("c", "config")):
        if lengths[letter] == 0:
            raise BadFile(label, "shapes", expected=f"at least one {what}", found="none")
    return lengths


def check_arrays(arrays: Mapping[str, Array], label: str | Path) -> None:
    """Checks what the graph arrays say: finite features, edges and ids that point at nodes, ordered splits."""
    n = len(arrays["node_opcode"])
    finite = np.isfinite(arrays["node_feat"]).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        raise BadFile(label, "node_feat", expected="finite numbers", found=f"NaN or infinity in row {row}")
    _check_range(arrays["edge_index"], n, "edge_index", label)
    ids = arrays.get("node_config_ids")
    if ids is not None:
        _check_range(ids, n, "node_config_ids", label)
        _check_order(ids, "node_config_ids", label, strictly=True)
    splits = arrays.get("node_splits")
    if splits is not None:
        _check_range(splits, n + 1, "node_splits", label)
        _check_order(splits[0], "node_splits", label, strictly=False)


def check_runtime(runtime: Array, label: str | Path, key: str = RUNTIME) -> bool:
    """Checks measured times; returns whether there are any (test files hold zeros)."""
    if runtime.dtype.kind == "f" and not np.isfinite(runtime).all():
        row = int(np.argmin(np.isfinite(runtime)))
        raise BadFile(label, key, expected="finite run times", found=f"{runtime[row]} in row {row}")
    if (runtime < 0).any():
        row = int(np.argmax(runtime < 0))
        raise BadFile(label, key, expected="no negative run time", found=f"{runtime[row]} in row {row}")
    zero = runtime == 0
    if zero.any() and not zero.all():
        row = int(np.argmax(zero))
        raise BadFile(label, key, expected="run times above zero, or zeros throughout", found=f"0 in row {row}")
    return not zero.all()


def check_normalizer(normalizer: Array | None, label: str | Path) -> None:
    """Checks the times that run times are divided by."""
    if normalizer is None:
        return
    check_runtime(normalizer, label, NORMALIZER)
    if (normalizer == 0).any():
        raise BadFile(label, NORMALIZER, expected="values above zero", found=f"0 in row {np.argmin(normalizer)}")


def _check_range(values: Array, limit: int, key: str, label: str | Path) -> None:
    flat = values.reshape(-1)
    outside = (flat < 0) | (flat >= limit)
    if outside.any():
        value = flat[np.argmax(outside)]
        raise BadFile(label, key, expected=f"values from 0 to {limit - 1}", found=f"{value}")


def _check_order(values: Array, key: str, label: str | Path, *, strictly: bool) -> None:
    falls = values[1:] <= values[:-1] if strictly else values[1:] < values[:-1]
    if falls.any():
        at = int(np.argmax(falls))
        rule = "each value above the one before" if strictly else "no value below the one before"
        raise BadFile(label, key, expected=rule, found=f"{values[at]} then {values[at + 1]} at {at}")
