"""The simulated target: run times by a formula that is the same everywhere, failures of every kind on demand."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections import Counter
from statistics import median, stdev

import numpy as np
import pytest

from tests.kit.studies import fate_of, small_captured, small_space
from tpugraphs.errors import BadRequest
from tpugraphs.space import Config
from tpugraphs.target import target_named
from tpugraphs.target.simulated import FAILURES, SimulatedExecutable, SimulatedTarget

PROGRAM = small_captured()[0]
CONFIG = small_space().config({"node0.output": "{0,1,2,3}", "node3.kernel": "{0,1}"})


def built(target: SimulatedTarget, config: Config = CONFIG) -> SimulatedExecutable:
    job = target.prepare(PROGRAM, config)
    return target.build(job.module, job.options)


def some_configs(count: int = 2000) -> list[Config]:
    rng, space = np.random.default_rng(0), small_space()
    return [space.uniform(rng) for _ in range(count)]


@pytest.mark.parametrize("target", [
    SimulatedTarget(),
    SimulatedTarget(seed=3, noise=0.01, crash=0.125, compile_s=0.5, default_ns=2e6),
    SimulatedTarget(real_time=True, drift=-0.1, mode=0.07),
])  # fmt: skip
def test_its_name_says_all_settings(target: SimulatedTarget) -> None:
    assert SimulatedTarget.of(target.name) == target == target_named(target.name)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("simulated:speed=1", "no such setting speed; expected seed, default_ns, effect"),
        ("simulated:noise=loud", "noise: expected a number, found 'loud'"),
        ("simulated:seed=1.5", "seed: expected a number, found '1.5'"),
        ("simulated:crash", "crash: expected a number, found ''"),
    ],
)
def test_settings_it_does_not_know_are_refused(name: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        target_named(name)


def test_run_times_follow_the_formula_but_for_noise() -> None:
    target = SimulatedTarget(noise=0.01)
    truth = target.true_ns(PROGRAM.name, CONFIG.as_dict())
    samples = [built(target).sample_ns([], 10) / 10 for _ in range(200)]
    logs = [math.log(sample / truth) for sample in samples]
    standard_error = 1.25 * target.noise / math.sqrt(len(logs))
    assert abs(median(logs)) < 5 * standard_error
    assert target.noise / 1.3 < stdev(logs) < target.noise * 1.3
    quiet = SimulatedTarget(noise=0.0)
    assert built(quiet).sample_ns([], 7) == pytest.approx(7 * truth)
    assert quiet.true_ns(PROGRAM.name, {}) == quiet.default_ns


def test_effects_multiply() -> None:
    target = SimulatedTarget()
    (one, other), both = CONFIG.changes, CONFIG.as_dict()
    alone = [math.log(target.true_ns("p", dict([change])) / target.default_ns) for change in (one, other)]
    assert math.log(target.true_ns("p", both) / target.default_ns) == pytest.approx(sum(alone))
    assert target.true_ns("p", both) != target.true_ns("another", both)
    assert target.true_ns("p", both) != SimulatedTarget(seed=1).true_ns("p", both)


def test_another_process_has_the_same_costs_and_fates() -> None:
    target = SimulatedTarget(seed=4, crash=0.3, wrong=0.3)
    code = (
        "import json; from tpugraphs.target import target_named; "
        f"t = target_named({target.name!r}); c = json.loads({CONFIG.to_json()!r}); "
        "print(repr(t.true_ns('net', c)), t.fate(json.dumps(c, sort_keys=True)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == [repr(target.true_ns("net", CONFIG.as_dict())), str(fate_of(target, CONFIG))]


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_befalls_its_share_of_configs(failure: str) -> None:
    target = SimulatedTarget.of(f"simulated:{failure}=0.25")
    fates = Counter(fate_of(target, config) for config in some_configs())
    assert fates.keys() == {failure, None}
    assert 0.22 < fates[failure] / fates.total() < 0.28


def test_failures_exclude_each_other() -> None:
    target = SimulatedTarget(**dict.fromkeys(FAILURES, 0.1))
    fates = Counter(fate_of(target, config) for config in some_configs())
    assert fates.keys() == {*FAILURES, None}
    assert 0.25 < fates[None] / fates.total() < 0.35


def test_the_default_never_fails() -> None:
    executable = built(SimulatedTarget(**dict.fromkeys(FAILURES, 1.0)), Config())
    [output] = executable([])
    assert output.std() > 0


def test_a_wrong_result_is_another_result() -> None:
    [right], [wrong] = (built(SimulatedTarget(wrong=share))([]) for share in (0.0, 1.0))
    assert abs(right - wrong).max() > 0.01 * right.std()


def test_what_does_not_compile_raises() -> None:
    with pytest.raises(RuntimeError, match="does not compile"):
        built(SimulatedTarget(compile_error=1.0))
    with pytest.raises(MemoryError, match="takes all memory"):
        built(SimulatedTarget(hog=1.0))


def test_a_machine_that_drifts_gets_slower_by_the_second() -> None:
    """However long this machine has been up."""
    executable = built(SimulatedTarget(noise=0.0, drift=2.0))
    begun = time.monotonic()
    first = executable.sample_ns([], 1)
    time.sleep(0.05)
    factor = executable.sample_ns([], 1) / first
    assert 0.05 <= math.log(factor) / 2.0 <= time.monotonic() - begun
    assert first < 1e3 * SimulatedTarget().default_ns


def test_processes_are_in_modes() -> None:
    truth = SimulatedTarget().true_ns(PROGRAM.name, CONFIG.as_dict())
    sample = built(SimulatedTarget(noise=0.0, mode=0.1)).sample_ns([], 1)
    assert abs(math.log(sample / truth)) == pytest.approx(0.1)


def test_in_real_time_calls_take_their_time() -> None:
    executable = built(SimulatedTarget(real_time=True, default_ns=2e6, noise=0.0))
    begun = time.perf_counter_ns()
    told = executable.sample_ns([], 10)
    assert time.perf_counter_ns() - begun >= told


def test_compiling_takes_its_time() -> None:
    begun = time.monotonic()
    built(SimulatedTarget(compile_s=0.05))
    assert time.monotonic() - begun >= 0.05
