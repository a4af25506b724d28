"""Compilers on devices, behind one contract, by name."""

from __future__ import annotations

from tpugraphs.errors import BadRequest
from tpugraphs.target.contract import Executable, Job, Target

__all__ = ["TARGETS", "Executable", "Job", "Target", "target_named"]

TARGETS = ("xla:cpu", "xla:gpu", "xla:tpu", "simulated")


def target_named(name: str) -> Target:
    """The target behind a name; what it needs is imported only now."""
    if name.partition(":")[0] == "simulated":
        from tpugraphs.target.simulated import SimulatedTarget

        return SimulatedTarget.of(name)
    if name in TARGETS:
        from tpugraphs.target.xla import XlaTarget

        return XlaTarget(name.removeprefix("xla:"))
    raise BadRequest(f"{name}: no such target; expected {', '.join(TARGETS[:-1])}")
