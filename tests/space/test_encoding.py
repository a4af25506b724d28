"""Configs become columns and layouts come back from them; an encoding is plain data."""

from __future__ import annotations

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.kit.studies import JOINT, small_captured, small_space
from tpugraphs.errors import BadRequest
from tpugraphs.graph import graph_of_hlo
from tpugraphs.graph.columns import LAYOUT_CONFIG_FEATURES
from tpugraphs.program import capture_callable, xla
from tpugraphs.space import Config
from tpugraphs.space.encoding import COMPILER_DECIDES, Encoding, decode_layouts
from tpugraphs.space.flags import flag_columns
from tpugraphs.space.form import FORMS
from tpugraphs.space.notation import complete, parse_layout, render
from tpugraphs.space.product import encoding_of, space_of

OUTPUT, INPUT, KERNEL = 0, 6, 12


def encoding(spaces: tuple[str, ...] = JOINT) -> Encoding:
    program, hlo = small_captured()
    return encoding_of(program, small_space(spaces), hlo, spaces)


def row_of(made: Encoding, knob: str) -> int:
    [row] = {row for row, _ in made.settings[knob].values()}
    return row


def test_layouts_have_the_official_columns() -> None:
    assert encoding(("layout",)).columns == LAYOUT_CONFIG_FEATURES
    assert len(LAYOUT_CONFIG_FEATURES) == 18


def test_the_joint_columns_are_the_blocks_in_order() -> None:
    made = encoding()
    assert made.columns == (*LAYOUT_CONFIG_FEATURES, *(f"form.{name}" for name in FORMS), *flag_columns("cpu"))
    assert encoding(("form", "flags")).columns == made.columns[len(LAYOUT_CONFIG_FEATURES) :]


def test_rows_are_the_nodes_that_configs_talk_about() -> None:
    made = encoding()
    graph = graph_of_hlo(small_captured()[1], "net")
    assert list(made.node_ids) == sorted(set(made.node_ids))
    assert max(made.node_ids) < len(graph.node_opcode)
    opcodes = {knob: graph.node_opcode[made.node_ids[row_of(made, knob)]] for knob in made.settings}
    assert opcodes["node0.output"] == opcodes["node1.form"], "both are convolutions"
    assert opcodes["input0.layout"] == opcodes["input2.layout"], "both are parameters"
    assert len({opcodes[knob] for knob in ("node0.output", "node2.output", "node3.output", "input0.layout")}) == 4


def test_the_compiler_decides_where_nothing_is_chosen() -> None:
    made = encoding()
    [default] = made.encode([Config()])
    assert default.shape == (len(made.node_ids), len(made.columns))
    assert (default[:, :18] == COMPILER_DECIDES).all()
    assert (default[:, 18:] == 0).all()


@pytest.mark.parametrize(
    ("knob", "block"),
    [
        ("node0.output", OUTPUT),
        ("node0.input", INPUT),
        ("node0.kernel", KERNEL),
        ("node3.kernel", KERNEL),
        ("input0.layout", OUTPUT),
    ],
)
def test_a_layout_is_the_whole_permutation_in_its_tensors_block(knob: str, block: int) -> None:
    made, space = encoding(), small_space()
    choice = space.by_name[knob].choices[-1]
    config = space.config({knob: choice})
    [default, found] = made.encode([Config(), config])
    expected = default.copy()
    layout = parse_layout(choice)
    expected[row_of(made, knob), block : block + len(layout)] = layout
    np.testing.assert_array_equal(found, expected)


def test_forms_and_options_set_their_own_columns() -> None:
    made, space = encoding(), small_space()
    flag = next(knob for knob in space.knobs if knob.kind == "flag")
    [default, found] = made.encode([Config(), space.config({"node1.form": "shifted", flag.name: flag.choices[-1]})])
    changed = {(row, made.columns[column]) for row, column in np.argwhere(found != default).tolist()}
    columns = made.settings[flag.name][flag.choices[-1]][1]
    assert (row_of(made, "node1.form"), "form.shifted") in changed
    assert changed == {
        (row_of(made, "node1.form"), "form.shifted"),
        *((row_of(made, flag.name), made.columns[column]) for column in columns),
    }


