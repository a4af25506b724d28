"""Where a program's time goes, node by node."""

from __future__ import annotations

from tpugraphs.child import ChildFailed
from tpugraphs.errors import TpuGraphsError
from tpugraphs.measure.child import BASELINE
from tpugraphs.measure.session import Session
from tpugraphs.program import Program
from tpugraphs.target import Target

_CALLS = 5


def node_times(program: Program, target: Target) -> dict[str, float]:
    """ns a call by node tag, and `other`, in a process of its own."""
    try:
        with Session(program, target) as session:
            session.begin()
            return session.profile(BASELINE, _CALLS)
    except ChildFailed as error:
        raise TpuGraphsError(f"{program.name}: could not be profiled: {error}") from error
