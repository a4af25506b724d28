"""From anything that holds a program to its graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tpugraphs.errors import BadRequest
from tpugraphs.graph import CapturedGraph, extended_features, modules_in
from tpugraphs.graph.counts import multiply_adds
from tpugraphs.graph.features import graph_of, unknown_opcodes
from tpugraphs.graph.hlo import HloColumns, HloFields, proto_trouble, read_hlo
from tpugraphs.program import xla
from tpugraphs.program.capture import capture_callable, capture_zoo, program_of_source
from tpugraphs.program.isolated import IsolatedXla
from tpugraphs.program.mlir import TAG
from tpugraphs.program.sources import dumped_modules, kind_of, read_source
from tpugraphs.program.types import Program
from tpugraphs.program.zoo import ZooProgram
from tpugraphs.types import Array

LOWERED, SIMPLIFIED, GIVEN = "lowered", "simplified", "given"
_COMPUTING = ("convolution", "dot")
_CONFIGURABLE = (*_COMPUTING, "reshape")
_OTHERS = ("transpose", "reduce-window", "select-and-scatter", "gather", "scatter", "power", "sort", "topk")
"""What programs have knobs for besides."""
PROGRAM = "program"
_TRANSPARENT = ("reshape", "transpose", "bitcast", "convert", "copy")


@dataclass(frozen=True, slots=True)
class _Found:
    """A module on its way to a graph."""

    name: str
    label: str
    """What errors call it: the file, where there is one."""
    hlo: bytes
    stage: str
    config_ids: Array | None = None
    parameters: int | None = None


def capture(
    source: Callable[..., Any] | ZooProgram | str | PathLike[str],
    *arguments: Any,
    stage: str = LOWERED,
    example: Sequence[str] = (),
    module: int | None = None,
    name: str | None = None,
    costs: bool = False,
) -> CapturedGraph:
    """The graph of a program.

    `source` is a JAX callable, with example `arguments` (arrays or `jax.ShapeDtypeStruct`s); or a program of the zoo or
    its name, `MODULE.py:FUNCTION` (its arguments made by `FUNCTION_args()`, or by `example` as in `f32[8,128]`), a file
    (StableHLO text or bytecode, HLO text, a serialized HLO proto, a `.pb` of the TpuGraphs release), or the folder XLA
    dumped to. Of several modules the largest is taken, or the one with number `module`.

    `stage` is `lowered`, the program as the frontend hands it over, or `simplified`, as it enters XLA's layout
    assignment. `costs` has XLA's cost analysis added.
    """
    if stage not in (LOWERED, SIMPLIFIED):
        raise BadRequest(f"stage {stage!r}: expected {LOWERED} or {SIMPLIFIED}")
    with IsolatedXla() as isolated:
        found = _find(source, arguments, example, module, isolated)
        found = found if name is None else replace(found, name=name)
        if stage == SIMPLIFIED:
            hlo = isolated.simplified(found.hlo, found.label)
            found = replace(found, hlo=hlo, stage=SIMPLIFIED, config_ids=None)
        graph = _graph(found)
        return replace(graph, costs=isolated.costs(found.hlo, found.label)) if costs else graph


def _find(
    source: Callable[..., Any] | ZooProgram | str | PathLike[str],
    arguments: tuple[Any, ...],
    example: Sequence[str],
    module: int | None,
    isolated: IsolatedXla,
) -> _Found:
    if callable(source):
        return _lowered(capture_callable(source, *arguments))
    if isinstance(source, ZooProgram):
        return _lowered(capture_zoo(source, concrete=False))
    if arguments:
        raise BadRequest(f"{source}: arguments go with a callable; for MODULE.py:FUNCTION give example=('f32[8,128]',)")
    text = str(source)
    program = program_of_source(text, arguments=tuple(example), concrete=False)
    if program is not None:
        return _lowered(program)
    path = Path(text)
    if path.is_dir():
        return _of_folder(path, module, isolated)
    return _of_file(path, module, isolated)


def _lowered(program: Program) -> _Found:
    return _Found(
        program.name, program.name, xla.hlo_of_stablehlo(program.text), LOWERED, parameters=program.parameters
    )


def _of_folder(folder: Path, module: int | None, isolated: IsolatedXla) -> _Found:
    paths = dumped_modules(folder)
    if module is not None and not 0 <= module < len(paths):
        raise BadRequest(f"{folder}: has modules 0 (the largest) to {len(paths) - 1}, not {module}")
    return _of_file(paths[module or 0], None, isolated)


def _of_file(path: Path, module: int | None, isolated: IsolatedXla) -> _Found:
    data = read_source(path)
    kind, name = kind_of(data, path), path.name.split(".before_optimizations")[0].removesuffix(path.suffix)
    if kind == "stablehlo":
        program = isolated.stablehlo(data, path, name)
        return _Found(name, str(path), isolated.hlo_of_stablehlo(program.text, path), LOWERED)
    if kind == "hlo-text":
        return _Found(name, str(path), isolated.hlo_of_text(data, path), GIVEN)
    modules = modules_in(data, path)
    if module is None:
        module = max(range(len(modules)), key=lambda index: len(modules[index].module))
    if not 0 <= module < len(modules):
        raise BadRequest(f"{path}: has modules 0 to {len(modules) - 1}, not {module}")
    one = modules[module]
    name = name if len(modules) == 1 else f"{name}#{module}"
    return _Found(name, str(path), bytes(one.module), GIVEN, one.config_ids)


def _graph(found: _Found) -> CapturedGraph:
    with proto_trouble(found.hlo, found.label):
        hlo = read_hlo(found.hlo, found.label)
        ids, tags = (found.config_ids, ()) if found.config_ids is not None else configurable(hlo)
        graph = graph_of(hlo, ids)
        return CapturedGraph(
            **{field.name: getattr(graph, field.name) for field in fields(graph)},
            name=found.name,
            stage=found.stage,
            node_names=tuple(hlo.names),
            computation=hlo.computation,
            computation_names=tuple(hlo.computation_names),
            entry=hlo.entry,
            config_tags=tags,
            extended=extended_features(hlo),
            multiply_adds=multiply_adds(hlo),
            unknown_opcodes=unknown_opcodes(hlo),
            parameters=found.parameters,
            hlo=found.hlo,
        )


def configurable(hlo: HloColumns) -> tuple[Array, tuple[str, ...]]:
    """Convolutions and dots, and of tagged modules the tagged reshapes too; with their tags where there are any."""
    nodes, tags = _configurable(hlo, _CONFIGURABLE)
    return np.array(nodes, np.int64), tags


def node_of_place(program: Program, hlo: bytes) -> dict[str, int]:
    """Where in the graph of its lowered module the places of a program's space are: nodes, inputs, the whole program.

    An input is its parameter, the whole program the root of the entry. A transpose or reshape that lowering merged with
    another is nowhere.
    """
    columns = read_hlo(hlo, program.name)
    nodes, tags = _configurable(columns, (*_CONFIGURABLE, *_OTHERS))
    found = {tag: node for tag, node in zip(tags, nodes, strict=True) if tag}
    entry = np.flatnonzero(columns.computation == columns.entry)
    parameters = columns.messages.integer(HloFields.PARAMETER_NUMBER)
    for node in entry.tolist():
        if columns.opcodes[node] == "parameter":
            found[f"input{int(parameters[node])}"] = node
    found[PROGRAM] = int(columns.computation_roots[columns.entry])
    return found


def _configurable(hlo: HloColumns, moving: tuple[str, ...]) -> tuple[list[int], tuple[str, ...]]:
    """The nodes that compute, and those that move data and carry a tag of their own; the first of each tag.

    XLA's simplification may put the tag of a dot it rewrote on the reshape behind it: there it is looked for too.
    """
    metadata, rows = hlo.sparse(HloFields.METADATA)
    own = {
        row: match[0]
        for row, text in zip(rows.tolist(), metadata.text(HloFields.METADATA_OP_NAME), strict=True)
        if (match := TAG.search(text)) is not None
    }
    computing = [index for index, opcode in enumerate(hlo.opcodes) if opcode in _COMPUTING]
    if not own:
        return computing, ()
    consumers: dict[int, list[int]] = {}
    for consumer, producer in zip(hlo.operands.owners.tolist(), hlo.operands.values.tolist(), strict=True):
        consumers.setdefault(producer, []).append(consumer)
    tags = {node: _tag_behind(node, own, consumers, hlo.opcodes) for node in computing}
    taken = set(tags.values())
    for row, tag in sorted(own.items()):
        if hlo.opcodes[row] in moving and tag not in taken:
            tags[row] = tag
            taken.add(tag)
    nodes = sorted(tags)
    return nodes, tuple(tags[node] for node in nodes)


def _tag_behind(node: int, tags: dict[int, str], consumers: dict[int, list[int]], opcodes: list[str]) -> str:
    while node not in tags:
        following = consumers.get(node, [])
        if len(following) != 1 or opcodes[following[0]] not in _TRANSPARENT:
            return ""
        node = following[0]
    return tags[node]
