"""A target that compiles nothing: run times follow a known formula, with noise, crashes and hangs on demand.

It serves tests and trying the commands out. A config's cost is the program's, times a factor for each change; the
factors, and which configs fail and how, come from a hash, so they are the same in every process.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from tpugraphs.errors import BadRequest
from tpugraphs.space.knobs import SPACES
from tpugraphs.target.contract import Job
from tpugraphs.types import Array

if TYPE_CHECKING:
    from tpugraphs.program import Program
    from tpugraphs.space import Config

FAILURES = ("compile_error", "crash", "hang", "hog", "wrong", "crash_run", "hang_run")


@dataclass(frozen=True, slots=True)
class SimulatedTarget:
    """What is simulated; all shares are of configs, by their hash."""

    seed: int = 0
    default_ns: float = 1e6
    effect: float = 0.05
    """The standard deviation of the log factor of one change."""
    noise: float = 0.002
    """The standard deviation of the log of a sample."""
    mode: float = 0.0
    """Half the log distance of two modes that processes are in."""
    drift: float = 0.0
    """Log change of the machine's speed per second."""
    compile_s: float = 0.0
    compile_error: float = 0.0
    crash: float = 0.0
    hang: float = 0.0
    hog: float = 0.0
    wrong: float = 0.0
    crash_run: float = 0.0
    hang_run: float = 0.0
    real_time: bool = False
    """Whether calls take their time; else only the clock says so."""
    begun: float = field(default_factory=time.monotonic, init=False, repr=False, compare=False)
    """When the drift began."""

    @staticmethod
    def of(name: str) -> SimulatedTarget:
        """From `simulated` or `simulated:noise=0.01,crash=0.1`."""
        known = {field.name: field.type for field in fields(SimulatedTarget) if field.init}
        values: dict[str, Any] = {}
        for part in filter(None, name.partition(":")[2].split(",")):
            key, _, value = part.partition("=")
            if key not in known:
                raise BadRequest(f"{name}: no such setting {key}; expected {', '.join(known)}")
            try:
                values[key] = {"int": int, "float": float, "bool": lambda text: bool(int(text))}[str(known[key])](value)
            except ValueError as error:
                raise BadRequest(f"{name}: {key}: expected a number, found {value!r}") from error
        return SimulatedTarget(**values)

    @property
    def name(self) -> str:
        default = SimulatedTarget()
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.init}
        changed = {key: value for key, value in values.items() if value != getattr(default, key)}
        told = ",".join(f"{key}={int(value) if key == 'real_time' else value}" for key, value in changed.items())
        return f"simulated:{told}" if told else "simulated"

    @property
    def backend(self) -> str:
        return "cpu"

    @property
    def spaces(self) -> tuple[str, ...]:
        return SPACES

    def prepare(self, program: Program, config: Config, probe: Collection[str] | None = None) -> Job:  # noqa: ARG002
        told = {"program": program.name, "changes": config.as_dict()}
        return Job(json.dumps(told).encode(), {})

    def build(self, module: bytes, options: Mapping[str, str]) -> SimulatedExecutable:  # noqa: ARG002
        told = json.loads(module)
        config = json.dumps(told["changes"], sort_keys=True)
        time.sleep(self.compile_s)
        if told["changes"]:
            self._misbehave(config, "compile_error", "crash", "hang", "hog")
        return SimulatedExecutable(self, told["program"], config, told["changes"])

    def place(self, value: Array, layout: tuple[int, ...] | None = None) -> Array:  # noqa: ARG002
        return value

    def true_ns(self, program: str, changes: Mapping[str, str]) -> float:
        """What a call takes but for noise."""
        log = sum(self.effect * self._normal(program, name, choice) for name, choice in changes.items())
        return self.default_ns * math.exp(log)

    def fate(self, config: str) -> str | None:
        """How a config fails, if it does."""
        drawn, below = self._uniform("fate", config), 0.0
        for failure in FAILURES:
            below += getattr(self, failure)
            if drawn < below:
                return failure
        return None

    def _misbehave(self, config: str, *ways: str) -> None:
        fate = self.fate(config)
        if fate not in ways:
            return
        if fate == "compile_error":
            raise RuntimeError("simulated: this does not compile")
        if fate.startswith("crash"):
            os.kill(os.getpid(), signal.SIGSEGV)
        if fate.startswith("hang"):
            time.sleep(3600)
        if fate == "hog":
            raise MemoryError("simulated: this takes all memory")

    def _uniform(self, *what: str) -> float:
        digest = hashlib.sha256(json.dumps([self.seed, *what]).encode()).digest()
        return int.from_bytes(digest[:7], "big") / 2**56

    def _normal(self, *what: str) -> float:
        one, other = self._uniform("a", *what), self._uniform("b", *what)
        return math.sqrt(-2 * math.log(one or 1e-12)) * math.cos(2 * math.pi * other)


class SimulatedExecutable:
    """A pretended program."""

    def __init__(self, target: SimulatedTarget, program: str, config: str, changes: Mapping[str, str]) -> None:
        self._target, self._config, self._changes = target, config, changes
        self._ns = target.true_ns(program, changes)
        self._rng = np.random.default_rng([os.getpid(), time.monotonic_ns() % (1 << 32)])
        side = 1 if target._uniform("mode", str(os.getpid()), config) < 0.5 else -1
        self._ns *= math.exp(side * target.mode)

    @property
    def identity(self) -> str:
        return hashlib.sha256(self._config.encode()).hexdigest()[:16]

    def __call__(self, arguments: Sequence[Any]) -> list[Array]:  # noqa: ARG002
        if self._changes:
            self._target._misbehave(self._config, "crash_run", "hang_run")
        if self._target.real_time:
            time.sleep(self._ns / 1e9)
        wrong = bool(self._changes) and self._target.fate(self._config) == "wrong"
        return [np.linspace(0, 1, 8) + (0.1 if wrong else 0.0)]

    run = __call__

    def sample_ns(self, arguments: Sequence[Any], calls: int) -> float:  # noqa: ARG002
        machine = math.exp(self._target.drift * (time.monotonic() - self._target.begun))
        ns = calls * self._ns * machine * math.exp(self._target.noise * self._rng.standard_normal())
        if self._target.real_time:
            time.sleep(ns / 1e9)
        return ns

    def profile(self, arguments: Sequence[Any], calls: int) -> dict[str, float]:  # noqa: ARG002
        return {}
