"""Whether a config computes what the default computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tpugraphs.types import Array

TOLERANCE = 1e-3
"""Largest deviation that passes, as a share of the spread of the default's own output."""
_ROUNDINGS = 64
"""In low precision, this many roundings are allowed instead where that is more."""
PROGRAM = "output"


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


def spread_of(outputs: Mapping[str, Array]) -> float:
    """How far values lie apart; where nothing varies, no check could tell right from wrong. -1 if none is finite."""
    spreads = [-1.0]
    for output in outputs.values():
        values = output.astype(np.complex128 if output.dtype.kind == "c" else np.float64)
        values = values[np.isfinite(values)]
        spreads.append(float(values.std()) if values.size else -1.0)
    return max(spreads)


def as_dtype(stored: Array, dtype: str) -> Array:
    """bfloat16 is no dtype of npz: it travels as the integers of the same bits."""
    if dtype != "bfloat16":
        return stored
    import ml_dtypes

    return stored.view(ml_dtypes.bfloat16)
