"""What facts mean for measuring, what the self-test finds where the noise is known, and the choice of a place."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from tpugraphs.errors import TpuGraphsError
from tpugraphs.measure.doctor import Finding, as_dict, findings, findings_of_test, percent, ranges, verdict
from tpugraphs.measure.machine import Busy, MachineFacts
from tpugraphs.measure.noise import Process, SelfTest
from tpugraphs.measure.pinning import Tried, choose, judge, places
from tpugraphs.measure.self_test import self_test
from tpugraphs.target.simulated import SimulatedTarget

NOTHING = MachineFacts(1.0, *[None] * (len(fields(MachineFacts)) - 1))  # pyright: ignore[reportArgumentType]
QUIET = replace(
    NOTHING,
    cpus=4,
    usable_cpus=(0, 1, 2, 3),
    governors=dict.fromkeys(range(4), "performance"),
    frequencies_mhz=dict.fromkeys(range(4), 3000.0),
    max_frequencies_mhz=dict.fromkeys(range(4), 3000.0),
    turbo=False,
    smt=False,
    hypervisor=False,
    steal_share=0.0,
    load_averages=(0.1, 0.1, 0.1),
    others_cpus=0.01,
    busiest=(),
    timer_resolution_ns=20.0,
    timer_cost_ns=40.0,
    tick_hz=250,
    huge_pages="madvise",
    aslr=True,
    numa_nodes=1,
    temperature_c=40.0,
    throttles=0,
    throttles_since_boot=0,
)


def found(facts: MachineFacts, what: str) -> Finding:
    [one] = [finding for finding in findings(facts) if finding.what == what]
    return one


def test_a_quiet_machine_has_nothing_to_do() -> None:
    assert {one.severity for one in findings(QUIET)} == {"good"}
    assert not [one for one in findings(QUIET) if one.todo]


def test_what_is_not_known_is_said_to_be_unknown() -> None:
    told = findings(NOTHING)
    assert [one.what for one in told] == [one.what for one in findings(QUIET)]
    assert [one.what for one in told if "unknown" not in one.found] == ["quota"]  # no limit is found either way
    assert {one.severity for one in told} == {"note", "good"}


@pytest.mark.parametrize(
    ("change", "what", "severity", "says", "todo"),
    [
        ({"usable_cpus": (3,)}, "processors", "warning", "3: 1 of 4 may be used", "taskset"),
        ({"usable_cpus": (0, 2, 3)}, "processors", "good", "0, 2-3: 3 of 4 may be used", ""),
        ({"usable_cpus": None}, "processors", "note", "unknown", ""),
        ({"quota_cpus": 1.5}, "quota", "bad", "1.5 processors' worth", "--cpuset-cpus"),
        ({"quota_cpus": 4.0}, "quota", "good", "4 processors' worth", ""),
        ({"governors": {0: "performance", 1: "powersave"}}, "governor", "warning", "powersave", "cpupower"),
        ({"governors": None, "hypervisor": True}, "governor", "note", "the host decides", ""),
        ({"max_frequencies_mhz": {0: 5e3, 1: 5e3, 2: 3e3}}, "frequency", "warning", "3000 to 5000", "taskset -c 0-1"),
        ({"max_frequencies_mhz": None}, "frequency", "note", "3000 MHz; the highest is unknown", ""),
        ({"turbo": True}, "turbo", "note", "heat", "no_turbo"),
        ({"smt": True}, "SMT", "note", "share a core", "thread_siblings_list"),
        ({"hypervisor": True}, "virtual", "note", "host", "another hour"),
        ({"steal_share": 0.005}, "stolen time", "note", "0.5 %", "host"),
        ({"steal_share": 0.03}, "stolen time", "warning", "3 %", "host"),
        ({"steal_share": 0.2}, "stolen time", "bad", "20 %", "host"),
        ({"others_cpus": 0.2}, "others' load", "note", "0.20 processors", "stop them"),
        ({"others_cpus": 1.2, "busiest": (Busy("make", 1.1),)}, "others' load", "bad", "make 1.10", "stop them"),
        ({"others_cpus": 1.2, "cpus": 64}, "others' load", "warning", "none of them can be seen", "stop them"),
        ({"load_averages": (0.5, 3.0, 3.0)}, "load", "note", "it has been busy", "again"),
        ({"timer_cost_ns": 1500.0}, "timer", "warning", "1500 ns a reading", "clocksource"),
        ({"huge_pages": "always"}, "huge pages", "note", "always", "several processes"),
        ({"aslr": False}, "addresses", "note", "the same in every process", "random"),
        ({"numa_nodes": 2}, "memory nodes", "warning", "2", "numactl"),
        ({"throttles": 3, "throttles_since_boot": 9}, "heat", "bad", "3 times just now", "cooling"),
        ({"throttles_since_boot": 9}, "heat", "note", "9 since", ""),
        ({"temperature_c": 95.0}, "heat", "warning", "95 °C", "cool down"),
    ],
)
def test_each_finding_says_what_it_is_and_what_to_do(
    change: dict[str, Any], what: str, severity: str, says: str, todo: str
) -> None:
    one = found(replace(QUIET, **change), what)
    assert one.severity == severity
    assert says in one.found
    assert todo in one.todo
    assert bool(one.todo) == bool(todo)


def test_figures_for_people() -> None:
    assert [percent(share) for share in (0, 0.00123, 0.0123, 0.094, 0.123, 1.5)] == [
        "0 %",
        "0.12 %",
        "1.2 %",
        "9.4 %",
        "12 %",
        "150 %",
    ]
    assert ranges([8, 0, 2, 1, 10, 11]) == "0-2, 8, 10-11"


# The self-test --------------------------------------------------------------------------------------------------------


def seen(noise: float, others: tuple[float, ...] = (1.1, 1.1, 1.1, 1.1), pairs: int = 200) -> SelfTest:
    """A self-test of a known noise; each process sees the other program at one of these ratios."""
    rng = np.random.default_rng(0)

    def ratios(truth: float, count: int = pairs) -> tuple[float, ...]:
        return tuple(truth * np.exp(noise * rng.standard_normal(count)))

    processes = tuple(Process(1e6, ratios(1.0), ratios(other), ratios(1.0, 40), ratios(1.0, 40)) for other in others)
    tried = Tried(None, 1e6, noise, 0.0)
    return SelfTest("a", "simulated", 1.0, 5, 0.0, 250, (tried,), tried, processes)


def test_what_can_be_told_apart_follows_from_the_noise() -> None:
    test = seen(0.01)
    assert test.spread == pytest.approx(0.01, rel=0.1)
    for samples in (5, 40):
        expected = 1.96 * 1.2533 * 0.01 / math.sqrt(samples)  # of a median
        assert test.tells_apart(samples) == pytest.approx(expected, rel=0.15)
    assert test.tells_apart(40) < test.tells_apart(10) < test.tells_apart(5)
    assert test.tells_apart(5, processes=4) < 0.7 * test.tells_apart(5)


def test_modes_between_processes_limit_what_samples_can_tell() -> None:
    test = seen(0.004, others=(1.30, 1.55, 1.30, 1.55, 1.30))
    assert [len(group) for group in test.other_modes] == [3, 2]
    assert len(test.again_modes) == 1
    assert test.tells_apart(400) > 0.08
    [between] = [one for one in findings_of_test(test) if one.what == "processes"]
    assert between.severity == "warning"
    assert re.search(r"1\.(30|29)\d and 1\.(55|54)\d", between.found)
    assert verdict(test).startswith("not fit: ")


@pytest.mark.parametrize(("noise", "says"), [(0.003, "fit: two"), (0.025, "fit for coarse"), (0.2, "not fit: ")])
def test_the_verdict_says_what_differences_show(noise: float, says: str) -> None:
    test = seen(noise)
    assert verdict(test).startswith(says)
    assert percent(test.tells_apart(5)) in verdict(test)
    [pairs] = [one for one in findings_of_test(test) if one.what == "noise"]
    assert pairs.severity == {"fit: two": "good", "fit for coarse": "warning", "not fit: ": "bad"}[says]


@pytest.mark.parametrize(("share", "severity"), [(None, "note"), (0.005, "good"), (0.05, "warning"), (0.4, "bad")])
def test_calls_that_waited_for_ticks_are_a_finding(share: float | None, severity: str) -> None:
    test = replace(seen(0.01), pinning=Tried(None, 1e6, 0.01, share))
    [waits] = [one for one in findings_of_test(test) if one.what == "waits"]
    assert waits.severity == severity


def test_the_self_test_finds_the_noise_and_the_modes_that_are_there() -> None:
    target = SimulatedTarget.of("simulated:noise=0.002,mode=0.05")
    told: list[tuple[str, float]] = []
    test = self_test(target, limit_s=3.0, processes=4, watch=lambda what, share: told.append((what, share)))
    assert test.seconds < 30
    assert len(test.processes) >= 2
    assert test.spread == pytest.approx(0.002 * math.sqrt(2), rel=0.25)
    assert [len(group) for group in test.again_modes] == [len(test.processes)], "both builds are in the same mode"
    sides = {round(math.log(middle) / 0.1) for group in test.other_modes for middle in group}
    assert len(test.other_modes) == len(sides), "the other program and the default are in modes of their own"
    assert {one.processors for one in test.pinnings} > {None}
    assert {what for what, _ in told} >= {"starting", "pinning", "process 1 of 4"}
    assert [share for _, share in told] == sorted(share for _, share in told)
    whole = json.loads(json.dumps(as_dict(QUIET, test)))
    assert whole["self_test"]["spread"] == test.spread
    assert whole["verdict"] == verdict(test)


def test_a_worker_that_fails_is_told_in_a_sentence() -> None:
    with pytest.raises(TpuGraphsError, match="the self-test's worker failed: .*this does not compile"):
        self_test(SimulatedTarget(compile_error=1.0), limit_s=0.5, processes=1)


# The place of the main thread -----------------------------------------------------------------------------------------


def test_what_places_are_tried() -> None:
    assert places((1, 0)) == [None, (0,), (1,)]
    assert places(None) == [None]
    assert places(range(64), most=4) == [None, (0,), (21,), (42,), (63,)]


def test_a_place_is_judged_by_its_deviation_and_its_waits() -> None:
    quick = [3.7e6, 3.72e6, 3.68e6, 3.7e6]
    loose, first = judge({None: [8e6, 8e6, 8e6, 3.7e6], (0,): quick}, tick_hz=250)
    assert loose.tick_share == pytest.approx(0.75 * 0.96), "although its own median is a tick"
    assert (first.median_ns, first.tick_share) == (3.7e6, 0.0)
    assert first.spread == pytest.approx(0.01 / 3.7)
    assert judge({None: quick}, tick_hz=None)[0].tick_share is None


def test_calls_late_at_random_are_not_taken_for_waits() -> None:
    rng = np.random.default_rng(0)
    late = [3.7e6] * 300 + rng.uniform(5e6, 40e6, 700).tolist()
    [loose] = judge({None: late}, tick_hz=250)
    assert loose.tick_share is not None
    assert loose.tick_share < 0.01


def test_the_steadiest_place_is_chosen() -> None:
    loose, first, second = Tried(None, 1e6, 0.02, 0.0), Tried((0,), 1e6, 0.005, 0.0), Tried((1,), 1e6, 0.004, 0.25)
    assert choose([loose, first, second]) == first, "waits count, though the median deviation does not show them"
    assert choose([loose, replace(first, median_ns=1.1e6)]) == loose, "steady but slow is no place"
    assert choose([replace(loose, median_ns=1.1e6), first]) == first
    assert choose([replace(loose, spread=0.006), first]) == replace(loose, spread=0.006), "chance alone does that"
    assert choose([loose]) == loose
