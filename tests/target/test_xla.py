"""XLA builds, runs, and says which node took how long."""

from __future__ import annotations

import time

import jax
import numpy as np

from tests.kit.programs import depthwise_net, net_arguments, small_program
from tpugraphs.measure.inputs import spread_inputs
from tpugraphs.space import Config
from tpugraphs.space.product import space_of
from tpugraphs.target.attribution import shares_by_operation
from tpugraphs.target.contract import OTHER
from tpugraphs.target.xla import XlaExecutable, XlaTarget, own_times

TARGET = XlaTarget("cpu")


def test_a_built_program_computes_what_jax_computes() -> None:
    job = TARGET.prepare(small_program(), Config())
    inputs = [TARGET.place(value) for value in jax.tree.leaves(net_arguments())]
    found = TARGET.build(job.module, job.options)(inputs)
    for value, wanted in zip(found, jax.tree.leaves(jax.jit(depthwise_net)(*net_arguments())), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-6)


def test_the_profile_names_every_node_in_every_form() -> None:
    program = small_program(64)
    space = space_of(program, options={"fusion_library": ("off",)})
    inputs = [TARGET.place(value) for value in spread_inputs(program.inputs, program.arguments)]
    for config in (Config(), space.config({knob.name: knob.choices[1] for knob in space.knobs})):
        job = TARGET.prepare(program, config)
        executable = TARGET.build(job.module, job.options)
        executable(inputs)
        spent = executable.profile(inputs, calls=3)
        assert set(spent) <= {OTHER, *(node.tag for node in program.nodes)}
        assert {"tpugraphs.node0", "tpugraphs.node2"} <= set(spent)
        assert all(ns > 0 for ns in spent.values())


def test_a_sample_is_the_time_of_all_its_calls() -> None:
    class Slow:
        def execute(self, arguments: object) -> list[object]:
            time.sleep(0.001)
            return []

    assert XlaExecutable(Slow()).sample_ns([], calls=5) >= 5e6


def test_a_fusion_is_shared_by_the_nodes_it_is_made_of() -> None:
    hlo = """
%fused (a: f32[]) -> f32[] {
  %m = f32[] multiply(%a, %a), metadata={op_name="tpugraphs.node3"}
  %n = f32[] add(%m, %a), metadata={op_name="tpugraphs.node3"}
  ROOT %r = f32[] add(%n, %a), metadata={op_name="tpugraphs.node10"}
}

ENTRY %main (x: f32[]) -> f32[] {
  %plain = f32[] dot(%x, %x), metadata={op_name="tpugraphs.node1"}
  %none = f32[] add(%plain, %x)
  ROOT %f = f32[] fusion(%none), kind=kLoop, calls=%fused
}
"""
    shares = shares_by_operation(hlo)
    assert shares["f"] == {"tpugraphs.node3": 2 / 3, "tpugraphs.node10": 1 / 3}
    assert shares["plain"] == {"tpugraphs.node1": 1}
    assert "none" not in shares


def test_what_a_node_was_made_into_belongs_to_it_though_its_tag_was_lost() -> None:
    hlo = """
%library (a: f32[]) -> f32[] {
  ROOT %c = f32[] convolution(%a, %a)
}

ENTRY %main (x: f32[]) -> f32[] {
  %before = f32[] add(%x, %x)
  %full = f32[] fusion(%before), kind=kCustom, calls=%library
  %masked = f32[] select(%full, %x, %x)
  %aside = f32[] add(%full, %full)
  %summed = f32[] reduce(%masked, %x), metadata={op_name="tpugraphs.node3"}
  ROOT %lost = f32[] dot(%summed, %aside)
}
"""
    shares = shares_by_operation(hlo)
    assert shares == {name: {"tpugraphs.node3": 1.0} for name in ("full", "masked", "summed")}


def test_what_runs_inside_a_loop_is_not_counted_twice() -> None:
    events = [
        ("loop", 0.0, 100.0),
        ("dot", 10.0, 30.0),
        ("add", 40.0, 20.0),
        ("inner", 45.0, 5.0),
        ("after", 100.0, 7.0),
    ]
    assert dict(own_times(events)) == {"loop": 50.0, "dot": 30.0, "add": 15.0, "inner": 5.0, "after": 7.0}
