"""A child process that answers one JSON line with one JSON line, may die or hang, and is killed and started anew.

The driver's side is `ChildProcess`; the child runs a module whose `main` calls `serve`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

_PR_SET_PDEATHSIG = 1
_FATAL = re.compile(r"F\d{4} .*?\] (.*)")
Answer = Callable[..., dict[str, Any]]


class ChildFailed(Exception):
    """A request that ended without an answer; `status` says how: crash or timeout."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class ChildProcess:
    """A child and a folder that both sides can read. After a failure it is dead; `start` makes a new one."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._module, self._environment = module, environment
        self._folder = tempfile.TemporaryDirectory(prefix="tpugraphs-child-")
        self.folder = Path(self._folder.name)
        self._log = self.folder / "stderr"
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._folder.cleanup()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """A fresh process."""
        self.stop()
        self._buffer = b""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 (a module of ours)
                [sys.executable, "-m", self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the driver; and a kill takes the whole group
                env={**os.environ, **self._environment},
            )

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
        """The answer; what went wrong within the request is under `error`."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise ChildFailed("crash", "the worker is not running")
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

    def _failed(self, status: str, message: str = "") -> ChildFailed:
        process = self._process
        code = None
        if process is not None and status == "crash":
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(5)
        self.stop()
        said = _last_words(self._log.read_text(encoding="utf-8", errors="replace"))
        ended = f"the worker ended with {_ending(code)}{said and f': {said}'}" if code is not None else ""
        return ChildFailed(status, message or ended or "the worker is gone")


def _last_words(log: str) -> str:
    """Why it died: the line of a failed check if there is one, else the last lines."""
    lines = log.strip().splitlines()
    checks = [match[1] for line in lines if (match := _FATAL.match(line)) is not None]
    return " ".join(" ".join(checks[:1] or lines[-3:]).split())[:300]


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def die_with_parent() -> None:
    """Has the system kill this process when the one that started it ends, however that ends."""
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended in between
        os._exit(1)


def limit_memory(limit_bytes: int) -> None:
    """Lets this process allocate so many bytes on top of what it holds; more fails in it, and nobody else suffers."""
    with contextlib.suppress(OSError, ValueError):
        held = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (held + limit_bytes, resource.RLIM_INFINITY))


def serve(answers: Mapping[str, Answer]) -> None:
    """Answers until there are no more requests; what goes wrong in one is its answer."""
    die_with_parent()
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints does not disturb the answers
    _serve(answers, sys.stdin, replies)


def _serve(answers: Mapping[str, Answer], requests: IO[str], replies: IO[str]) -> None:
    for line in requests:
        request = json.loads(line)
        try:
            reply = answers[request.pop("do")](**request)
        except Exception as error:  # every failure of compiler or program is data
            reply = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:500]}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