def test_different_configs_have_different_features() -> None:
    made, space = encoding(), small_space()
    rng = np.random.default_rng(0)
    configs = list({space.near(Config(), rng, 1) for _ in range(300)} | {space.uniform(rng) for _ in range(100)})
    rows = made.encode(configs).reshape(len(configs), -1)
    explicit = {row.tobytes() for row in rows}
    assert len(explicit) == len(configs)


def test_it_is_the_same_after_json() -> None:
    made, space = encoding(), small_space()
    again = Encoding.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made
    rng = np.random.default_rng(0)
    configs = [space.uniform(rng) for _ in range(20)]
    np.testing.assert_array_equal(again.encode(configs), made.encode(configs))


@pytest.mark.parametrize("changes", [{"node3.output": "{5,4}"}, {"nobody": "x"}])
def test_a_choice_it_does_not_know_is_refused(changes: dict[str, str]) -> None:
    [(name, choice)] = changes.items()
    with pytest.raises(BadRequest, match=re.escape(f"its space knows no {name} of {choice}")):
        encoding().encode([Config.of(changes)])


def test_layouts_come_back_from_their_columns() -> None:
    made, space = encoding(("layout",)), small_space(("layout",))
    rng = np.random.default_rng(0)
    configs = [Config(), *(space.uniform(rng) for _ in range(50)), *(space.near(Config(), rng, 1) for _ in range(50))]
    in_order = sorted(space.knobs, key=lambda knob: row_of(made, knob.name))
    for config, rows in zip(configs, made.encode(configs), strict=True):
        assert decode_layouts(rows, in_order) == config


def test_two_minor_dimensions_are_completed_by_the_row_major_rule() -> None:
    """As the release writes those of convolutions and dots."""
    knobs = [knob for knob in small_space(("layout",)).knobs if knob.place == "tpugraphs.node0"]
    assert len(knobs) == 3
    rows = np.full((1, 18), COMPILER_DECIDES, np.float32)
    rows[0, OUTPUT : OUTPUT + 2] = (0, 3)
    rows[0, KERNEL : KERNEL + 2] = (2, 1)
    assert decode_layouts(rows, knobs).as_dict() == {"node0.output": "{0,3,2,1}", "node0.kernel": "{2,1,3,0}"}
    assert complete((0, 3), 4) == (0, 3, 2, 1)
    assert complete((), 3) == (2, 1, 0)


def test_dimensions_of_length_1_may_stand_anywhere() -> None:
    knobs = [knob for knob in small_space(("layout",)).knobs if knob.name == "node1.kernel"]
    rows = np.full((1, 18), COMPILER_DECIDES, np.float32)
    for layout in ((2, 0, 1, 3), (0, 2, 1, 3), (0, 1, 2, 3), (0, 1, 3, 2)):
        rows[0, KERNEL : KERNEL + 4] = layout
        assert decode_layouts(rows, knobs).as_dict() == {"node1.kernel": render((0, 1, 3, 2))}
    rows[0, KERNEL : KERNEL + 4] = (2, 3, 1, 0)
    assert decode_layouts(rows, knobs).as_dict() == {"node1.kernel": "{3,2,1,0}"}


@pytest.mark.parametrize(
    ("layout", "says"), [((1, 1), "expected distinct dimensions from 0 to 1"), ((0, 4), "from 0 to 1")]
)
def test_columns_that_are_no_layout_are_refused(layout: tuple[int, ...], says: str) -> None:
    knobs = [knob for knob in small_space(("layout",)).knobs if knob.name == "node3.output"]
    rows = np.full((1, 18), COMPILER_DECIDES, np.float32)
    rows[0, : len(layout)] = layout
    with pytest.raises(BadRequest, match=says):
        decode_layouts(rows, knobs)
    with pytest.raises(BadRequest, match=r"expected shape \(1, 18\), found \(2, 18\)"):
        decode_layouts(np.full((2, 18), COMPILER_DECIDES, np.float32), knobs)


def test_every_program_has_the_same_columns() -> None:
    def reshape_alone(x: jax.Array) -> jax.Array:
        return jnp.tanh(x.reshape(2, 6))

    program = capture_callable(reshape_alone, np.ones((4, 3), np.float32))
    space = space_of(program, JOINT)
    other = encoding_of(program, space, xla.hlo_of_stablehlo(program.text), JOINT)
    assert other.columns == encoding().columns
    assert "form" not in {knob.kind for knob in space.knobs}
