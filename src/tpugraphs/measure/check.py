"""Whether a config computes what the default computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tpugraphs.types import AS_IT_WAS, Array

TOLERANCE = 1e-3
"""Largest deviation that passes, as a share of the spread of the default's own output."""
_ROUNDINGS = 64
"""In low precision, this many roundings are allowed instead where that is more."""
_NUDGE = 8
"""Roundings."""
_STRAYING = 4.0
"""So many times as far as nudged inputs move the default may another form move it."""
_MOST = 1.0
"""But never by more than this many times the output's spread."""
NOTHING: Mapping[str, float] = MappingProxyType({})
PROGRAM = "output"


def by_name(outputs: Sequence[Array], tags: Sequence[str]) -> dict[str, Array]:
    """A probing program's results by name: its own numbered, then the nodes by their tags."""
    own = len(outputs) - len(tags)
    return dict(zip([*(f"{PROGRAM} {index}" for index in range(own)), *tags], outputs, strict=True))


def deviation(
    found: Mapping[str, Array], expected: Mapping[str, Array], strayed: Mapping[str, float] = NOTHING
) -> tuple[float, str]:
    """The largest deviation as a multiple of what is allowed, and in words where it is; 1 or less passes.

    A node that was computed in both ways in one run is compared with itself, so that nothing which came before it
    counts; all else with the default's run. `strayed` is how far the default itself is moved by nudged inputs:
    where that is much, other roundings inside move it as much.
    """
    worst, where = 0.0, "equal"
    for name, output in found.items():
        if name.endswith(AS_IT_WAS):
            continue
        beside = found.get(f"{name}{AS_IT_WAS}")
        if beside is None:
            excess, words = _deviation(output, expected[name], strayed.get(name, 0.0))
        else:
            excess, words = _deviation(output, beside, 0.0)
        if not excess <= worst:
            worst, where = excess, f"{name}: {words}"
    return worst, where


def strays(found: Mapping[str, Array], expected: Mapping[str, Array]) -> dict[str, float]:
    """By name, how far two runs lie apart: of numbers the largest difference, of integers how many differ."""
    return {name: _apart(output, expected[name]) for name, output in found.items()}


def _apart(output: Array, expected: Array) -> float:
    if expected.dtype.kind in "biu":
        return float((output != expected).sum())
    both = np.isfinite(_wide(output)) & np.isfinite(_wide(expected))
    return float(np.abs(_wide(output)[both] - _wide(expected)[both]).max(initial=0))


def _wide(values: Array) -> Array:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def nudged(values: Array, seed: int = 0) -> Array:
    """float32 and float64 moved up or down at random, by as much as summing in another order does."""
    if values.dtype not in (np.float32, np.float64):
        return values
    signs = 2 * np.random.default_rng([seed, values.size]).integers(0, 2, values.shape, np.int8) - 1
    step = values.dtype.type(_NUDGE * np.finfo(values.dtype).eps)
    return values + values * (signs * step)


def _deviation(output: Array, expected: Array, strayed: float) -> tuple[float, str]:
    if output.shape != expected.shape or output.dtype != expected.dtype:
        return np.inf, f"expected {expected.dtype} {expected.shape}, found {output.dtype} {output.shape}"
    if expected.dtype.kind in "biu":
        different = int((output != expected).sum())
        excess = different / (_STRAYING * strayed) if strayed else np.inf
        return (excess if different else 0.0), f"{different} of {expected.size} values differ"
    value, wanted = _wide(output), _wide(expected)
    finite = np.isfinite(wanted)
    if (np.isfinite(value) != finite).any():
        return np.inf, "other values are infinite or NaN than in the default's"
    if not finite.any():
        return 0.0, "nothing finite to compare"
    spread = _spread(wanted[finite])
    error = float(np.abs(value[finite] - wanted[finite]).max())
    share = error / spread if spread else (np.inf if error else 0.0)
    allowed = max(TOLERANCE, _ROUNDINGS * float(_resolution(expected.dtype)))
    if spread:
        allowed = max(allowed, min(_MOST, _STRAYING * strayed / spread))
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
        values = _wide(output)
        values = values[np.isfinite(values)]
        spreads.append(float(values.std()) if values.size else -1.0)
    return max(spreads)


def as_dtype(stored: Array, dtype: str) -> Array:
    """bfloat16 is no dtype of npz: it travels as the integers of the same bits."""
    if dtype != "bfloat16":
        return stored
    import ml_dtypes

    return stored.view(ml_dtypes.bfloat16)
