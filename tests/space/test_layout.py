"""Layouts are what was asked for in the compiled program, and never change what it computes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.studies import small_captured, small_space
from tpugraphs.measure.check import deviation
from tpugraphs.measure.inputs import spread_inputs
from tpugraphs.program import Program, capture_callable
from tpugraphs.space import Config
from tpugraphs.space.layout import COMPILER, OPERATIONS, layout_space, layouts_of
from tpugraphs.space.notation import LONGEST, parse_layout, render
from tpugraphs.space.product import apply
from tpugraphs.target.xla import XlaExecutable, XlaTarget

TARGET = XlaTarget("cpu")


def built(program: Program, changes: Mapping[str, str]) -> XlaExecutable:
    job = TARGET.prepare(program, Config.of(changes))
    return TARGET.build(job.module, job.options)


def results(program: Program, config: Config) -> dict[str, Any]:
    """What a config computes on spread inputs, arguments laid out as it wants them."""
    job = TARGET.prepare(program, config)
    inputs = spread_inputs(program.inputs, program.arguments)
    placed = [TARGET.place(value, job.input_layouts.get(index)) for index, value in enumerate(inputs)]
    return {str(index): value for index, value in enumerate(TARGET.build(job.module, job.options)(placed))}


def layouts_in(hlo: str, shape: str) -> set[str]:
    """In which layouts values of a shape lie in a compiled program."""
    return set(re.findall(rf"\w+\[{re.escape(shape)}\](\{{[\d,]+\}})", hlo))


NODES = {
    "node0.output": "2,6,5,4",
    "node0.input": "2,6,5,3",
    "node0.kernel": "3,3,3,4",
    "node2.output": "2,120",
    "node3.output": "2,7",
    "node3.input": "2,120",
    "node3.kernel": "120,7",
}


@pytest.mark.parametrize(("knob", "shape"), NODES.items())
def test_a_chosen_layout_is_in_the_compiled_program(knob: str, shape: str) -> None:
    program = small_captured()[0]
    rank = shape.count(",") + 1
    column_major = render(range(rank))
    default, chosen = built(program, {}).hlo, built(program, {knob: column_major}).hlo
    assert column_major not in layouts_in(default, shape)
    assert column_major in layouts_in(chosen, shape)
    assert "copy(" in chosen


@pytest.mark.parametrize("choice", ["{0,1,2,3}", "{2,3,1,0}"])
def test_weights_come_in_their_layout(choice: str) -> None:
    program = small_captured()[0]
    executable = built(program, {"input0.layout": choice})
    head = executable.hlo.splitlines()[0]
    assert f"entry_computation_layout={{(f32[3,3,3,4]{choice}, " in head.replace("(f32[3,3,1,4]", "(")
    assert apply(program, Config.of({"input0.layout": choice})).input_layouts == {0: parse_layout(choice)}


def test_a_row_major_constraint_changes_nothing_where_the_compiler_chose_it_too() -> None:
    program = small_captured()[0]
    assert built(program, {"node3.output": "{1,0}"}).identity == built(program, {}).identity
    assert built(program, {"node3.output": "{0,1}"}).identity != built(program, {}).identity


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("form", ["default", "shifted"])
def test_random_layouts_compute_what_the_default_computes(form: str, seed: int) -> None:
    """Of every node, operand and weight at once; with the depthwise convolution in another form too."""
    program, space = small_captured()[0], small_space(("layout", "form"))
    rng = np.random.default_rng(seed)
    drawn = small_space(("layout",)).uniform(rng).as_dict()
    config = space.config({**drawn, "node1.form": form})
    worst, where = deviation(results(program, config), results(program, Config()))
    assert worst <= 1, where


@pytest.mark.parametrize("tensor", ["output", "input", "kernel"])
def test_constraints_survive_the_other_form(tensor: str) -> None:
    program = small_captured()[0]
    chosen = {"node1.form": "shifted", f"node1.{tensor}": "{0,1,3,2}" if tensor == "kernel" else "{0,1,2,3}"}
    shape = "3,3,1,4" if tensor == "kernel" else "2,6,5,4"
    shifted, both = (built(program, changes).hlo for changes in ({"node1.form": "shifted"}, chosen))
    assert "feature_group_count=4" not in both
    assert chosen[f"node1.{tensor}"] not in layouts_in(shifted, shape)
    assert chosen[f"node1.{tensor}"] in layouts_in(both, shape)


def test_weights_laid_out_anew_give_the_same_results() -> None:
    program, space = small_captured()[0], small_space(("layout",))
    weights = [knob for knob in space.knobs if knob.name.startswith("input")]
    assert [knob.place for knob in weights] == ["input0", "input1", "input2"]
    default = results(program, Config())
    for knob in weights:
        config = space.config({knob.name: knob.choices[-1]})
        worst, where = deviation(results(program, config), default)
        assert worst <= 1, f"{knob.name}: {where}"


def test_which_nodes_and_tensors_have_knobs() -> None:
    space = small_space(("layout",))
    assert {knob.name for knob in space.knobs} == {
        *(f"node{node}.{tensor}" for node in (0, 1, 3) for tensor in ("output", "input", "kernel")),
        *(f"node2.{tensor}" for tensor in ("output", "input")),
        *(f"input{index}.layout" for index in range(3)),
    }
    for knob in space.knobs:
        assert knob.default == COMPILER
        assert len(set(knob.choices)) == len(knob.choices) > 2


def test_transposes_have_knobs_when_asked() -> None:
    x = np.ones((3, 4, 5), np.float32)
    program = capture_callable(lambda x: jax.numpy.cumsum(x.transpose(2, 0, 1), axis=0), x)
    [node] = [node for node in program.nodes if node.operation == "transpose"]
    assert layout_space(program).knobs == ()
    knobs = layout_space(program, (*OPERATIONS, "transpose")).knobs
    assert [(knob.place, knob.name.rpartition(".")[2]) for knob in knobs] == [(node.tag, "output"), (node.tag, "input")]
    config = Config.of({knobs[0].name: "{0,1,2}"})
    np.testing.assert_array_equal(results(program, config)["0"], results(program, Config())["0"])


@given(shape=st.lists(st.sampled_from([1, 1, 2, 3, 7]), min_size=0, max_size=5))
def test_layouts_differ_in_memory_and_are_all(shape: Sequence[int]) -> None:
    layouts = layouts_of(shape)
    assert layouts[0] == tuple(reversed(range(len(shape))))
    assert all(sorted(layout) == list(range(len(shape))) for layout in layouts)
    long = [dim for dim, length in enumerate(shape) if length != 1]
    in_memory = [tuple(dim for dim in layout if dim in long) for layout in layouts]
    assert sorted(in_memory) == sorted(itertools.permutations(long)), "each order of the long dimensions once"


def test_what_has_one_layout_or_too_many_dimensions_has_no_knob() -> None:
    assert layouts_of((1, 7, 1)) == [(2, 1, 0)]
    assert layouts_of((2,) * (LONGEST + 1)) == []
    x = np.ones((1, 8), np.float32)
    program = capture_callable(lambda w, x: x @ w, np.ones((8, 3), np.float32), x)
    assert [knob.name for knob in layout_space(program).knobs] == ["node0.kernel", "input0.layout"]
