"""Layouts, forms, flags and their product keep what a space promises."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.spaces import CHECKS
from tests.kit.studies import small_captured, small_space
from tpugraphs.errors import BadRequest
from tpugraphs.space import Config, Space
from tpugraphs.space.knobs import product
from tpugraphs.space.product import SPACES, apply, spaces_named

NAMES = (*SPACES, "joint")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(check: Callable[[Space], None], name: str) -> None:
    check(small_space((name,)))


def test_the_joint_space_is_the_product_of_all() -> None:
    parts = [small_space((name,)) for name in SPACES]
    joint = small_space(("joint",))
    assert joint == product(parts) == small_space(SPACES)
    assert joint.size == parts[0].size * parts[1].size * parts[2].size
    assert {knob.kind for knob in joint.knobs} == {"layout", "form", "flag"}


def test_spaces_have_one_order_whatever_the_order_they_are_named_in() -> None:
    assert spaces_named("flags, layout") == spaces_named("layout,flags") == ("layout", "flags")
    assert spaces_named("joint") == spaces_named("form,joint") == SPACES
    assert small_space(("flags", "layout")) == small_space(("layout", "flags"))


@pytest.mark.parametrize(
    ("text", "says"), [("tile", "tile: no such space; expected layout, form, flags, joint"), ("", "no space named")]
)
def test_a_space_that_is_not_there_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        spaces_named(text)


def test_a_config_of_another_program_is_refused_where_it_is_applied() -> None:
    program = small_captured()[0]
    for changes, says in (
        ({"node77.output": "{1,0}"}, "tpugraphs.node77: no such node"),
        ({"node77.form": "shifted"}, "tpugraphs.node77: no such node"),
        ({"node0.form": "shifted"}, "tpugraphs.node0: cannot be written as shifted multiply-adds"),
        ({"input9.layout": "{1,0}"}, "input9: no such input"),
        ({"node3.output": "{2,1,0}"}, "no layout of rank 2"),
        ({"node2.kernel": "{1,0}"}, "tpugraphs.node2: has no kernel"),
        ({"no_such_option": "on"}, "no_such_option"),
    ):
        with pytest.raises(BadRequest, match=says):
            apply(program, Config.of(changes))
