"""Measuring: inputs that show errors, checks that catch them, honest ratios, and a worker that may die."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.kit.programs import small_program
from tpugraphs.child import ChildFailed
from tpugraphs.measure import check, timing
from tpugraphs.measure.fingerprint import fingerprint
from tpugraphs.measure.inputs import numpy_dtype, spread_inputs
from tpugraphs.measure.timing import paired_ratio
from tpugraphs.measure.worker import Worker
from tpugraphs.program import InputSpec, capture_callable
from tpugraphs.space import Config
from tpugraphs.target.xla import XlaTarget

TARGET = XlaTarget("cpu")


def test_inputs_are_seeded_and_never_all_the_same() -> None:
    specs = [InputSpec((4, 5), "float32"), InputSpec((6,), "float32"), InputSpec((3, 3), "float32", fan_in=9)]
    first, again = spread_inputs(specs, None), spread_inputs(specs, None)
    other = spread_inputs(specs, None, seed=1)
    for one, two, three in zip(first, again, other, strict=True):
        assert (one == two).all()
        assert (one != three).any()
        assert one.std() > 0
    assert (first[1] > 0).all(), "a vector may be a variance"


def test_parameters_move_away_from_what_untrained_programs_have() -> None:
    given = [
        np.zeros(50, np.float32),
        np.ones(50, np.float32),
        np.arange(50, dtype=np.int32),
        np.array([1.5, 2, -3], np.float32),
    ]
    specs = [InputSpec(value.shape, value.dtype.name) for value in given]
    shift, variance, index, weights = spread_inputs(specs, given)
    assert shift.std() > 0.05
    assert variance.std() > 0.05
    assert (variance > 0).all()
    assert (index == given[2]).all(), "it may index something"
    assert (np.sign(weights) == np.sign(given[3])).all()
    assert (weights != given[3]).all()


@pytest.mark.parametrize("name", ["bool", "int32", "uint8", "bfloat16", "float16", "float64", "complex64"])
def test_every_dtype_gets_inputs(name: str) -> None:
    for given in (None, np.ones((4,), numpy_dtype(name))):
        [value] = spread_inputs([InputSpec((4,), name)], None if given is None else [given])
        assert value.dtype == numpy_dtype(name)


def deviates(output: object, expected: object) -> float:
    return check.deviation({"x": np.asarray(output)}, {"x": np.asarray(expected)})[0]


def test_the_tolerance_is_relative_to_the_outputs_own_spread() -> None:
    expected = np.random.default_rng(0).normal(size=1000) * 1e-6 + 1000
    assert deviates(expected, expected) == 0
    assert deviates(expected + 1e-8, expected) > 1
    even = 1 / 1000 + np.random.default_rng(0).normal(size=1000) * 1e-7
    assert deviates(even + 1e-8, even) > 1, "an all too even softmax hides nothing here"
    assert deviates(even + 5e-11, even) < 1


def test_a_peaked_output_is_judged_by_its_peak() -> None:
    expected = np.zeros(1000)
    expected[3] = 1
    assert deviates(expected + 2e-5, expected) < 1
    assert deviates(expected * 0.99, expected) > 1


def test_integers_shapes_and_infinities_must_agree() -> None:
    assert deviates([1, 2], [1, 3]) == np.inf
    assert deviates([1, 2], [1, 2]) == 0
    assert deviates([1.0], [1.0, 2.0]) == np.inf
    assert deviates([1.0, np.inf], [1.0, 2.0]) == np.inf
    assert deviates([1.0, np.nan], [1.0, np.nan]) == 0


def test_low_precision_is_allowed_its_roundings() -> None:
    expected = jnp.asarray(np.random.default_rng(0).normal(size=100), jnp.bfloat16)
    assert deviates(expected * jnp.bfloat16(1.01), expected) < 1
    assert deviates(expected * 2, expected) > 1


def test_a_node_computed_in_both_ways_is_compared_with_itself() -> None:
    """What came before it does not count, in its favour or against it."""
    rng = np.random.default_rng(0)
    value, far = rng.normal(size=100), rng.normal(size=100)
    assert check.deviation({"node": value, "node as it was": value}, {"node": far})[0] == 0
    excess, where = check.deviation({"node": value, "node as it was": far}, {"node": value}, {"node": 1e9})
    assert excess > 1
    assert where.startswith("node: off by")


def test_what_nudged_inputs_move_may_be_moved_as_far_but_not_without_end() -> None:
    expected = {"firm": np.linspace(0, 1, 50), "loose": np.linspace(0, 1, 50), "counts": np.arange(50)}
    strayed = check.strays(
        {"firm": expected["firm"], "loose": expected["loose"] + 0.02, "counts": np.minimum(expected["counts"], 48)},
        expected,
    )
    assert strayed == {"firm": 0.0, "loose": pytest.approx(0.02), "counts": 1.0}

    def excess(name: str, by: float) -> float:
        return check.deviation({name: expected[name] + by}, expected, strayed)[0]

    assert excess("firm", 0.01) > 1
    assert excess("loose", 0.05) < 1 < excess("loose", 0.1)
    assert check.deviation({"counts": np.minimum(expected["counts"], 46)}, expected, strayed)[0] < 1
    assert check.deviation({"counts": expected["counts"][::-1]}, expected, strayed)[0] > 1
    assert check.deviation({"loose": -expected["loose"]}, expected, {"loose": 1e9})[0] > 1, "never beyond the spread"


def test_inputs_are_nudged_by_roundings_and_only_floats() -> None:
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    moved = check.nudged(values)
    assert moved.dtype == np.float32
    assert 0 < np.abs(moved / values - 1).max() < 2e-6
    assert (moved > values).any()
    assert (moved < values).any()
    assert not np.array_equal(moved, check.nudged(values, seed=1))
    for same in (np.arange(5), np.zeros(3, np.float32), np.array([True, False])):
        np.testing.assert_array_equal(check.nudged(same), same)


def test_paired_ratios_cancel_what_both_share() -> None:
    rng = np.random.default_rng(0)
    processes = []
    for _ in range(5):
        load = np.exp(rng.normal(0, 0.3, 30))
        processes.append((0.8 * load * np.exp(rng.normal(0, 0.01, 30)), load))
    ratio = paired_ratio(processes)
    assert ratio.low < 0.8 < ratio.high
    assert ratio.high - ratio.low < 0.02
    assert ratio.speedup == 1 / ratio.value


def test_modes_of_processes_widen_the_interval() -> None:
    processes = [(np.full(30, mode), np.ones(30)) for mode in (0.65, 0.65, 0.77, 0.65, 0.77)]
    ratio = paired_ratio(processes)
    assert (ratio.value, ratio.low, ratio.high) == (0.65, 0.65, 0.77)


def test_samples_take_turns_in_changing_order() -> None:
    asked: list[tuple[str, int]] = []
    costs_ns = {"a": 1e6, "b": 2e6, "c": 3e6}

    def sampler(name: str) -> timing.Sampler:
        def sample_ns(calls: int) -> float:
            asked.append((name, calls))
            return calls * costs_ns[name]

        return sample_ns

    samples = timing.interleaved({name: sampler(name) for name in costs_ns}, rounds=6, sample_s=0.012, seed=0)
    assert samples == {name: [ns] * 6 for name, ns in costs_ns.items()}, "each is the time of one call"
    timed = [(name, calls) for name, calls in asked if calls > timing.WARM_CALLS]
    assert set(timed) == {("a", 12), ("b", 6), ("c", 4)}, "samples take about the same time"
    rounds = [tuple(name for name, _ in timed[start : start + 3]) for start in range(0, len(timed), 3)]
    assert [sorted(names) for names in rounds] == [["a", "b", "c"]] * 6
    assert len(set(rounds)) > 1


@pytest.fixture
def worker() -> Iterator[Worker]:
    program = small_program()
    with Worker(program, spread_inputs(program.inputs, program.arguments), TARGET) as worker:
        worker.start()
        yield worker


def build(worker: Worker) -> dict[str, Any]:
    [built] = worker.build({"baseline": TARGET.prepare(small_program(), Config())}, 60)
    return built


def test_a_worker_builds_and_times(worker: Worker) -> None:
    assert build(worker)["compile_s"] > 0
    samples = worker.ask("time", 60, names=["baseline"], rounds=3, sample_s=0.001, seed=0)["samples"]
    assert len(samples["baseline"]) == 3
    assert min(samples["baseline"]) > 0


def test_what_the_compiler_says_is_an_answer(worker: Worker) -> None:
    job = TARGET.prepare(small_program(), Config())
    refused, taken = worker.build({"x": replace(job, options={"xla_no_such_option": "1"}), "y": job}, 60)
    assert "xla_no_such_option" in refused["error"]
    assert "error" not in taken, "the others of the batch do not suffer"
    assert worker.alive
    assert "error" not in build(worker)


def test_a_killed_worker_is_a_failure_and_a_new_one_works(worker: Worker) -> None:
    build(worker)
    process = worker._process
    assert process is not None
    threading.Timer(0.5, lambda: os.kill(process.pid, signal.SIGKILL)).start()
    with pytest.raises(ChildFailed, match="ended with signal SIGKILL") as caught:
        worker.ask("time", 60, names=["baseline"], rounds=10_000, sample_s=0.01, seed=0)
    assert caught.value.status == "crash"
    with pytest.raises(ChildFailed, match="not running"):
        build(worker)
    worker.start()
    assert "error" not in build(worker)


def test_a_worker_that_hangs_is_killed(worker: Worker) -> None:
    build(worker)
    process = worker._process
    assert process is not None
    with pytest.raises(ChildFailed, match="no answer to time within 1 s") as caught:
        worker.ask("time", 1, names=["baseline"], rounds=10_000, sample_s=0.1, seed=0)
    assert caught.value.status == "timeout"
    assert process.poll() is not None


def test_bfloat16_inputs_reach_the_worker() -> None:
    program = capture_callable(lambda x: x @ x.T, np.ones((4, 8), jnp.bfloat16))
    with Worker(program, spread_inputs(program.inputs, program.arguments), TARGET) as worker:
        worker.start()
        job = TARGET.prepare(program, Config())
        worker.build({"baseline": job, "again": job}, 60)
        assert worker.ask("check", 60, name="baseline")["spread"] > 0
        assert worker.ask("check", 60, name="again")["excess"] == 0


def test_a_fingerprint_names_machine_and_compiler() -> None:
    found = fingerprint()
    assert {"processor", "cores", "python", "jax", "jaxlib"} <= found.keys()
    assert all(value for name, value in found.items() if name != "environment"), "only the environment may be empty"
