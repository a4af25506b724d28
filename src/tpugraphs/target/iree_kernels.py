"""Kernels of a module at IREE's executable-configurations phase, read through its own MLIR bindings."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from io import BytesIO
from typing import Any

from tpugraphs.program.mlir import TAG
from tpugraphs.target.contract import OTHER
from tpugraphs.types import Kernel, Loop, Tiles

_DISPATCH, _FUNCTION, _CONFIG = "stream.cmd.dispatch", "func.func", "lowering_config"
_DISTRIBUTION, _PARALLEL, _SUM = "distribution", "vector_common_parallel", "vector_reduction"
_NUMBERED = re.compile(r"^.*?dispatch_\d+_?")
_CONFIGS = re.compile(r",? ?(?:lowering_config|translation_info) = #[\w.]+<(?:[^<>]|<[^<>]*>)*>")
_OFFSET = re.compile(r"offset\((%\w+)\)")
_LEVEL = re.compile(r"(\w+) = \[([\d, ]*)\]")
_PIPELINE = re.compile(r"pipeline<(\w+)>")
_MAP = re.compile(r"affine_map<\((.*?)\) -> \((.*?)\)>")
_ITERATOR = re.compile(r"iterator_type<(\w+)>")


def kernels_of(configured: bytes) -> list[Kernel]:
    """In the module's order."""
    ir: Any = import_module("iree.compiler.ir")  # its names are made when it is loaded
    with ir.Context():
        module = ir.Module.parse(configured)
        tags: dict[str, list[str]] = {}
        functions = []
        for op in operations(module.operation):
            if op.name == _DISPATCH:
                tag = TAG.search(str(op.location))
                tags.setdefault(_called(op), []).append(tag[0] if tag else OTHER)
            elif op.name == _FUNCTION and _in_an_executable(op):
                functions.append(op)
        return [_kernel(op, tags) for op in functions]


def retiled(configured: bytes, chosen: Mapping[str, Tiles]) -> bytes:
    """The module with other tiles for some kernels, by their hashes."""
    ir: Any = import_module("iree.compiler.ir")  # its names are made when it is loaded
    with ir.Context():
        module = ir.Module.parse(configured)
        left = dict(chosen)
        for op in operations(module.operation):
            if op.name == _FUNCTION and _in_an_executable(op):
                digest = _digest(op)
                if digest in chosen:
                    left.pop(digest, None)
                    _retile(op, chosen[digest])
        if left:
            raise ValueError(f"no kernel {', '.join(left)} in this program")
        written = BytesIO()
        module.operation.write_bytecode(written)
        return written.getvalue()


def _retile(function: Any, tiles: Tiles) -> None:
    """The tiled operation, and with it what is fused with it, so that all cut alike."""
    root = _root(function)
    if root is None:
        raise ValueError(f"{function.attributes['sym_name']}: is not tiled")
    own = _tiles(root)
    if len(own.distribution) != len(tiles.distribution):
        raise ValueError(f"{function.attributes['sym_name']}: has {len(own.distribution)} loops, found tiles {tiles}")
    ir: Any = import_module("iree.compiler.ir")
    name = str(function.attributes["sym_name"]).strip('"')
    here = ir.Location.file(name, 1, 1, context=function.context)  # so that the compiler names it in its errors
    pairs = [(old, new) for old, new in zip(own.parallel, tiles.parallel, strict=True) if old]
    for op in operations(function):
        op.location = here
        levels = _levels(op)
        if op == root:
            _set(op, {**levels, _DISTRIBUTION: tiles.distribution, _PARALLEL: tiles.parallel, _SUM: tiles.reduction})
        elif _PARALLEL in levels:
            _set(op, {**levels, _PARALLEL: _cut_alike(levels[_PARALLEL], pairs)})


