"""Measuring: inputs that show errors, checks that catch them, honest ratios, and a worker that may die."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
import pytest

from tests.kit.programs import small_program
from tpugraphs.child import ChildFailed
from tpugraphs.measure import Worker, check, paired_ratio, timing
from tpugraphs.measure.fingerprint import fingerprint
from tpugraphs.measure.inputs import numpy_dtype, spread_inputs
from tpugraphs.program import InputSpec, capture_callable
from tpugraphs.space import Config
from tpugraphs.space.product import apply


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
    calls: list[str] = []
    runs = {name: (lambda name=name: (calls.append(name), time.sleep(0.001))) for name in "abc"}
    samples = timing.interleaved(runs, rounds=6, sample_s=0.003, seed=0)
    assert {name: len(values) for name, values in samples.items()} == {"a": 6, "b": 6, "c": 6}
    assert all(value > 1e6 for values in samples.values() for value in values)
    order = [name for index, name in enumerate(calls) if index == 0 or calls[index - 1] != name]
    assert order[3:] != ["a", "b", "c"] * 6


@pytest.fixture
def worker() -> Iterator[Worker]:
    program = small_program()
    with Worker(program, spread_inputs(program.inputs, program.arguments)) as worker:
        worker.start()
        yield worker


def build(worker: Worker, name: str = "baseline") -> dict[str, object]:
    module, options = apply(small_program(), Config())
    return worker.ask("build", 60, name=name, module=worker.write_module(module), options=options)


def test_a_worker_builds_and_times(worker: Worker) -> None:
    assert float(str(build(worker)["compile_s"])) > 0
    samples = worker.ask("time", 60, names=["baseline"], rounds=3, sample_s=0.001, seed=0)["samples"]
    assert len(samples["baseline"]) == 3


def test_what_the_compiler_says_is_an_answer(worker: Worker) -> None:
    module, _ = apply(small_program(), Config())
    reply = worker.ask("build", 60, name="x", module=worker.write_module(module), options={"xla_no_such_option": "1"})
    assert "xla_no_such_option" in reply["error"]
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
    with Worker(program, spread_inputs(program.inputs, program.arguments)) as worker:
        worker.start()
        module, options = apply(program, Config())
        path = worker.write_module(module)
        worker.ask("build", 60, name="baseline", module=path, options=options)
        assert worker.ask("check", 60, name="baseline", module=path, options=options, probes=[])["excess"] == 0


def test_a_fingerprint_names_machine_and_compiler() -> None:
    assert {"processor", "cores", "python", "jax", "jaxlib"} <= fingerprint().keys()
    assert all(fingerprint().values())
