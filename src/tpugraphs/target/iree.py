"""IREE on the CPU: building, running and timing whole programs. A further backend is a row of `BACKENDS`."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from tpugraphs.errors import BadRequest
from tpugraphs.program import Program, mlir
from tpugraphs.space import Config
from tpugraphs.space.form import FORMS, Form
from tpugraphs.space.knobs import FORM, TILE
from tpugraphs.space.tile import parse_tiles
from tpugraphs.target.contract import TILES, Job
from tpugraphs.target.iree_compiler import configured, finished
from tpugraphs.target.iree_kernels import kernels_of, retiled
from tpugraphs.target.iree_profile import kernel_times
from tpugraphs.target.preparing import prepare_job
from tpugraphs.types import Kernel


@dataclass(frozen=True, slots=True)
class Backend:
    """A compiler backend of IREE and the device that runs what it makes."""

    flags: tuple[str, ...]
    device: str


BACKENDS = {
    "llvm-cpu": Backend(
        (
            "--iree-input-type=stablehlo",
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            "--iree-llvmcpu-target-cpu=host",
        ),
        "local-task",
    )
}
DEFAULT_OPTIONS = {"--iree-opt-level": "O3"}
"""What is called IREE's default: its own without any option is O0."""


class IreeTarget:
    """IREE with one of its backends."""

    def __init__(self, backend: str = "llvm-cpu", forms: Mapping[str, Form] = FORMS) -> None:
        if any(find_spec(name) is None for name in ("iree", "iree.compiler", "iree.runtime")):
            raise BadRequest("IREE is not installed; install it with: pip install 'tpugraphs[iree]'")
        self.backend, self._forms = backend, forms

    @property
    def name(self) -> str:
        return f"iree:{self.backend}"

    @property
    def spaces(self) -> tuple[str, ...]:
        return (FORM, "flags", TILE)

    def prepare(self, program: Program, config: Config, probe: Collection[str] | None = None) -> Job:
        job = prepare_job(
            program,
            config,
            probe,
            backend=self.backend,
            forms=self._forms,
            spaces=self.spaces,
            write=_write,
        )
        return replace(job, options={**DEFAULT_OPTIONS, **job.options})

    def build(self, module: bytes | str, options: Mapping[str, str]) -> IreeExecutable:
        text = module.encode() if isinstance(module, str) else module
        own = {name: value for name, value in options.items() if name != TILES}
        flags = (*BACKENDS[self.backend].flags, *(f"{name}={value}" for name, value in own.items()))
        kernels = configured(text, flags)
        if TILES in options:
            chosen = json.loads(options[TILES])
            kernels = retiled(kernels, {digest: parse_tiles(tiles) for digest, tiles in chosen.items()})
        return IreeExecutable(finished(kernels, flags), kernels, _device(BACKENDS[self.backend].device))

    def place(self, value: Any, layout: tuple[int, ...] | None = None) -> Any:
        """On the device; IREE's arguments are row-major."""
        if layout is not None:
            raise BadRequest(f"{self.name}: takes arguments row-major")
        import iree.runtime as rt

        device = _device(BACKENDS[self.backend].device).device
        return rt.asdevicearray(device, value, implicit_host_transfer=True)


@dataclass(frozen=True, slots=True)
class _Device:
    name: str
    instance: Any
    device: Any
    hal: Any


@cache
def _device(name: str) -> _Device:
    import iree.runtime as rt

    instance, device = rt.VmInstance(), rt.get_device(name)
    return _Device(name, instance, device, rt.create_hal_module(instance, device))


class IreeExecutable:
    """A compiled program, loaded."""

    def __init__(self, module: bytes, kernels: bytes, device: _Device) -> None:
        import iree.runtime as rt

        self._module, self._configured, self._device = module, kernels, device
        loaded = rt.VmModule.copy_buffer(device.instance, module)
        self._context = rt.VmContext(device.instance, modules=[device.hal, loaded])
        self._main: Any = loaded.lookup_function("main")
        self._given: tuple[Sequence[Any], Any] | None = None

    @property
    def identity(self) -> str:
        return hashlib.sha256(self._module).hexdigest()[:16]

    def __call__(self, arguments: Sequence[Any]) -> list[np.ndarray]:
        import iree.runtime as rt

        results = rt.VmVariantList(1)
        self._context.invoke(self._main, self._listed(arguments), results)
        return [self._host(results, index) for index in range(len(results))]

    run = __call__

    def sample_ns(self, arguments: Sequence[Any], calls: int) -> float:
        import iree.runtime as rt

        given, invoke, main = self._listed(arguments), self._context.invoke, self._main
        start = time.perf_counter_ns()
        for _ in range(calls):
            invoke(main, given, rt.VmVariantList(1))
        return time.perf_counter_ns() - start

    def profile(self, arguments: Sequence[Any], calls: int) -> dict[str, float]:
        """A kernel that is run in several places takes the same time in each."""
        times = self.kernel_times(arguments, calls)
        spent: dict[str, float] = {}
        for kernel in self.kernels():
            for tag in kernel.tags:
                spent[tag] = spent.get(tag, 0.0) + times.get(kernel.name, 0.0) / len(kernel.tags)
        return spent

    def kernels(self) -> list[Kernel]:
        return kernels_of(self._configured)

    def kernel_times(self, arguments: Sequence[Any], calls: int) -> dict[str, float]:
        return kernel_times(self._module, self._device.name, [np.asarray(one) for one in arguments], calls)

    def _listed(self, arguments: Sequence[Any]) -> Any:
        """The arguments as the runtime takes them, made once for the same arguments."""
        import iree.runtime as rt

        if self._given is None or self._given[0] is not arguments:
            given = rt.VmVariantList(len(arguments))
            for argument in arguments:
                given.push_ref(argument._buffer_view)
            self._given = (arguments, given)
        return self._given[1]

    def _host(self, results: Any, index: int) -> np.ndarray:
        import iree.runtime as rt

        view = results.get_as_object(index, rt.HalBufferView)
        return np.array(rt.DeviceArray(self._device.device, view, implicit_host_transfer=True).to_host())


def _write(module: Any) -> bytes:
    return mlir.to_text(module).encode()