def _cut_alike(tile: Sequence[int], pairs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """A fused operation's register tile: where it is cut as the last loops of the tiled one were, as they are now."""
    places = [index for index, length in enumerate(tile) if length]
    last = pairs[len(pairs) - len(places) :]
    if len(places) > len(pairs) or [tile[index] for index in places] != [old for old, _ in last]:
        return tuple(tile)
    new = list(tile)
    for index, (_, length) in zip(places, last, strict=True):
        new[index] = length
    return tuple(new)


def _set(op: Any, levels: Mapping[str, Sequence[int]]) -> None:
    ir: Any = import_module("iree.compiler.ir")  # its names are made when it is loaded
    words = ", ".join(f"{level} = [{', '.join(map(str, tile))}]" for level, tile in levels.items() if any(tile))
    op.attributes[_CONFIG] = ir.Attribute.parse(f"#iree_cpu.lowering_config<{words}>")


def operations(op: Any) -> Iterator[Any]:
    """All operations below one, in order."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from operations(inner.operation)


def _called(dispatch: Any) -> str:
    """The function that a dispatch runs, of `[@executable::@variant::@function]`."""
    return str(dispatch.attributes["entry_points"]).rpartition("@")[2].strip(']"')


def _in_an_executable(op: Any) -> bool:
    module = op.parent
    return module is not None and module.parent is not None and module.parent.name == "hal.executable.variant"


def _kernel(function: Any, tags: dict[str, list[str]]) -> Kernel:
    name = str(function.attributes["sym_name"]).strip('"')
    root = _root(function)
    pipeline = _PIPELINE.search(str(function.attributes["translation_info"]))
    return Kernel(
        name=name,
        digest=_digest(function),
        what=_NUMBERED.sub("", name).replace("_", " ") or name,
        pipeline=pipeline[1] if pipeline else "none",
        loops=() if root is None else _loops(root),
        tiles=None if root is None else _tiles(root),
        tags=tuple(tags.get(name, ())),
    )


def _root(function: Any) -> Any:
    """The operation that is tiled for threads; None where none is."""
    return next((op for op in operations(function) if _DISTRIBUTION in _levels(op)), None)


def _digest(function: Any) -> str:
    """Of its text without its name, the choice of tiles, and where in a buffer its operands start."""
    name = str(function.attributes["sym_name"]).strip('"')
    return hashlib.sha256(_normalised(function, name).encode()).hexdigest()[:12]


def _normalised(function: Any, name: str) -> str:
    text = _CONFIGS.sub("", str(function)).replace(name, "kernel")
    for offset in set(_OFFSET.findall(text)):
        text = re.sub(rf"{re.escape(offset)} = arith\.constant \d+", f"{offset} = arith.constant 0", text)
        text = re.sub(rf"{re.escape(offset)}\b", "%offset", text)
    return text


def _levels(op: Any) -> dict[str, tuple[int, ...]]:
    """What its lowering config says, by level; empty lists are left out."""
    if _CONFIG not in op.attributes:
        return {}
    found = _LEVEL.findall(str(op.attributes[_CONFIG]))
    return {level: tuple(int(one) for one in tile.split(",")) for level, tile in found if tile.strip()}


def _tiles(root: Any) -> Tiles:
    levels = _levels(root)
    none = (0,) * len(levels[_DISTRIBUTION])
    return Tiles(levels[_DISTRIBUTION], levels.get(_PARALLEL, none), levels.get(_SUM, none))


def _loops(root: Any) -> tuple[Loop, ...]:
    """Lengths are those of operands' dimensions that run along one loop alone."""
    ir: Any = import_module("iree.compiler.ir")  # its names are made when it is loaded
    if "indexing_maps" not in root.attributes:
        return ()
    kinds = _ITERATOR.findall(str(root.attributes["iterator_types"]))
    lengths = [0] * len(kinds)
    for operand, (_, results) in zip(root.operands, _MAP.findall(str(root.attributes["indexing_maps"])), strict=False):
        if not isinstance(operand.type, ir.ShapedType):
            continue
        for length, expression in zip(ir.ShapedType(operand.type).shape, results.split(", "), strict=False):
            if re.fullmatch(r"d\d+", expression):
                lengths[int(expression[1:])] = length
    return tuple(Loop(length, kind == "reduction") for length, kind in zip(lengths, kinds, strict=True))
