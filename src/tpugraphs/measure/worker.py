"""The driver's side of the process that measures: one program's inputs loaded, jobs passed as files."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpugraphs.child import ChildProcess
from tpugraphs.program import Program
from tpugraphs.target import Job, Target
from tpugraphs.types import Array

START_LIMIT_S = 120.0


class Worker(ChildProcess):
    """One worker process with a program's inputs loaded."""

    def __init__(self, program: Program, inputs: Sequence[Array], target: Target, memory: int | None = None) -> None:
        super().__init__("tpugraphs.measure.child", {"TF_CPP_MIN_LOG_LEVEL": "2", **_platform(target.name)})
        self._dtypes = [spec.dtype for spec in program.inputs]
        self._target, self._memory = target.name, memory
        self._inputs = self.folder / "inputs.npz"
        arrays = {
            f"x{index}": _storable(value, spec.dtype)
            for index, (value, spec) in enumerate(zip(inputs, program.inputs, strict=True))
        }
        np.savez(self._inputs, **arrays)  # pyright: ignore[reportArgumentType]
        self._numbers = itertools.count()

    def __enter__(self) -> Worker:
        return self

    def start(self) -> None:
        """A fresh process."""
        super().start()
        inputs = str(self._inputs)
        self.ask("load", START_LIMIT_S, target=self._target, inputs=inputs, dtypes=self._dtypes, memory=self._memory)

    def build(self, jobs: Mapping[str, Job], limit_s: float) -> list[dict[str, Any]]:
        """Compiles jobs under their names; the answers in their order."""
        written: list[Path] = []

        def put(data: bytes | None) -> str | None:
            if data is None:
                return None
            written.append(self.folder / f"module{next(self._numbers)}")
            written[-1].write_bytes(data)
            return str(written[-1])

        told = [
            {
                "name": name,
                "module": put(job.module),
                "options": dict(job.options),
                "input_layouts": {str(index): layout for index, layout in job.input_layouts.items()},
                "probing": put(job.probing),
                "probes": list(job.probes),
            }
            for name, job in jobs.items()
        ]
        try:
            return self.ask("build", limit_s, jobs=told)["built"]
        finally:
            for path in written:
                path.unlink(missing_ok=True)


def _platform(target: str) -> dict[str, str]:
    """On the CPU, and beside another runtime, JAX is to take no other device."""
    return {"JAX_PLATFORMS": "cpu"} if target == "xla:cpu" or target.startswith("iree:") else {}


def _storable(value: Array, dtype: str) -> Array:
    """bfloat16 is no dtype of npz; it travels as the integers of the same bits."""
    return np.ascontiguousarray(value).view(np.uint16) if dtype == "bfloat16" else np.ascontiguousarray(value)
