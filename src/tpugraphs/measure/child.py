"""The worker's side: compiles, checks, times and profiles what it is asked to."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tpugraphs.child import limit_memory, serve
from tpugraphs.measure import check, timing
from tpugraphs.target import Executable, target_named
from tpugraphs.target.contract import TILES, Kernels

BASELINE = "baseline"
_NUDGES = 3
"""Where a rounding turns something over, as a maximum or a mask, one try may miss it."""
Reply = dict[str, Any]


@dataclass(slots=True)
class _Built:
    executable: Executable
    layouts: dict[int, tuple[int, ...]]
    probing: Executable | None
    probes: list[str]


@dataclass
class Child:
    """What one worker process holds: inputs on the device, executables by name, the default's outputs."""

    _built: dict[str, _Built] = field(default_factory=dict)
    _expected: dict[str, np.ndarray] = field(default_factory=dict)
    _strayed: dict[str, float] | None = None

    def load(self, target: str, inputs: str, dtypes: list[str], memory: int | None) -> Reply:
        """Takes the program's inputs from an npz file."""
        self._target = target_named(target)
        with np.load(inputs, allow_pickle=False) as file:
            arrays = [check.as_dtype(file[f"x{index}"], dtype) for index, dtype in enumerate(dtypes)]
        self._inputs = [self._target.place(array, None) for array in arrays]
        self._laid_out: dict[tuple[int, tuple[int, ...]], Any] = {}
        self._arrays = arrays
        if memory is not None:
            limit_memory(memory)
        return {}

    def build(self, jobs: list[dict[str, Any]]) -> Reply:
        """Compiles all of them on all cores; what the compiler says of one is that one's answer."""
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            return {"built": list(pool.map(self._build, jobs))}

    def _build(self, job: dict[str, Any]) -> Reply:
        start = time.perf_counter()
        try:
            with ThreadPoolExecutor(max_workers=1) as beside:
                waiting = None if job["probing"] is None else beside.submit(self._build_probing, job)
                executable = self._target.build(Path(job["module"]).read_bytes(), job["options"])
                compile_s = time.perf_counter() - start
                probing = None if waiting is None else waiting.result()
        except Exception as error:  # every failure of a compiler is data
            return {"error": _in_one_line(error)}
        layouts = {int(index): tuple(layout) for index, layout in job["input_layouts"].items()}
        self._built[job["name"]] = _Built(executable, layouts, probing, job["probes"])
        same = json.dumps([executable.identity, sorted(job["options"].items()), sorted(layouts.items())])
        return {"compile_s": compile_s, "identity": hashlib.sha256(same.encode()).hexdigest()[:16]}

    def _build_probing(self, job: dict[str, Any]) -> Executable:
        """Its kernels are others, and cut as the compiler would."""
        options = {name: value for name, value in job["options"].items() if name != TILES}
        return self._target.build(Path(job["probing"]).read_bytes(), options)

    def check(self, name: str) -> Reply:
        """Runs the program itself, and the one with probes if there is one, and compares with the default's.

        Of the default, how far its results lie apart, all and its own.
        """
        built, arguments = self._built[name], self._arguments(name)
        begun = time.perf_counter()
        outputs = built.executable(arguments)
        call_s = time.perf_counter() - begun
        judged = [check.by_name(outputs, [])]
        if built.probing is not None:
            judged.append(check.by_name(built.probing(arguments), built.probes))
        if name == BASELINE:
            self._expected, self._strayed = judged[-1], None
            return {"spread": check.spread_of(judged[-1]), "own_spread": check.spread_of(judged[0])}
        built.probing = None  # it has served
        excess, where = self._deviation(judged, {})
        if excess > 1:
            excess, where = self._deviation(judged, self._firmness())
        return {"excess": excess if np.isfinite(excess) else 1e30, "where": where, "call_s": call_s}

    def _deviation(self, judged: list[dict[str, np.ndarray]], strayed: Mapping[str, float]) -> tuple[float, str]:
        return max((check.deviation(one, self._expected, strayed) for one in judged), key=lambda pair: pair[0])

    def _firmness(self) -> Mapping[str, float]:
        """How far nudged inputs move the default's results; found out when first asked."""
        if self._strayed is None:
            built, self._strayed = self._built[BASELINE], {}
            executable, probes = (built.probing, built.probes) if built.probing else (built.executable, [])
            for seed in range(_NUDGES):
                moved = [self._target.place(check.nudged(array, seed), None) for array in self._arrays]
                strayed = check.strays(check.by_name(executable(moved), probes), self._expected)
                self._strayed = {name: max(far, self._strayed.get(name, 0.0)) for name, far in strayed.items()}
        return self._strayed

    def time(self, names: list[str], rounds: int, sample_s: float, seed: int) -> Reply:
        gc.collect()
        runs = {name: self._sampler(name) for name in names}
        return {"samples": timing.interleaved(runs, rounds=rounds, sample_s=sample_s, seed=seed)}

    def profile(self, name: str, calls: int) -> Reply:
        return {"ns": self._built[name].executable.profile(self._arguments(name), calls)}

    def kernels(self, name: str, calls: int) -> Reply:
        """What the program is made of, and ns per call of each."""
        executable = self._built[name].executable
        if not isinstance(executable, Kernels):
            return {"error": f"{self._target.name} does not tell its kernels; iree:llvm-cpu does"}
        times = executable.kernel_times(self._arguments(name), calls)
        return {"kernels": [asdict(kernel) for kernel in executable.kernels()], "ns": times}

    def pin(self, cpus: list[int] | None) -> Reply:
        """Keeps this thread, which hands out the work, on these processors; the compiler's own threads go anywhere."""
        everywhere = os.sched_getaffinity(os.getppid())
        os.sched_setaffinity(0, cpus if cpus is not None else everywhere)
        return {}

    def drop(self, names: list[str]) -> Reply:
        for name in names:
            self._built.pop(name, None)
        self._laid_out.clear()
        return {"memory": _resident_bytes()}

    def _sampler(self, name: str) -> timing.Sampler:
        executable, arguments = self._built[name].executable, self._arguments(name)
        return lambda calls: executable.sample_ns(arguments, calls)

    def _arguments(self, name: str) -> list[Any]:
        """The inputs as this executable wants them laid out."""
        layouts = self._built[name].layouts
        if not layouts:
            return self._inputs
        arguments = list(self._inputs)
        for index, layout in layouts.items():
            if (index, layout) not in self._laid_out:
                self._laid_out[index, layout] = self._target.place(self._arrays[index], layout)
            arguments[index] = self._laid_out[index, layout]
        return arguments


def _in_one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


def _resident_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    child = Child()
    names = ("load", "build", "check", "time", "profile", "kernels", "pin", "drop")
    serve({name: getattr(child, name) for name in names})


if __name__ == "__main__":
    main()
