"""The worker's side: compiles, checks, times and profiles what it is asked to."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tpugraphs.child import serve
from tpugraphs.measure import check, timing
from tpugraphs.measure.inputs import numpy_dtype
from tpugraphs.target import Executable, build

BASELINE = "baseline"


class Child:
    """What one worker process holds: inputs on the device, executables by name, the default's outputs."""

    def __init__(self) -> None:
        self._inputs: list[Any] = []
        self._executables: dict[str, Executable] = {}
        self._expected: dict[str, np.ndarray] = {}

    def load(self, inputs: str, dtypes: list[str]) -> dict[str, Any]:
        """Takes the program's inputs from an npz file."""
        with np.load(inputs, allow_pickle=False) as file:
            arrays = [file[f"x{index}"].view(numpy_dtype(dtype)) for index, dtype in enumerate(dtypes)]
        self._inputs = [jax.device_put(array) for array in arrays]
        return {}

    def build(self, name: str, module: str, options: dict[str, str]) -> dict[str, Any]:
        start = time.perf_counter()
        self._executables[name] = build(Path(module).read_bytes(), options)
        return {"compile_s": time.perf_counter() - start}

    def check(self, name: str, module: str, options: dict[str, str], probes: list[str]) -> dict[str, Any]:
        """Runs the program itself, and the one with probes, and compares both with the baseline's."""
        probing = build(Path(module).read_bytes(), options)
        found = check.by_name(_fetch(probing(self._inputs)), probes)
        if name == BASELINE:
            self._expected = found
            return {"excess": 0.0, "where": "", "spread": _spread(found)}
        own = check.by_name(_fetch(self._executables[name](self._inputs)), [])
        judged = [check.deviation(outputs, self._expected) for outputs in (own, found)]
        excess, where = max(judged, key=lambda pair: pair[0])
        return {"excess": excess if np.isfinite(excess) else 1e30, "where": where}

    def time(self, names: list[str], rounds: int, sample_s: float, seed: int) -> dict[str, Any]:
        runs = {name: (lambda name=name: self._executables[name](self._inputs)) for name in names}
        return {"samples": timing.interleaved(runs, rounds=rounds, sample_s=sample_s, seed=seed)}

    def profile(self, name: str, calls: int) -> dict[str, Any]:
        return {"ns": self._executables[name].profile(self._inputs, calls)}

    def drop(self, name: str) -> dict[str, Any]:
        self._executables.pop(name, None)
        return {}


def _fetch(outputs: list[Any]) -> list[np.ndarray]:
    return [np.asarray(output) for output in outputs]


def _spread(outputs: dict[str, np.ndarray]) -> float:
    """How far values lie apart; where nothing varies, no check could tell right from wrong."""
    return max((float(output.astype(np.float64).std()) for output in outputs.values() if output.size), default=0.0)


def main() -> None:
    child = Child()
    serve({name: getattr(child, name) for name in ("load", "build", "check", "time", "profile", "drop")})


if __name__ == "__main__":
    main()
