"""Where a program's time goes: node by node, or kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tpugraphs.child import ChildFailed
from tpugraphs.errors import TpuGraphsError
from tpugraphs.measure.child import BASELINE
from tpugraphs.measure.session import Session
from tpugraphs.program import Program
from tpugraphs.target import Target
from tpugraphs.types import Kernel

_CALLS = 5
T = TypeVar("T")


def node_times(program: Program, target: Target) -> dict[str, float]:
    """ns a call by node tag, and `other`, in a process of its own."""
    return _of_the_default(program, target, lambda session: session.profile(BASELINE, _CALLS))


def kernel_times(program: Program, target: Target) -> tuple[list[Kernel], dict[str, float]]:
    """The kernels of the default, and ns a call by their names, in a process of its own."""
    return _of_the_default(program, target, lambda session: session.kernels(BASELINE, _CALLS))


def _of_the_default(program: Program, target: Target, ask: Callable[[Session], T]) -> T:
    try:
        with Session(program, target) as session:
            session.begin()
            return ask(session)
    except ChildFailed as error:
        raise TpuGraphsError(f"{program.name}: could not be profiled: {error}") from error
