"""IREE's kernels: read, timed in place, cut in another way."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

from tpugraphs.errors import BadRequest
from tpugraphs.measure.inputs import spread_inputs
from tpugraphs.program import Program, capture_callable
from tpugraphs.space import Config
from tpugraphs.space.tile import tile_space
from tpugraphs.target import Executable, target_named
from tpugraphs.target.contract import OTHER, Kernels
from tpugraphs.types import Kernel, Loop

TARGET = target_named("iree:llvm-cpu")


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def twice(w: jax.Array, v: jax.Array, x: jax.Array) -> jax.Array:
    """The same kernel in two places."""
    return jax.numpy.tanh(jax.numpy.tanh(x @ w) @ v)


def once(w: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.numpy.tanh(x @ w), jax.numpy.sort(y)


TWICE = capture_callable(twice, values(96, 96), values(96, 96), values(64, 96))
ONCE = capture_callable(once, values(96, 96), values(64, 96), values(40))


def built(program: Program, config: Config = Config()) -> Executable:  # noqa: B008 (a value)
    job = TARGET.prepare(program, config)
    return TARGET.build(job.module, job.options)


def placed(program: Program) -> list[object]:
    return [TARGET.place(value, None) for value in spread_inputs(program.inputs, program.arguments)]


def kernels(executable: Executable) -> list[Kernel]:
    assert isinstance(executable, Kernels)
    return executable.kernels()


def product(program: Program) -> Kernel:
    [found] = [kernel for kernel in kernels(built(program)) if kernel.loops[-1:] == (Loop(96, True),)]
    return found


def test_a_kernel_tells_its_loops_its_tiles_and_its_places() -> None:
    kernel = product(TWICE)
    assert kernel.loops == (Loop(64, False), Loop(96, False), Loop(96, True))
    assert kernel.tags == ("tpugraphs.node0", "tpugraphs.node1")
    assert kernel.tiles is not None
    assert kernel.tiles.distribution[2] == kernel.tiles.parallel[2] == 0
    assert kernel.tiles.reduction[:2] == (0, 0)
    assert all(kernel.tiles.distribution[:2])
    assert "64x96x96" in kernel.what
    assert kernel.pipeline != "none"


def test_equal_kernels_of_two_programs_have_one_hash() -> None:
    assert product(TWICE).digest == product(ONCE).digest
    others = [kernel.digest for kernel in kernels(built(ONCE))]
    assert len(set(others)) == len(others)


def test_the_profile_is_by_node_and_by_kernel() -> None:
    executable, arguments = built(TWICE), placed(TWICE)
    assert isinstance(executable, Kernels)
    by_kernel, by_node = executable.kernel_times(arguments, 3), executable.profile(arguments, 3)
    assert by_kernel.keys() <= {kernel.name for kernel in kernels(executable)}
    assert {"tpugraphs.node0", "tpugraphs.node1"} <= by_node.keys() <= {"tpugraphs.node0", "tpugraphs.node1", OTHER}
    assert all(ns > 0 for ns in by_node.values())


def test_other_tiles_are_taken_and_compute_the_same() -> None:
    space = tile_space([product(TWICE)], most=40)
    [knob] = space.knobs
    default = built(TWICE)(placed(TWICE))
    taken = 0
    for choice in knob.choices[1::8]:
        executable = built(TWICE, space.config({knob.name: choice}))
        assert str(product_of(executable).tiles) == choice
        assert product_of(executable).digest == knob.place, "tiles are no part of what it computes"
        for found, wanted in zip(executable(placed(TWICE)), default, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
        taken += 1
    assert taken == 5


def product_of(executable: Executable) -> Kernel:
    [found] = [kernel for kernel in kernels(executable) if kernel.loops[-1:] == (Loop(96, True),)]
    return found


def test_tiles_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="no kernel 0123456789ab in this program"):
        built(TWICE, Config.of({"0123456789ab.tile": "8,8,0 / 8,8,0 / 0,0,8"}))
    with pytest.raises(ValueError, match="has 3 loops, found tiles 8,8 / 8,8 / 0,0"):
        built(TWICE, Config.of({f"{product(TWICE).digest}.tile": "8,8 / 8,8 / 0,0"}))


def test_layouts_are_refused_and_so_are_tiles_elsewhere() -> None:
    with pytest.raises(
        BadRequest, match=r"node0.output: layout cannot be chosen on llvm-cpu; expected form, flags, tile"
    ):
        TARGET.prepare(TWICE, Config.of({"node0.output": "{0,1}"}))
    with pytest.raises(BadRequest, match="tile cannot be chosen on cpu"):
        target_named("xla:cpu").prepare(TWICE, Config.of({"0123456789ab.tile": "8,8,0 / 8,8,0 / 0,0,8"}))


def test_what_the_compiler_says_is_the_error() -> None:
    with pytest.raises(Exception, match="nonsense") as caught:
        TARGET.build(b"module { nonsense }", {})
    assert len(str(caught.value)) < 301


def test_tiles_travel_as_json() -> None:
    job = TARGET.prepare(TWICE, Config.of({"0123456789ab.tile": "8,8,0 / 8,8,0 / 0,0,8"}))
    assert json.loads(job.options["tiles"]) == {"0123456789ab": "8,8,0 / 8,8,0 / 0,0,8"}


def test_a_tile_that_the_compiler_refuses_is_named() -> None:
    """So that one kernel's trouble is not taken for another's: its registers would not hold this."""
    kernel = product(TWICE)
    with pytest.raises(Exception, match=f"in .*{kernel.name}"):
        built(TWICE, Config.of({f"{kernel.digest}.tile": "64,96,0 / 64,96,0 / 0,0,96"}))
