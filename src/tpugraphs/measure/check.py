"""Whether a config computes what the default computes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from tpugraphs.program import mlir
from tpugraphs.types import Array

TOLERANCE = 1e-3
"""Largest deviation that passes, as a share of the spread of the default's own output."""
_ROUNDINGS = 64
"""In low precision, this many roundings are allowed instead where that is more."""
_LAST = 2
PROGRAM = "output"


def add_probes(module: ir.Module, changed: Collection[str] | None = None) -> list[str]:
    """Makes main return, behind its own results, those of some nodes; returns their tags.

    A wrong form shows best at its own node: an untrained classifier ends in a softmax so even that errors hide in it,
    and deep programs forget their early layers. So the changed nodes are probed, and the last two; `None` means all.
    Nodes inside loops are not probed.
    """
    main = mlir.main_function(module, "module")
    block = main.regions[0].blocks[0]
    ending = list(block.operations)[-1].operation
    values = _values_by_tag(block)
    if changed is not None:
        wanted = {*changed, *list(values)[-_LAST:]}
        values = {tag: value for tag, value in values.items() if tag in wanted}
    with module.context, ir.Location.unknown():
        results = [*ending.operands, *values.values()]
        with ir.InsertionPoint(ending):
            ir.Operation.create("func.return", operands=results)
        ending.erase()
        inputs = [argument.type for argument in block.arguments]
        kind = ir.FunctionType.get(inputs, [value.type for value in results])
        main.operation.attributes["function_type"] = ir.TypeAttr.get(kind)
        if "res_attrs" in main.operation.attributes:
            del main.operation.attributes["res_attrs"]
    return list(values)


def _values_by_tag(block: Any) -> dict[str, Any]:
    """The value that stands for each node, however it is written: the last one that carries its tag."""
    values: dict[str, Any] = {}
    for op in block.operations:
        tag = mlir.tag_of(op)
        if tag is not None and len(op.operation.results) == 1:
            values.pop(tag, None)
            values[tag] = op.operation.results[0]
    return values


def by_name(outputs: Sequence[Array], tags: Sequence[str]) -> dict[str, Array]:
    """A probing program's results by name: its own numbered, then the nodes by their tags."""
    own = len(outputs) - len(tags)
    return dict(zip([*(f"{PROGRAM} {index}" for index in range(own)), *tags], outputs, strict=True))


def deviation(found: Mapping[str, Array], expected: Mapping[str, Array]) -> tuple[float, str]:
    """The largest deviation as a multiple of what is allowed, and in words where it is; 1 or less passes."""
    worst, where = 0.0, "equal"
    for name, output in found.items():
        excess, words = _deviation(output, expected[name])
        if not excess <= worst:
            worst, where = excess, f"{name}: {words}"
    return worst, where


def _deviation(output: Array, expected: Array) -> tuple[float, str]:
    if output.shape != expected.shape or output.dtype != expected.dtype:
        return np.inf, f"expected {expected.dtype} {expected.shape}, found {output.dtype} {output.shape}"
    if expected.dtype.kind in "biu":
        different = int((output != expected).sum())
        return (np.inf if different else 0.0), f"{different} of {expected.size} values differ"
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    value, wanted = output.astype(kind), expected.astype(kind)
    finite = np.isfinite(wanted)
    if (np.isfinite(value) != finite).any():
        return np.inf, "other values are infinite or NaN than in the default's"
    if not finite.any():
        return 0.0, "nothing finite to compare"
    spread = _spread(wanted[finite])
    error = float(np.abs(value[finite] - wanted[finite]).max())
    share = error / spread if spread else (np.inf if error else 0.0)
    allowed = max(TOLERANCE, _ROUNDINGS * float(_resolution(expected.dtype)))
    return share / allowed, f"off by {share:.1e} of the output's spread, {allowed:.1e} allowed"


def _spread(values: Array) -> float:
    """The standard deviation, or a share of the range where a few values stand out from all others, as in a softmax."""
    reach = float(np.abs(values.max() - values.min())) if values.dtype.kind == "f" else 0.0
    return max(float(values.std()), reach / 20) or float(np.abs(values).max())


def _resolution(dtype: np.dtype) -> float:
    return 2.0**-8 if dtype.name == "bfloat16" else 2.0**-11 if dtype.name == "float16" else 2.0**-24
