"""What measurements are worth: twins, failures, noise, spread, and every doubt said."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from pathlib import Path

import numpy as np
import pytest

from tests.kit.studies import (
    collected,
    history_of,
    measured,
    only_history,
    record,
    small_space,
    small_study,
    wanted,
)
from tpugraphs.measure.journal import AGAIN, END, FAILED, FINALIST, REPEAT, History, Record
from tpugraphs.measure.judging import default_ns, judge
from tpugraphs.measure.measurement import COMPILE_ERROR, CRASH, Measurement
from tpugraphs.measure.timing import floor_of
from tpugraphs.space import Config
from tpugraphs.target.simulated import SimulatedTarget

STUDY = small_study()
CONFIGS = [config for config, _ in zip(small_space().enumerate(), range(41), strict=False)][1:]


def ended(drift: float = 1.0) -> Record:
    return Record(END, STUDY.id, {"configs": 12, "drift": drift})


def history(
    searched: Sequence[Measurement], repeats: Sequence[float] = (1.0, 1.001, 0.999, 1.0), end: bool = True
) -> History:
    """A study that gives no cause for doubt unless its measurements do."""
    found = history_of(
        STUDY,
        *(record(STUDY, one) for one in searched),
        *(record(STUDY, measured(Config(), one), REPEAT) for one in repeats),
    )
    found.ended = [ended()] if end else []
    return found


def some(count: int = 12, spread: float = 1.5) -> list[Measurement]:
    ratios = np.linspace(0.9, 0.9 * spread, count)
    return [measured(config, float(ratio)) for config, ratio in zip(CONFIGS, ratios, strict=False)]


def test_a_good_study_leaves_no_doubt() -> None:
    judged = judge(history(some()))
    assert judged.doubts == ()
    assert (judged.study, judged.program, judged.collection) == (STUDY.id, "net", STUDY.collection)
    assert (judged.configs, judged.repeats, judged.twins, dict(judged.failed)) == (12, 4, 0, {})
    assert judged.best is not None
    assert judged.best.config == CONFIGS[0]
    assert judged.spread == pytest.approx(1.5)
    assert judged.noise_floor == floor_of([1.0, 1.001, 0.999, 1.0])
    assert judged.default_ns == default_ns(history(some())) == 1e6
    assert judged.drift == 1.0


def test_the_default_counts_for_the_spread() -> None:
    slower = [measured(config, 1.2 + index / 100) for index, config in enumerate(CONFIGS[:11])]
    assert judge(history(slower)).spread == pytest.approx(1.3)


def test_few_configs_are_doubted() -> None:
    assert judge(history(some(9))).doubts == ("only 9 configs",)
    assert judge(history(some(10))).doubts == ()


def test_unfinished_ones_are_doubted() -> None:
    assert judge(history(some(), end=False)).doubts == ("not finished",)


def test_many_failures_are_doubted() -> None:
    failures = [
        measured(config, None, CRASH if index else COMPILE_ERROR) for index, config in enumerate(CONFIGS[12:26])
    ]
    judged = judge(history([*some(), *failures]))
    assert judged.doubts == ("14 of 26 configs failed",)
    assert judged.failed == {CRASH: 13, COMPILE_ERROR: 1}
    assert judge(history([*some(), *failures[:12]])).doubts == ()


def test_noise_that_hides_the_spread_is_doubted() -> None:
    repeats = (1.0, 1.05, 0.95, 1.02)
    judged = judge(history(some(spread=1.12), repeats))
    assert judged.noise_floor is not None
    [doubt] = judged.doubts
    assert doubt.startswith(f"noise of {exp(judged.noise_floor) - 1:.1%}, where 19 of 20 pairs of configs are ")
    assert judge(history(some(spread=1.5), repeats)).doubts == ()


@pytest.mark.parametrize("repeats", [(), (1.0,), (1.0, 1.01)])
def test_too_few_repeats_are_doubted(repeats: tuple[float, ...]) -> None:
    judged = judge(history(some(), repeats))
    assert judged.doubts == (f"the default was repeated {len(repeats)} times, too few to know the noise",)
    assert (judged.noise_floor is None) == (len(repeats) < 2)


def test_modes_of_processes_are_doubted() -> None:
    found = history(some())
    found.measured.append(record(STUDY, measured(CONFIGS[0], 0.9 * 1.2), FINALIST))
    assert judge(found).doubts == ("a fresh process gave 20% other times",)
    found.measured[-1] = record(STUDY, measured(CONFIGS[0], 0.9 * 1.02), FINALIST)
    assert judge(found).doubts == ()


def test_a_change_of_the_machine_is_doubted_until_measured_again() -> None:
    searched = [*some(10), *(measured(config, 1.0, drifted=True) for config in CONFIGS[10:12])]
    found = history(searched)
    assert judge(found).doubts == ("the machine changed while 2 configs were measured",)
    found.measured += [record(STUDY, measured(config, 1.0), AGAIN) for config in CONFIGS[10:12]]
    assert judge(found).doubts == ()
    assert judge(found).configs == 12


def test_a_default_that_fails_is_the_only_doubt() -> None:
    found = History(STUDY, failed=[Record(FAILED, STUDY.id, {"message": "the default itself fails: so"})])
    judged = judge(found)
    assert judged.doubts == ("the default itself fails: so",)
    assert (judged.configs, judged.best, judged.spread, judged.noise_floor, judged.drift) == (0, None, None, None, None)


def test_twins_are_counted() -> None:
    twins = [measured(config, 1.0, same_as=CONFIGS[0].digest) for config in CONFIGS[12:15]]
    assert judge(history([*some(), *twins])).twins == 3


def test_what_a_collection_keeps_is_json() -> None:
    kept = judge(history(some())).to_json()
    assert kept["doubts"] == []
    assert kept["default_ns"] == 1e6
    assert kept["repeats"] == 4


def test_the_noise_of_the_target_is_found(tmp_path: Path) -> None:
    """Each repeat is the median ratio of a few rounds of noisy samples on both sides."""
    for noise in (0.002, 0.02):
        runs = tmp_path / f"{noise}"
        target = SimulatedTarget(noise=noise, effect=0.2)
        collected(runs, wanted(target.name, configs=60, batch=3, finalists=0))
        judged = judge(only_history(runs))
        assert judged.repeats == 20
        assert judged.noise_floor is not None
        assert noise < judged.noise_floor < 6 * noise


def test_a_quiet_target_leaves_no_doubt(tmp_path: Path) -> None:
    target = SimulatedTarget(noise=0.001, effect=0.1)
    collected(tmp_path, wanted(target.name, configs=24, batch=4, finalists=0))
    assert judge(only_history(tmp_path)).doubts == ()
