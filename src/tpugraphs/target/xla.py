"""XLA through JAX's client: building, running, and time per operation. Tried on the CPU; others are the same code."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src import compiler
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding
from jaxlib import xla_client

from tpugraphs.program import Program, mlir
from tpugraphs.space import Config
from tpugraphs.space.form import FORMS, Form
from tpugraphs.space.knobs import SPACES
from tpugraphs.target.attribution import shares_by_operation
from tpugraphs.target.contract import OTHER, Job
from tpugraphs.target.preparing import prepare_job

PLATFORMS = ("cpu", "gpu", "tpu")


class XlaTarget:
    """XLA on one of JAX's platforms."""

    def __init__(self, platform: str = "cpu", forms: Mapping[str, Form] = FORMS) -> None:
        self.backend, self._forms = platform, forms

    @property
    def name(self) -> str:
        return f"xla:{self.backend}"

    @property
    def spaces(self) -> tuple[str, ...]:
        return SPACES

    def prepare(self, program: Program, config: Config, probe: Collection[str] | None = None) -> Job:
        return prepare_job(
            program,
            config,
            probe,
            backend=self.backend,
            forms=self._forms,
            spaces=self.spaces,
            write=mlir.to_bytecode,
        )

    def build(self, module: bytes | str, options: Mapping[str, str]) -> XlaExecutable:
        device = self._device()
        settings = compiler.get_compile_options(num_replicas=1, num_partitions=1, env_options_overrides=dict(options))
        return XlaExecutable(device.client.compile_and_load(module, xla_client.DeviceList((device,)), settings))

    def place(self, value: Any, layout: tuple[int, ...] | None = None) -> Any:
        device = self._device()
        if layout is None:
            return jax.device_put(value, device)
        format_ = Format(Layout(layout[::-1]), SingleDeviceSharding(device))  # JAX counts major to minor
        return jax.device_put(value, format_)

    def _device(self) -> Any:
        return jax.devices(self.backend)[0]


class XlaExecutable:
    """A compiled program. The runtime takes any buffer for an argument: its shape and layout are the caller's care."""

    def __init__(self, loaded: Any) -> None:
        self._loaded = loaded

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """Device arrays; returns when the results are there."""
        results = self._loaded.execute(arguments)
        for result in results:
            result.block_until_ready()
        return results

    def __call__(self, arguments: Sequence[Any]) -> list[np.ndarray]:
        return [np.asarray(result) for result in self.run(arguments)]

    def sample_ns(self, arguments: Sequence[Any], calls: int) -> float:
        start = time.perf_counter_ns()
        for _ in range(calls):
            self.run(arguments)
        return time.perf_counter_ns() - start

    @property
    def hlo(self) -> str:
        """The optimised program as text."""
        return self._loaded.hlo_modules()[0].to_string()

    @property
    def identity(self) -> str:
        return hashlib.sha256(self.hlo.encode()).hexdigest()[:16]

    def profile(self, arguments: Sequence[Any], calls: int) -> dict[str, float]:
        """ns per call by node tag, and `other` for operations that belong to no node.

        What the compiler fused from several nodes is shared among them by the number of their parts in it.
        """
        shares = shares_by_operation(self.hlo)
        by_tag: dict[str, float] = {}
        for operation, ns in self.operations(arguments, calls).items():
            for tag, share in shares.get(operation, {OTHER: 1.0}).items():
                by_tag[tag] = by_tag.get(tag, 0.0) + share * ns
        return by_tag

    def operations(self, arguments: Sequence[Any], calls: int) -> dict[str, float]:
        """ns per call by the compiled program's instructions; a loop's are those that its body does not account for."""
        with tempfile.TemporaryDirectory(prefix="tpugraphs-profile-") as folder:
            with jax.profiler.trace(folder, profiler_options=jax.profiler.ProfileOptions()):
                for _ in range(calls):
                    self.run(arguments)
            [path] = Path(folder).rglob("*.xplane.pb")
            spent = _by_operation(jax.profiler.ProfileData.from_file(str(path)))
        return {operation: ns / calls for operation, ns in spent.items()}


def _by_operation(data: Any) -> dict[str, float]:
    spent: dict[str, float] = {}
    for plane in data.planes:
        for line in plane.lines:
            events = ((dict(event.stats).get("hlo_op"), event.start_ns, event.duration_ns) for event in line.events)
            for operation, ns in own_times((str(name), start, ns) for name, start, ns in events if name is not None):
                spent[operation] = spent.get(operation, 0.0) + ns
    return spent


def own_times(events: Iterable[tuple[str, float, float]]) -> Iterator[tuple[str, float]]:
    """Of (name, start, duration) on one thread: each event's duration without the events inside it."""
    around: list[list[Any]] = []  # name, end, own time
    for name, start, ns in sorted(events, key=lambda event: (event[1], -event[2])):
        while around and around[-1][1] <= start:
            yield around[-1][0], around.pop()[2]
        if around:
            around[-1][2] -= ns
        around.append([name, start + ns, ns])
    while around:
        yield around[-1][0], around.pop()[2]
