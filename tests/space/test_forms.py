"""Each form equals the original, on random shapes, strides, paddings, groups and types; and holds where it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jax import lax

from tests.kit.programs import outputs
from tpugraphs.program import Program, capture_callable
from tpugraphs.program.capture import program_of_module
from tpugraphs.space import Config
from tpugraphs.space.form import FORMS, forms_of
from tpugraphs.space.forms import convolution, dot, indexing, window
from tpugraphs.target.xla import XlaTarget

TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 3e-3, "int32": 0.0}
"""Of the largest value: sums are taken in another order, in half precision from rounded inputs."""
quick = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def assert_same(program: Program, forms: set[str]) -> set[str]:
    """Every form of every node that holds, one at a time, gives what the default gives; which were seen."""
    seen = set()
    default = outputs(program, Config())["output 0"]
    for tag, names in forms_of(program.text).items():
        for name in sorted(forms.intersection(names)):
            found = outputs(program, Config.of({f"{tag.removeprefix('tpugraphs.')}.form": name}))["output 0"]
            assert found.dtype == default.dtype
            assert found.shape == default.shape
            wanted, value = default.astype(np.float64), found.astype(np.float64)
            allowed = TOLERANCE[str(default.dtype)] * max(
                1.0, float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0))
            )
            what = f"{name} of {tag}\n{program.text}"
            np.testing.assert_allclose(value, wanted, rtol=0, atol=allowed, err_msg=what)
            seen.add(name)
    return seen


def names_of(module: Any) -> set[str]:
    return {form.name for form in module.FORMS}


def captured(function: Callable[..., Any], *arguments: Any) -> Program:
    return capture_callable(function, *arguments, name="one")


def values(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    if dtype == "int32":
        return rng.integers(-5, 5, shape).astype(np.int32)
    return np.asarray(jnp.asarray(rng.normal(size=shape), dtype))


# Convolutions ---------------------------------------------------------------------------------------------------------


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    rank = draw(st.integers(1, 3))
    small = st.integers(1, 3)
    groups = draw(st.sampled_from([1, 1, 2, 4]))
    dtype = draw(st.sampled_from(["float32", "float32", "float32", "bfloat16", "float16", "int32"]))
    channels, multiple, batch = (draw(small) for _ in range(3))
    data = [draw(st.integers(3, 7)) for _ in range(rank)]
    kernel = [draw(small) for _ in range(rank)]
    options = {
        "window_strides": [draw(small) for _ in range(rank)],
        "padding": [(draw(st.integers(-1, 2)), draw(st.integers(-1, 2))) for _ in range(rank)],
        "lhs_dilation": [draw(st.sampled_from([1, 1, 2, 3])) for _ in range(rank)],
        "rhs_dilation": [draw(st.sampled_from([1, 1, 2])) for _ in range(rank)],
    }
    grouped = draw(st.sampled_from(["feature_group_count", "batch_group_count"]))
    batch, inputs = (batch * groups, channels) if grouped == "batch_group_count" else (batch, channels * groups)
    orders = [draw(st.permutations(range(rank + 2))) for _ in range(3)]
    numbers = lax.ConvDimensionNumbers(*(tuple(order) for order in orders))

    def laid_out(value: np.ndarray, order: Any) -> np.ndarray:
        """From (batch, features, *space), or (outputs, inputs, *window), to where these dimensions stand."""
        return np.ascontiguousarray(np.transpose(value, np.argsort(order)))

    x = laid_out(values(dtype, batch, inputs, *data), orders[0])
    w = laid_out(values(dtype, multiple * groups, channels, *kernel, seed=1), orders[1])

    def function(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(x, w, dimension_numbers=numbers, **{grouped: groups}, **options)

    shape = jax.eval_shape(function, x, w).shape
    assume(0 not in shape)
    return function, (x, w)


@quick
@given(convolutions())
def test_convolutions(drawn: tuple[Callable[..., Any], tuple[Any, ...]]) -> None:
    function, arguments = drawn
    assert_same(captured(function, *arguments), names_of(convolution))


def network(x: jax.Array, w: jax.Array, *, groups: int, strides: tuple[int, int]) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=numbers, feature_group_count=groups)
    return (y * jnp.cos(y)).sum()


@pytest.mark.parametrize("groups", [1, 2, 8], ids=["full", "grouped", "depthwise"])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)], ids=str)
@pytest.mark.parametrize("argument", [0, 1], ids=["data", "kernel"])
def test_the_gradients_of_a_convolution(groups: int, strides: tuple[int, int], argument: int) -> None:
    x, w = values("float32", 2, 9, 8, 8), values("float32", 3, 3, 8 // groups, 8)
    gradient = jax.grad(lambda x, w: network(x, w, groups=groups, strides=strides), argument)
    seen = assert_same(captured(gradient, x, w), names_of(convolution))
    if argument == 1 and groups in (1, 8):
        assert "by-output" in seen, "few outputs, each of a window as large as the image"
    if argument == 0 and strides == (2, 2):
        assert "phases" in seen, "the gradient of strides is dilated"


@pytest.mark.parametrize(
    ("shape", "options", "expected"),
    [
        ((1, 1, 4, 6), {}, {"dots"}),
        ((3, 3, 4, 6), {}, {"dots", "patches"}),
        ((3, 3, 1, 4), {"feature_group_count": 4}, {"shifted", "patches", "by-group", "dense"}),
        ((3, 3, 2, 6), {"feature_group_count": 2}, {"shifted", "dots", "patches", "by-group", "dense"}),
        ((3, 3, 4, 6), {"lhs_dilation": (2, 2), "padding": [(1, 2), (1, 2)]}, {"dots", "patches", "plain", "phases"}),
        ((3, 3, 4, 6), {"padding": "SAME"}, {"dots", "patches", "plain"}),
    ],
    ids=["pointwise", "window", "depthwise", "grouped", "transposed", "padded"],
)
def test_which_forms_a_convolution_has(shape: tuple[int, ...], options: dict[str, Any], expected: set[str]) -> None:
    options = {"padding": "VALID", **options}

    def function(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(x, w, (1, 1), dimension_numbers=("NHWC", "HWIO", "NHWC"), **options)

    program = captured(function, values("float32", 1, 8, 8, 4), values("float32", *shape))
    [names] = forms_of(program.text).values()
    assert set(names) == expected


def test_a_reversed_window() -> None:
    text = """func.func @main(%x: tensor<1x6x6x4xf32>, %w: tensor<3x2x4x5xf32>) -> tensor<1x4x5x5xf32> {
      %0 = "stablehlo.convolution"(%x, %w) {batch_group_count = 1 : i64, feature_group_count = 1 : i64,
        dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>,
        padding = dense<0> : tensor<2x2xi64>, window_reversal = array<i1: true, false>,
        window_strides = array<i64: 1, 1>}
        : (tensor<1x6x6x4xf32>, tensor<3x2x4x5xf32>) -> tensor<1x4x5x5xf32>
      return %0 : tensor<1x4x5x5xf32>
    }"""
    assert assert_same(program_of_module(text, "reversed"), names_of(convolution)) == {"dots", "patches"}


# Dots -----------------------------------------------------------------------------------------------------------------


@st.composite
def dots(draw: st.DrawFn) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    dtype = draw(st.sampled_from(["float32", "float32", "bfloat16", "float16", "int32"]))
    lengths = st.lists(st.integers(1, 4), max_size=2)
    batch, left, right = draw(lengths), draw(lengths), draw(lengths)
    contract = draw(st.lists(st.sampled_from([1, 2, 4, 512]), max_size=2).filter(lambda one: one.count(512) < 2))
    orders = []
    shapes = []
    for free in (left, right):
        dims = [*(("b", i) for i in range(len(batch))), *(("c", i) for i in range(len(contract)))]
        dims += [("f", i) for i in range(len(free))]
        order = draw(st.permutations(dims))
        lengths_of = {"b": batch, "c": contract, "f": free}
        orders.append(order)
        shapes.append([lengths_of[kind][index] for kind, index in order])
    numbers = tuple(
        tuple(tuple(order.index((kind, index)) for index in range(count)) for order in orders)
        for kind, count in (("c", len(contract)), ("b", len(batch)))
    )

    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        return lax.dot_general(x, y, numbers)  # pyright: ignore[reportArgumentType]

    return function, (values(dtype, *shapes[0]), values(dtype, *shapes[1], seed=1))


@quick
@given(dots())
def test_dots(drawn: tuple[Callable[..., Any], tuple[Any, ...]]) -> None:
    function, arguments = drawn
    assert_same(captured(function, *arguments), names_of(dot))


def attention(x: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax((x @ q) @ (x @ k).T) @ (x @ v)


def test_dots_of_one_input_are_joined() -> None:
    program = captured(attention, *(values("float32", *shape) for shape in ((5, 6), (6, 7), (6, 7), (6, 4))))
    joined = [tag for tag, names in forms_of(program.text).items() if "joined" in names]
    assert len(joined) == 3
    default = outputs(program, Config())["output 0"]
    for count in range(1, 4):
        config = Config.of({f"{tag.removeprefix('tpugraphs.')}.form": "joined" for tag in joined[:count]})
        np.testing.assert_allclose(outputs(program, config)["output 0"], default, rtol=1e-5, atol=1e-5)
    laid_out = {"node0.form": "joined", "node1.form": "joined", "node0.kernel": "{0,1}", "node1.input": "{0,1}"}
    np.testing.assert_allclose(outputs(program, Config.of(laid_out))["output 0"], default, rtol=1e-5, atol=1e-5)


# Windows --------------------------------------------------------------------------------------------------------------


@st.composite
def pools(draw: st.DrawFn) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    rank = draw(st.integers(1, 4))
    dtype = draw(st.sampled_from(["float32", "float32", "bfloat16", "int32"]))
    shape = [draw(st.integers(2, 6)) for _ in range(rank)]
    sizes = [draw(st.integers(1, 3)) for _ in range(rank)]
    options = {
        "window_strides": [draw(st.integers(1, 3)) for _ in range(rank)],
        "padding": [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(rank)],
        "base_dilation": [draw(st.sampled_from([1, 1, 2])) for _ in range(rank)],
        "window_dilation": [draw(st.sampled_from([1, 1, 2])) for _ in range(rank)],
    }
    least, most = (-(2**31), 2**31 - 1) if dtype == "int32" else (-np.inf, np.inf)
    combine, start = draw(st.sampled_from([(lax.add, 0), (lax.max, least), (lax.min, most), (lax.mul, 1)]))

    def function(x: jax.Array) -> jax.Array:
        return lax.reduce_window(x, jnp.asarray(start, x.dtype), combine, sizes, **options)

    x = values(dtype, *shape)
    assume(0 not in jax.eval_shape(function, x).shape)
    return function, (x,)


@quick
@given(pools())
def test_pools(drawn: tuple[Callable[..., Any], tuple[Any, ...]]) -> None:
    function, arguments = drawn
    program = captured(function, *arguments)
    assert assert_same(program, names_of(window)) or "window_dimensions = array<i64: 1" in program.text


def test_a_start_that_changes_something_has_no_other_form() -> None:
    """How often it counts is not the same for all compilers."""
    program = captured(lambda x: lax.reduce_window(x, 3.0, lax.add, (2, 2), (1, 1), "VALID"), values("float32", 4, 4))
    assert set(forms_of(program.text).values()) == {()}


@pytest.mark.parametrize("length", [5, 64, 65, 200])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_running_sums(length: int, backward: bool) -> None:
    sides = (0, length - 1) if backward else (length - 1, 0)

    def function(x: jax.Array) -> jax.Array:
        return lax.reduce_window(x, 0.0, lax.add, (1, length, 1), (1, 1, 1), [(0, 0), sides, (0, 0)])

    program = captured(function, values("float32", 2, length, 3))
    np.testing.assert_allclose(
        outputs(program, Config())["output 0"].shape, (2, length, 3), err_msg="as long as the data"
    )
    assert assert_same(program, names_of(window)) >= ({"triangle", "blocks"} if length > 64 else {"triangle"})


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
@pytest.mark.parametrize("size", [(2, 2), (3, 3), (3, 2)], ids=str)
@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "ties"])
def test_the_gradient_of_pooling(padding: str, size: tuple[int, int], ties: bool) -> None:
    def pooled(x: jax.Array) -> jax.Array:
        y = lax.reduce_window(x, -jnp.inf, lax.max, (1, *size, 1), (1, 2, 2, 1), padding)
        return (y * jnp.arange(y.size, dtype=y.dtype).reshape(y.shape)).sum()

    x = values("float32", 2, 9, 8, 3)
    x = np.round(x) if ties else x
    assert "masks" in assert_same(captured(jax.grad(pooled), x), names_of(window))


# Rows of tables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(3,), (2, 4), ()], ids=str)
def test_rows_of_tables(dtype: str, shape: tuple[int, ...]) -> None:
    indices = np.random.default_rng(0).integers(0, 9, shape).astype(np.int32)
    table, rows = values(dtype, 7, 5), values(dtype, *shape, 5, seed=2)

    def taken(table: jax.Array, indices: jax.Array) -> jax.Array:
        return table.at[indices].get(mode="clip") * 2

    def added(table: jax.Array, indices: jax.Array, rows: jax.Array) -> jax.Array:
        return table.at[indices].add(rows)

    if shape:
        assert assert_same(captured(taken, table, indices), names_of(indexing)) == {"one-hot-rows"}
        assert assert_same(captured(added, table, indices, rows), names_of(indexing)) == {"one-hot-sums"}


# The few of what is sorted --------------------------------------------------------------------------------------------


def meant(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Values with equals, both zeros, infinities and NaNs among them."""
    drawn = np.round(values("float32", *shape) * 2) / 2
    if dtype == "int32":
        return (drawn * 2).astype(np.int32)
    special = np.random.default_rng(1).integers(0, 12, shape)
    for number, value in enumerate([0.0, -0.0, np.inf, -np.inf, np.nan]):
        drawn = np.where(special == number, np.float32(value), drawn)
    return np.asarray(jnp.asarray(drawn, dtype))


