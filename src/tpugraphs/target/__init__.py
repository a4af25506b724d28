"""Compilers on devices, behind one contract, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tpugraphs.errors import BadRequest
from tpugraphs.target.contract import Executable, Job, Target

if TYPE_CHECKING:
    from tpugraphs.space.forms import Form

__all__ = ["TARGETS", "Executable", "Job", "Target", "target_named"]

TARGETS = ("xla:cpu", "xla:gpu", "xla:tpu", "iree:llvm-cpu", "simulated")


def target_named(name: str, forms: Mapping[str, Form] | None = None) -> Target:
    """The target behind a name; what it needs is imported only now. `forms` are those that its configs may name."""
    maker, _, backend = name.partition(":")
    if maker == "simulated":
        from tpugraphs.target.simulated import SimulatedTarget

        return SimulatedTarget.of(name)
    if name in TARGETS:
        from tpugraphs.space.forms import FORMS

        if maker == "iree":
            from tpugraphs.target.iree import IreeTarget

            return IreeTarget(backend, FORMS if forms is None else forms)
        from tpugraphs.target.xla import XlaTarget

        return XlaTarget(backend, FORMS if forms is None else forms)
    raise BadRequest(f"{name}: no such target; expected {', '.join(TARGETS[:-1])}")
