"""What a target is: it turns (program, config) into something to build, and in a worker process builds and runs it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tpugraphs.types import Array, Kernel

if TYPE_CHECKING:
    from tpugraphs.program import Program
    from tpugraphs.space import Config


OTHER = "other"
"""In a profile, what belongs to no node."""
TILES = "tiles"


@dataclass(frozen=True, slots=True)
class Job:
    """A config of a program as its target builds it: plain data, so that it can cross to another process."""

    module: bytes
    options: Mapping[str, str]
    """Of the compiler; and under `TILES`, where kernels are to be cut in another way, which and how, as JSON."""
    input_layouts: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Minor to major, of the arguments that do not come row-major."""
    probing: bytes | None = None
    """The module that returns the results of some nodes too, where one is needed to judge the config."""
    probes: tuple[str, ...] = ()
    """The tags of those nodes."""


class Executable(Protocol):
    """A compiled program in a worker."""

    @property
    def identity(self) -> str:
        """Equal for two builds that are the same program; the options they were built with come on top of it."""
        ...

    def __call__(self, arguments: Sequence[Any]) -> list[Array]:
        """The results as numpy arrays."""
        ...

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """The results, all there: on the device where that is JAX's, else numpy arrays."""
        ...

    def sample_ns(self, arguments: Sequence[Any], calls: int) -> float:
        """How long this many calls take."""
        ...

    def profile(self, arguments: Sequence[Any], calls: int) -> dict[str, float]:
        """ns per call by node tag, and `other`; empty where the target cannot tell."""
        ...


@runtime_checkable
class Kernels(Protocol):
    """A compiled program whose kernels can be told apart: not every target's."""

    def kernels(self) -> list[Kernel]:
        """In the program's order."""
        ...

    def kernel_times(self, arguments: Sequence[Any], calls: int) -> dict[str, float]:
        """ns per call by the kernel's name, in place."""
        ...


class Target(Protocol):
    """A compiler on a device."""

    @property
    def name(self) -> str:
        """As users write it: `xla:cpu`."""
        ...

    @property
    def backend(self) -> str:
        """Whose options apply: `cpu`, `gpu`, `tpu`, `llvm-cpu`."""
        ...

    @property
    def spaces(self) -> tuple[str, ...]:
        """What can be chosen there: `layout`, `form`, `flags`, `tile`."""
        ...

    def prepare(self, program: Program, config: Config, probe: Collection[str] | None = None) -> Job:
        """In the driver: what to build. `probe` names nodes whose results are asked for whatever the config changes."""
        ...

    def build(self, module: bytes, options: Mapping[str, str]) -> Executable:
        """In the worker; raises whatever the compiler raises."""
        ...

    def place(self, value: Array, layout: tuple[int, ...] | None) -> Any:
        """In the worker: an argument on the device, in this layout (minor to major; None is row-major)."""
        ...
