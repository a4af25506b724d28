"""Every target keeps what a target promises."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest

from tests.kit.studies import fate_of, small_captured, small_space
from tests.kit.targets import CHECKS, Case, built
from tpugraphs.errors import BadRequest
from tpugraphs.space import Config
from tpugraphs.space.product import space_of
from tpugraphs.target import TARGETS, target_named
from tpugraphs.target.simulated import SimulatedTarget

LAID_OUT = {"node0.output": "{0,1,2,3}", "input2.layout": "{0,1}"}
REWRITTEN = {"node1.form": "shifted", "fusion_library": "off"}
SEVERE = SimulatedTarget(noise=0.01, compile_error=0.5)


def case(name: str) -> Case:
    space = small_space()
    configs = (space.config(LAID_OUT), space.config(REWRITTEN))
    if name == "xla:cpu":
        return Case(target_named(name), small_captured()[0], configs)
    if name == "iree:llvm-cpu":
        changed = ({"node1.form": "shifted"}, {"node0.form": "patches", "data_tiling": "on"})
        program = small_captured()[0]
        own = space_of(program, ("form", "flags"), backend="llvm-cpu")
        return Case(target_named(name), program, (own.config(changed[0]), own.config(changed[1])), lays_out=False)
    if name == "simulated":
        return Case(SimulatedTarget(), small_captured()[0], configs)
    near = list(islice(space.enumerate(), 1, 50))
    fine = [config for config in near if fate_of(SEVERE, config) is None]
    broken = next(config for config in near if fate_of(SEVERE, config) == "compile_error")
    return Case(SEVERE, small_captured()[0], (fine[0], fine[1]), broken)


@pytest.mark.parametrize("name", ["xla:cpu", "iree:llvm-cpu", "simulated", SEVERE.name])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(check: Callable[[Case], None], name: str) -> None:
    check(case(name))


def test_there_is_a_profile_on_the_cpu() -> None:
    made = case("xla:cpu")
    for config in (Config(), *made.configs):
        executable, arguments = built(made, config)
        executable(arguments)
        spent = executable.profile(arguments, 3)
        assert {node.tag for node in made.program.nodes if node.computes} <= spent.keys()
        assert all(ns > 0 for ns in spent.values())


def test_forms_and_results_changing_options_are_probed_and_layouts_are_not() -> None:
    """Layouts only move values: for them the program's own results will do."""
    made = case("xla:cpu")
    laid_out, rewritten = (made.target.prepare(made.program, config) for config in made.configs)
    assert laid_out.probing is None
    assert rewritten.probing is not None
    assert "tpugraphs.node1" in rewritten.probes
    asked = made.target.prepare(made.program, Config(), ["tpugraphs.node0"])
    assert "tpugraphs.node0" in asked.probes


@pytest.mark.parametrize("name", ["tensorrt", "xla", "xla:", "simulatedx"])
def test_a_target_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(BadRequest, match=f"^{name}: no such target; expected {', '.join(TARGETS[:-1])}$"):
        target_named(name)