SORTS: dict[str, Callable[[jax.Array], Any]] = {
    "top-k": lambda x: lax.top_k(x, 3),
    "first of sorted": lambda x: jnp.sort(x, axis=0)[:3],
    "last of sorted": lambda x: jnp.sort(x)[..., -4:],
    "first of order": lambda x: jnp.argsort(x)[..., :3],
    "last of order": lambda x: jnp.argsort(x)[..., ::-1][..., :3],
    "downwards": lambda x: jnp.argsort(x, descending=True, axis=1)[:, 2:5],
    "with others": lambda x: [one[:, :2] for one in lax.sort((x, x * 2, lax.iota(jnp.int32, x.size).reshape(x.shape)))],
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("name", SORTS)
def test_the_few_of_what_is_sorted(name: str, dtype: str) -> None:
    """To the bit, and equals in the same order."""
    program = captured(SORTS[name], meant((7, 30), dtype))
    [(tag, forms)] = [found for found in forms_of(program.text).items() if found[1]]
    assert set(forms) == ({"rounds"} if name == "top-k" else {"rounds", "partial"})
    assert program.arguments is not None
    target, found = XlaTarget("cpu"), []
    for form in ("default", *forms):
        config = Config.of({} if form == "default" else {f"{tag.removeprefix('tpugraphs.')}.form": form})
        job = target.prepare(program, config, probe=[tag])
        found.append(target.build(job.probing or b"", job.options)([target.place(one) for one in program.arguments]))
    for other in found[1:]:
        for value, wanted in zip(other, found[0], strict=True):
            assert value.dtype == wanted.dtype
            np.testing.assert_array_equal(value.view(f"u{value.itemsize}"), wanted.view(f"u{wanted.itemsize}"))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.sort(x),
        lambda x: (jnp.sort(x)[:, :3], jnp.sort(x).sum()),
        lambda x: jnp.sort(x)[:, ::2],
        lambda x: lax.sort((x, x), num_keys=2)[0][:, :3],
        lambda x: lax.sort(x, is_stable=False)[:, :3],
        lambda x: (lambda y: (y[:, :3], y[:, -3:]))(jnp.sort(x)),
    ],
    ids=["whole", "summed", "every other", "two keys", "unstable", "both ends"],
)
def test_a_sort_of_which_more_is_used_has_just_the_default(function: Callable[[jax.Array], Any]) -> None:
    program = captured(function, meant((7, 30), "float32"))
    found = [names for tag, names in forms_of(program.text).items()]
    assert found
    assert "partial" not in found[0] or len(found) > 1


