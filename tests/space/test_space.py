"""Forms compute what the operation computes; configs are canonical; knobs refuse what they do not know."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.kit.programs import CHANNELS, SHIFTED, outputs, small_program
from tpugraphs.errors import BadRequest
from tpugraphs.program import Program, capture_callable
from tpugraphs.space import Config
from tpugraphs.space.flags import OPTIONS, compiler_options
from tpugraphs.space.form import forms_of
from tpugraphs.space.product import space_of

ONE_OPTION = {"fusion_library": ("off",)}


def convolution(
    spatial: tuple[int, ...],
    window: tuple[int, ...],
    strides: tuple[int, ...],
    padding: list[tuple[int, int]],
    **options: Any,
) -> Program:
    """One convolution, depthwise unless told otherwise."""
    letters = "DHW"[-len(spatial) :]
    numbers = options.pop("numbers", (f"N{letters}C", f"{letters}IO", f"N{letters}C"))
    channels = 6
    options = {"feature_group_count": channels, **options}
    rng = np.random.default_rng(0)
    inputs = channels // int(str(options["feature_group_count"]))
    x = rng.normal(size=(2, *spatial, channels)).astype(np.float32)
    w = rng.normal(size=(*window, inputs, channels)).astype(np.float32)
    return capture_callable(
        lambda x, w: jax.lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=numbers, **options),
        x,
        w,  # pyright: ignore
    )


@settings(max_examples=15)
@given(data=st.data())
def test_the_shifted_form_computes_the_convolution(data: st.DataObject) -> None:
    """Any rank from 1 to 3, window, stride and padding, negative padding included."""
    rank = data.draw(st.integers(1, 3))
    spatial = tuple(data.draw(st.integers(4, 7)) for _ in range(rank))
    window = tuple(data.draw(st.integers(1, 3)) for _ in range(rank))
    strides = tuple(data.draw(st.integers(1, 3)) for _ in range(rank))
    padding = [(data.draw(st.integers(-1, 2)), data.draw(st.integers(-1, 2))) for _ in range(rank)]
    assume(all(length + sum(pads) >= size for length, pads, size in zip(spatial, padding, window, strict=True)))
    program = convolution(spatial, window, strides, padding)
    assert len(program.nodes) == 1
    default, shifted = (outputs(program, config) for config in (Config(), Config.of({"node0.form": "shifted"})))
    np.testing.assert_allclose(shifted["output 0"], default["output 0"], rtol=1e-5, atol=1e-5)


def test_where_a_form_does_not_hold_it_is_refused() -> None:
    program = convolution((6, 6), (3, 3), (1, 1), [(1, 1), (1, 1)], feature_group_count=1)
    assert "shifted" not in forms_of(program.text)["tpugraphs.node0"]
    with pytest.raises(BadRequest, match=r"tpugraphs.node0: cannot be written as shifted multiply-adds"):
        outputs(program, Config.of({"node0.form": "shifted"}))
    with pytest.raises(BadRequest, match=r"tpugraphs.node0: no such form as nobody; expected one of shifted, dots, "):
        outputs(program, Config.of({"node0.form": "nobody"}))


def test_a_convolution_without_output_has_no_other_form() -> None:
    """Padding may take so much away that the window fits nowhere."""
    program = convolution((4, 4), (3, 3), (1, 1), [(-1, -1), (0, 0)])
    assert forms_of(program.text) == {"tpugraphs.node0": ()}


def test_the_space_of_a_program() -> None:
    space = space_of(small_program(), options=ONE_OPTION, forms=SHIFTED)
    assert [(knob.name, knob.kind, knob.place, knob.choices) for knob in space.knobs] == [
        ("node0.form", "form", "tpugraphs.node0", ("default", "shifted")),
        ("node2.form", "form", "tpugraphs.node2", ("default", "shifted")),
        ("fusion_library", "flag", "program", ("on", "off")),
    ]
    assert space.size == 8
    assert str(CHANNELS) in space.knobs[0].label


def test_configs_are_canonical() -> None:
    space = space_of(small_program(), options=ONE_OPTION)
    one = space.config({"fusion_library": "off", "node0.form": "shifted", "node2.form": "default"})
    other = space.config({"node0.form": "shifted", "fusion_library": "off"})
    assert one == other
    assert one.digest == other.digest
    assert one.as_dict() == {"fusion_library": "off", "node0.form": "shifted"}
    assert space.config({"fusion_library": "on"}).is_default
    assert one.digest != Config().digest


@pytest.mark.parametrize(
    ("choices", "says"),
    [({"nobody": "x"}, "nobody: no such knob"), ({"fusion_library": "x"}, "expected one of on, off, found x")],
)
def test_what_a_space_refuses(choices: dict[str, str], says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        space_of(small_program(), options=ONE_OPTION).config(choices)


def test_a_node_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"tpugraphs.node77: no such node"):
        outputs(small_program(), Config.of({"node77.form": "shifted"}))


def test_options_become_compiler_options() -> None:
    assert compiler_options({}, "cpu") == {}
    assert list(compiler_options({"fusion_library": "off"}, "cpu")) == ["xla_cpu_experimental_ynn_fusion_type"]
    for options in OPTIONS.values():
        for option in options:
            assert not next(iter(option.settings.values())), "the first choice is the compiler's own"
