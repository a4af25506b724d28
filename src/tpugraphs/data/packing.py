"""From the journal of a collect to a collection of packs."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpugraphs import files
from tpugraphs.data.collection import COLLECTION, CollectionManifest, graph_folder, write_collection
from tpugraphs.data.manifest import Origin
from tpugraphs.data.names import SPLITS, check_collection, check_graph, check_split
from tpugraphs.data.npz import ZIP45
from tpugraphs.data.pack import MANIFEST, write_pack
from tpugraphs.data.protos import ArraysInMemory
from tpugraphs.data.schema import LAYOUT, Schema, named_schema
from tpugraphs.errors import BadFile, BadRequest
from tpugraphs.graph import graph_of_hlo
from tpugraphs.measure.fingerprint import strict
from tpugraphs.measure.journal import MODULE, STUDIES, History, read_runs
from tpugraphs.measure.judging import default_ns, judge
from tpugraphs.measure.measurement import OK, Measurement
from tpugraphs.types import Array, GraphSummary

_TRAIN, _VALID = 0.8, 0.9


@dataclass(frozen=True, slots=True)
class Packed:
    """What packing made."""

    collection: str
    graphs: tuple[GraphSummary, ...]
    left_out: tuple[str, ...]
    """One sentence a program."""


def pack_runs(
    runs: Path,
    into: Path,
    *,
    name: str | None = None,
    machine: str | None = None,
    splits: Mapping[str, str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Packed:
    """Makes a collection of what one machine measured of one space: a graph a program, a row a measurement.

    Of several collections in the journal `name` chooses one, of several machines `machine` (the strict fingerprint's
    first digits). Programs go to splits by family; `splits` says for families or programs which.
    """
    if (into / COLLECTION).exists():
        raise BadRequest(f"{into}: there is a collection already; pack into another folder, or remove it first")
    chosen = _chosen(read_runs(runs), name, machine, runs)
    left_out, rows, digests, measured = [], [], {}, {}
    [collection] = {history.study.collection for history in chosen}
    schema = _schema(chosen)
    with files.sole_writer(into):
        for history in chosen:
            progress(history.study.program)
            graph = check_graph(history.study.program.replace("/", "."))
            if graph in digests:
                left_out.append(f"{history.study.program}: measured twice, with different seeds or texts; one is in")
                continue
            timed = _rows(history)
            if len(timed) < 2:
                left_out.append(f"{history.study.program}: {len(timed)} good measurements, expected at least 2")
                continue
            folder = graph_folder(into, graph)
            shutil.rmtree(folder, ignore_errors=True)  # left by a packing that was interrupted
            summary = _write(runs, folder, history, timed, graph, schema)
            split = check_split((splits or {}).get(history.study.program) or _split(history.study.family, splits))
            rows.append(GraphSummary(name=graph, split=split, **summary))
            digests[graph] = files.sha256(folder / MANIFEST)
            measured[graph] = judge(history).to_json()
        if not rows:
            raise BadRequest(f"{runs}: nothing to pack: {'; '.join(left_out)}")
        rows.sort(key=lambda row: (SPLITS.index(row.split), row.name))
        manifest = CollectionManifest(
            name=check_collection(collection),
            schema=schema,
            rows={row.name: row for row in rows},
            digests=digests,
            fingerprint=chosen[0].study.fingerprint,
            measured=measured,
        )
        write_collection(into, manifest)
    return Packed(collection, tuple(rows), tuple(left_out))


def _chosen(histories: Mapping[str, History], name: str | None, machine: str | None, runs: Path) -> list[History]:
    """The studies of one collection by one machine."""
    found = [history for history in histories.values() if history.measured]
    if not found:
        raise BadRequest(f"{runs}: its journal holds no measurement yet")
    names = sorted({history.study.collection for history in found})
    if name is None and len(names) > 1:
        raise BadRequest(f"{runs}: holds measurements for {', '.join(names)}; choose one with --name")
    if name is not None and name not in names:
        raise BadRequest(f"{runs}: holds no measurements for {name}; it has {', '.join(names)}")
    found = [history for history in found if history.study.collection == (name or names[0])]
    machines = {strict(history.study.fingerprint): history.study.fingerprint for history in found}
    kept = {digits: told for digits, told in machines.items() if digits.startswith(machine or "")}
    if len(kept) != 1:
        told = ", ".join(f"{digits} ({one.get('processor', 'unknown')})" for digits, one in machines.items())
        raise BadRequest(f"{runs}: measured on {told}; choose one machine with --machine")
    found = [history for history in found if strict(history.study.fingerprint) in kept]
    return sorted(found, key=lambda history: (history.study.program, -len(history.measured), history.study.seed))


def _schema(histories: Sequence[History]) -> Schema:
    [columns, *others] = {history.study.encoding.columns for history in histories}
    if others:
        raise BadRequest("these measurements were made by releases with other columns; pack them one by one")
    return LAYOUT if columns == LAYOUT.config_columns else named_schema(columns)


def _rows(history: History) -> list[Measurement]:
    """One a measurement that counts, in their order: repeats of the default and of finalists are rows of their own."""
    asked = history.asked
    repeated = [one for one in (*history.repeats, *history.finalists) if one.status == OK and one.ratio]
    return [*repeated, *(one for one in asked.values() if one.status == OK and one.ratio)]


def _write(
    runs: Path, folder: Path, history: History, rows: Sequence[Measurement], name: str, schema: Schema
) -> dict[str, Any]:
    study, unit_ns = history.study, default_ns(history)
    path = runs / STUDIES / study.id / MODULE
    module = files.read_bytes(path, "module", "take the folder from a copy")
    graph = graph_of_hlo(module, path)
    if max(study.encoding.node_ids) >= len(graph.node_opcode):
        raise BadFile(path, "module", expected="the module of this study", found="a smaller one")
    runtime = [round(unit_ns * one.ratio.value) if one.ratio else 0 for one in rows]
    arrays: dict[str, Array] = {
        "node_feat": graph.node_feat,
        "node_opcode": graph.node_opcode,
        "edge_index": graph.edge_index,
        "node_config_feat": study.encoding.encode([one.config for one in rows]),
        "node_config_ids": np.array(study.encoding.node_ids, np.int64),
        "config_runtime": np.maximum(1, np.array(runtime, np.int64)),
        "node_splits": graph.node_splits if graph.node_splits is not None else np.array([[0, len(graph.node_opcode)]]),
    }
    text = repr([(one.config, one.ratio) for one in rows]).encode()
    origin = Origin(f"{STUDIES}/{study.id}", len(text), hashlib.sha256(text).hexdigest(), ZIP45)
    source = ArraysInMemory(str(path), arrays)
    manifest = write_pack(
        folder, source, name=name, origin=origin, schema=schema, node_runtime=_node_runtime(history, rows)
    )
    return manifest.summary


def _node_runtime(history: History, rows: Sequence[Measurement]) -> NDArray[np.float32] | None:
    """ns by row and configurable node, where the target's profile was taken."""
    if not any(one.node_ns for one in rows):
        return None
    encoding, space = history.study.encoding, history.study.space
    row_of = {}
    for knob in space.knobs:
        setting = next(iter(encoding.settings[knob.name].values()))
        row_of[knob.place] = setting[0]
    out = np.full((len(rows), len(encoding.node_ids)), np.nan, np.float32)
    for index, one in enumerate(rows):
        if one.node_ns:
            for place, row in row_of.items():
                if place.startswith("tpugraphs."):
                    out[index, row] = one.node_ns.get(place, 0.0)
    return out


def _split(family: str, splits: Mapping[str, str] | None) -> str:
    """By the family's hash, so that what is added later moves nobody."""
    if splits and family in splits:
        return splits[family]
    drawn = int.from_bytes(hashlib.sha256(family.lower().encode()).digest()[:4], "big") / 2**32
    return "train" if drawn < _TRAIN else "valid" if drawn < _VALID else "test"


def read_splits(path: Path) -> dict[str, str]:
    """Lines of a family or program and its split, apart by a tab or blanks; # begins a comment."""
    found = {}
    for number, line in enumerate(files.read_bytes(path, "splits").decode("utf-8", "replace").splitlines(), 1):
        words = line.partition("#")[0].split()
        if words:
            if len(words) < 2 or words[-1] not in SPLITS:
                expected = f"a family or program and one of {', '.join(SPLITS)}"
                raise BadFile(path, f"line {number}", expected=expected, found=repr(line[:80]))
            found[" ".join(words[:-1])] = words[-1]
    return found