# Powers ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("exponent", [-4.0, -1.5, -1.0, -0.5, 0.5, 1.5, 2.5, 3.0])
def test_powers(exponent: float, dtype: str) -> None:
    """Also of what is negative, infinite, zero of either sign, or no number."""
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -2.0, 1e-30, 1e30]
    x = np.asarray(jnp.asarray([*special, *values("float32", 40)], dtype))
    program = captured(lambda x: jnp.power(x, jnp.asarray(exponent, x.dtype)), x)
    [(tag, forms)] = forms_of(program.text).items()
    assert forms == ("roots",)
    target, found = XlaTarget("cpu"), []
    for config in (Config(), Config.of({f"{tag.removeprefix('tpugraphs.')}.form": "roots"})):
        job = target.prepare(program, config)
        found.append(target.build(job.module, job.options)([target.place(x)])[0].astype(np.float64))
    # both sides flush what is too small for an ordinary number
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5 if dtype == "float32" else 2e-2, atol=1e-37)


@pytest.mark.parametrize("exponent", [0.3, 0.0, 5.0])
def test_other_powers_have_just_the_default(exponent: float) -> None:
    program = captured(lambda x: jnp.power(x, jnp.float32(exponent)), values("float32", 4))
    assert set(forms_of(program.text).values()) <= {()}


# All ------------------------------------------------------------------------------------------------------------------


def test_every_form_says_what_it_is_and_costs() -> None:
    for name, form in FORMS.items():
        assert form.name == name
        assert form.label
        assert form.cost
        assert name != "default"


def empty(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(x, w, (1, 1), [(-2, -2), (0, 0)], dimension_numbers=("NHWC", "HWIO", "NHWC"))


def mixed(x: jax.Array, w: jax.Array) -> jax.Array:
    x, w = x.astype(jnp.bfloat16), w.astype(jnp.bfloat16)
    return lax.dot_general(x, w, (((3,), (2,)), ((), ())), preferred_element_type=jnp.float32)


@pytest.mark.parametrize("function", [empty, mixed])
def test_where_nothing_holds_there_is_just_the_default(function: Callable[..., Any]) -> None:
    program = captured(function, values("float32", 1, 6, 6, 4), values("float32", 3, 3, 4, 6))
    assert set(forms_of(program.text).values()) == {()}
