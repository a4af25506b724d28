"""The driver's side of a worker process: asks, waits with a limit, kills what hangs, starts anew."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpugraphs.program import Program, mlir
from tpugraphs.types import Array

START_LIMIT_S = 120.0


class WorkerFailed(Exception):
    """A request that ended without an answer; `status` says how: crash or timeout."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class Worker:
    """One worker process with a program's inputs loaded. After a failure it is dead; `start` makes a new one."""

    def __init__(self, program: Program, inputs: Sequence[Array]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tpugraphs-worker-")
        self._dtypes = [spec.dtype for spec in program.inputs]
        self._inputs = Path(self._folder.name) / "inputs.npz"
        arrays = {
            f"x{index}": _storable(value, spec.dtype)
            for index, (value, spec) in enumerate(zip(inputs, program.inputs, strict=True))
        }
        np.savez(self._inputs, **arrays)  # pyright: ignore[reportArgumentType]
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Path(self._folder.name) / "stderr"
        self._buffer = b""
        self._modules = 0

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._folder.cleanup()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """A fresh process."""
        self.stop()
        self._buffer = b""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tpugraphs.measure.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the driver; and a kill takes the whole group
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "JAX_PLATFORMS": "cpu"},
            )
        self.ask("load", START_LIMIT_S, inputs=str(self._inputs), dtypes=self._dtypes)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        process.wait()

    def ask(self, do: str, limit_s: float, **arguments: Any) -> dict[str, Any]:
        """The answer; what the compiler or the program said against it is under `error`."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise WorkerFailed("crash", "the worker is not running")
        try:
            process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise self._failed("crash") from error
        deadline = time.monotonic() + limit_s
        try:
            while b"\n" not in self._buffer:
                ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise self._failed("timeout", f"no answer to {do} within {limit_s:.0f} s")
                data = os.read(process.stdout.fileno(), 1 << 20)
                if not data:
                    raise self._failed("crash")
                self._buffer += data
        except KeyboardInterrupt:
            self.stop()  # its answer would be taken for the next one's
            raise
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def write_module(self, module: Any) -> str:
        """Puts a module where the worker can read it."""
        self._modules += 1
        path = Path(self._folder.name) / f"module{self._modules}"
        path.write_bytes(mlir.to_bytecode(module))
        return str(path)

    def _failed(self, status: str, message: str = "") -> WorkerFailed:
        process = self._process
        code = None
        if process is not None and status == "crash":
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(5)
        self.stop()
        said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
        ended = (
            f"the worker ended with {_ending(code)}: {' '.join(' '.join(said).split())[:300]}"
            if code is not None
            else ""
        )
        return WorkerFailed(status, message or ended or "the worker is gone")


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _storable(value: Array, dtype: str) -> Array:
    """bfloat16 is no dtype of npz; it travels as the integers of the same bits."""
    return np.ascontiguousarray(value).view(np.uint16) if dtype == "bfloat16" else np.ascontiguousarray(value)
