"""The driver's side of the process that measures: one program's inputs loaded, modules passed as files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpugraphs.child import ChildProcess
from tpugraphs.program import Program, mlir
from tpugraphs.types import Array

START_LIMIT_S = 120.0


class Worker(ChildProcess):
    """One worker process with a program's inputs loaded."""

    def __init__(self, program: Program, inputs: Sequence[Array]) -> None:
        super().__init__("tpugraphs.measure.child", {"TF_CPP_MIN_LOG_LEVEL": "2", "JAX_PLATFORMS": "cpu"})
        self._dtypes = [spec.dtype for spec in program.inputs]
        self._inputs = self.folder / "inputs.npz"
        arrays = {
            f"x{index}": _storable(value, spec.dtype)
            for index, (value, spec) in enumerate(zip(inputs, program.inputs, strict=True))
        }
        np.savez(self._inputs, **arrays)  # pyright: ignore[reportArgumentType]
        self._modules = 0

    def __enter__(self) -> Worker:
        return self

    def start(self) -> None:
        """A fresh process."""
        super().start()
        self.ask("load", START_LIMIT_S, inputs=str(self._inputs), dtypes=self._dtypes)

    def write_module(self, module: Any) -> str:
        """Puts a module where the worker can read it."""
        self._modules += 1
        path = self.folder / f"module{self._modules}"
        path.write_bytes(mlir.to_bytecode(module))
        return str(path)


def _storable(value: Array, dtype: str) -> Array:
    """bfloat16 is no dtype of npz; it travels as the integers of the same bits."""
    return np.ascontiguousarray(value).view(np.uint16) if dtype == "bfloat16" else np.ascontiguousarray(value)
