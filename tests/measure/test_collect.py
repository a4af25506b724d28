"""Collecting: exactly what was asked for, each config once, whatever fails, ends or interrupts it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.kit.studies import (
    JOINT,
    collected,
    digests,
    fate_of,
    history_of,
    interrupting,
    measured,
    only_history,
    record,
    searched,
    selected,
    several,
    small_space,
    small_study,
    statuses,
    wanted,
)
from tpugraphs import files
from tpugraphs.child import ChildFailed
from tpugraphs.errors import BadRequest, Unwritable
from tpugraphs.measure import collect as collecting
from tpugraphs.measure import session as sessions
from tpugraphs.measure.collect import BEFORE, BROKEN, BUDGET, DONE, FIXED, STOPPED, Progress, _Replay, collect
from tpugraphs.measure.journal import AGAIN, FINALIST, REPEAT, read_runs
from tpugraphs.measure.judging import judge
from tpugraphs.measure.measurement import (
    COMPILE_ERROR,
    CRASH,
    OK,
    OUT_OF_MEMORY,
    TIMEOUT,
    WRONG_RESULT,
)
from tpugraphs.measure.timing import Ratio
from tpugraphs.program import capture_callable, xla
from tpugraphs.program.selection import Selected
from tpugraphs.space import Config
from tpugraphs.space.product import space_of
from tpugraphs.space.search import SEARCHES, search_named
from tpugraphs.target.simulated import FAILURES, SimulatedTarget

STATUS = {
    None: OK,
    "compile_error": COMPILE_ERROR,
    "crash": CRASH,
    "hang": TIMEOUT,
    "hog": OUT_OF_MEMORY,
    "wrong": WRONG_RESULT,
    "crash_run": CRASH,
    "hang_run": TIMEOUT,
}


def asked_for(count: int, seed: int = 0) -> list[Config]:
    return search_named("random", small_space(), count=count, seed=seed).ask(count)


def test_as_many_configs_as_asked_for_are_measured(tmp_path: Path) -> None:
    [one] = collected(tmp_path, wanted(configs=17))
    history = only_history(tmp_path)
    assert (one.ending, one.configs, one.new) == (DONE, 17, 17)
    assert digests(searched(history)) == [config.digest for config in asked_for(17)]
    assert set(statuses(history).values()) == {OK}
    assert len(history.repeats) == 3, "the default beside each batch, and beside the finalists"
    assert one.study == history.study.id
    assert one.spent_s["time"] > 0


def test_ratios_are_those_of_the_formula(tmp_path: Path) -> None:
    target = SimulatedTarget(noise=0.001)
    collected(tmp_path, wanted(target.name, configs=12))
    history = only_history(tmp_path)
    for one in history.asked.values():
        truth = target.true_ns("net", one.config.as_dict()) / target.default_ns
        assert one.ratio is not None
        assert abs(np.log(one.ratio.value / truth)) < 6 * target.noise
        assert len(one.samples_ns) == len(one.baseline_ns) == 3
    best = min(history.asked.values(), key=lambda one: target.true_ns("net", one.config.as_dict()))
    assert best.config in [one.config for one in history.finalists]
    assert len(history.finalists[0].samples_ns) == collecting.FINALIST_ROUNDS


def test_nothing_is_measured_twice(tmp_path: Path) -> None:
    collected(tmp_path, wanted(configs=8))
    before = only_history(tmp_path)
    [one] = collected(tmp_path, wanted(configs=8))
    after = only_history(tmp_path)
    assert (one.ending, one.configs, one.new) == (BEFORE, 8, 0)
    assert after == before
    [fewer] = collected(tmp_path, wanted(configs=5))
    assert (fewer.ending, fewer.configs) == (BEFORE, 5)


@pytest.mark.parametrize("search", SEARCHES)
def test_asking_for_more_later_extends(tmp_path: Path, search: str) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    target = SimulatedTarget(noise=0.0).name
    collected(whole, wanted(target, configs=40, search=search))
    for count, new in ((7, 7), (25, 18), (40, 15)):
        [one] = collected(parts, wanted(target, configs=count, search=search))
        assert (one.ending, one.configs, one.new) == (DONE, count, new)
    assert digests(searched(only_history(parts))) == digests(searched(only_history(whole)))


def target_with_each_failure_once(configs: Sequence[Config]) -> SimulatedTarget:
    shares = dict.fromkeys(FAILURES, 0.06)
    targets = (SimulatedTarget(seed=seed, **shares) for seed in range(100_000))
    expected = Counter([*FAILURES, *[None] * (len(configs) - len(FAILURES))])
    return next(one for one in targets if Counter(fate_of(one, config) for config in configs) == expected)


def test_failures_of_every_class_are_labelled_and_the_others_do_not_suffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_LIMIT_S", 1.0)
    asked = asked_for(14)
    target = target_with_each_failure_once(asked)
    [one] = collected(tmp_path, wanted(target.name, configs=14))
    history = only_history(tmp_path)
    assert one.ending == DONE
    assert statuses(history) == {config.digest: STATUS[fate_of(target, config)] for config in asked}
    for measurement in history.asked.values():
        assert (measurement.ratio is None) == (measurement.status != OK)
        assert (measurement.message == "") == (measurement.status == OK)
    judged = judge(history)
    assert judged.failed == Counter(STATUS[name] for name in FAILURES)
    assert len(digests(searched(history))) == len(set(digests(searched(history)))) == 14


def test_a_program_whose_every_config_fails_is_told(tmp_path: Path) -> None:
    [one] = collected(tmp_path, wanted("simulated:compile_error=1.0", configs=11))
    assert (one.ending, one.configs) == (DONE, 11)
    judged = judge(only_history(tmp_path))
    assert "11 of 11 configs failed" in judged.doubts
    assert judged.best is None


def silent(w: jax.Array, x: jax.Array) -> jax.Array:
    return (x * 0) @ w


def dot(w: jax.Array, x: jax.Array) -> jax.Array:
    return jax.numpy.tanh(x @ w)


def dot_program(name: str = "dot", function: object = dot) -> Selected:
    def capture() -> tuple[object, bytes]:
        rng = np.random.default_rng(0)
        arguments = (rng.normal(size=shape).astype(np.float32) for shape in ((16, 8), (4, 16)))
        program = capture_callable(function, *arguments, name=name)  # pyright: ignore[reportArgumentType]
        return program, xla.hlo_of_stablehlo(program.text)

    return Selected(name, name, capture)  # pyright: ignore[reportArgumentType]


def refused(name: str) -> Selected:
    def capture() -> tuple[object, bytes]:
        raise BadRequest(f"{name}: could not be traced")

    return Selected(name, name, capture)  # pyright: ignore[reportArgumentType]


def test_a_program_that_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    programs = [refused("gone"), dot_program("silent", silent), dot_program()]
    gone, silenced, good = collected(
        tmp_path, wanted("xla:cpu", configs=2, spaces=("layout",)), programs, watch=lambda _: None
    )
    assert (gone.ending, gone.study, gone.message) == (BROKEN, "", "gone: could not be traced")
    assert (silenced.ending, silenced.configs) == (BROKEN, 0)
    assert "its outputs do not vary" in silenced.message
    assert (good.ending, good.configs) == (DONE, 2)
    history = read_runs(tmp_path)[silenced.study]
    assert history.failed[0].value["message"] == silenced.message
    assert judge(history).doubts == (silenced.message,)


def test_a_program_without_knobs_is_passed_over(tmp_path: Path) -> None:
    program = capture_callable(lambda x: x + 1, np.ones(3, np.float32), name="fixed")
    fixed = Selected("fixed", "fixed", lambda: (program, xla.hlo_of_stablehlo(program.text)))
    [one] = collected(tmp_path, wanted(spaces=("form",)), [fixed])
    assert (one.ending, one.study) == (FIXED, "")


def test_what_compiles_to_the_same_program_is_measured_once(tmp_path: Path) -> None:
    """A row-major constraint often is what the compiler does by itself; and resuming remembers what was compiled."""
    program = dot_program()
    space = space_of(program.capture()[0], ("layout",))
    for count in (space.size // 2, space.size - 1):
        [one] = collected(
            tmp_path, wanted("xla:cpu", configs=count, spaces=("layout",), finalists=0, batch=20, rounds=1), [program]
        )
        assert (one.ending, one.configs) == (DONE, count)
    history = only_history(tmp_path)
    asked = history.asked
    twins = [one for one in asked.values() if one.same_as]
    assert twins
    first: dict[str, str] = {}
    for one in asked.values():
        if one.same_as:
            assert one.samples_ns == ()
            if one.same_as != Config().digest:
                original = asked[one.same_as]
                assert original.same_as == "", "it names the one that was measured"
                assert (original.identity, original.ratio) == (one.identity, one.ratio)
        else:
            assert one.samples_ns
            assert first.setdefault(one.identity, one.config.digest) == one.config.digest
    row_major = asked[space.config({"node0.output": "{1,0}"}).digest]
    assert row_major.same_as == Config().digest
    assert row_major.ratio == Ratio(1.0, 1.0, 1.0)
    assert judge(history).twins == len(twins)


def test_of_twins_the_one_that_was_measured_is_remembered() -> None:
    study, (one, other) = small_study(), asked_for(2)
    original = measured(one, 0.9, identity="both")
    twin = measured(other, 0.9, identity="both", same_as=one.digest)
    replay = _Replay(history_of(study, record(study, original), record(study, twin)), wanted(configs=5))
    assert {identity: known.config for identity, known in replay.identities.items()} == {"both": one}


def test_twins_are_not_measured_again_for_a_changed_machine() -> None:
    """They follow the one that was measured, however often that is."""
    study, (one, other) = small_study(), asked_for(2)
    drifted = measured(one, 0.9, identity="both", drifted=True)
    twin = measured(other, 0.9, identity="both", same_as=one.digest)
    records = [record(study, drifted), record(study, twin), record(study, drifted, AGAIN)]
    assert _Replay(history_of(study, *records), wanted(configs=5)).doubtful == [one]


def test_the_budget_ends_it(tmp_path: Path) -> None:
    target = SimulatedTarget(compile_s=0.1).name
    several_programs = several(2)
    asked = wanted(target, configs=10_000, batch=4, finalists=1)
    results = collected(tmp_path, asked, several_programs, budget_s=4.0)
    assert [one.ending for one in results] == [BUDGET, BUDGET]
    assert all(0 < one.configs < 10_000 for one in results)
    assert sum(one.wall_s for one in results) < 4.0 + 1.0
    assert results[0].wall_s < 0.75 * 4.0, "it left the second its share"
    for one in results:
        assert read_runs(tmp_path)[one.study].ended
    none = collected(tmp_path, asked, several_programs, budget_s=0.0)
    assert [(one.ending, one.new) for one in none] == [(BUDGET, 0), (BUDGET, 0)]


def test_ctrl_c_keeps_what_was_measured_and_the_same_call_goes_on(tmp_path: Path) -> None:
    undisturbed = [config.digest for config in asked_for(9)]
    asked, stops = wanted(configs=9, batch=3), 0
    for at in range(1, 12):
        runs = tmp_path / f"{at}"
        with interrupting(at) as watch:
            [one] = collected(runs, asked, watch=watch)
        if one.ending != STOPPED:
            assert one.ending == DONE
            break
        stops += 1
        kept = digests(searched(only_history(runs))) if one.new or list(runs.glob("journal/*")) else []
        assert kept == undisturbed[: one.new]
        assert one.configs == len(kept)
        [again] = collected(runs, asked)
        assert (again.ending, again.configs, again.new) == (DONE, 9, 9 - len(kept))
        assert digests(searched(only_history(runs))) == undisturbed
    assert stops > 4


def test_ctrl_c_ends_all_programs(tmp_path: Path) -> None:
    with interrupting(3) as watch:
        results = collected(tmp_path, wanted(configs=4), several(3), watch=watch)
    assert [one.ending for one in results] == [STOPPED]
    again = collected(tmp_path, wanted(configs=4), several(3))
    assert [(one.ending, one.configs) for one in again] == [(DONE, 4)] * 3


def test_a_worker_that_dies_at_the_end_fails_its_program_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(session: sessions.Session) -> float:
        raise ChildFailed("crash", "the worker is gone")

    monkeypatch.setattr(sessions.Session, "judge_drift", die)
    results = collected(tmp_path, wanted(configs=3), several(2))
    assert [(one.ending, one.message) for one in results] == [(BROKEN, "the worker is gone")] * 2
    monkeypatch.undo()
    again = collected(tmp_path, wanted(configs=3), several(2))
    assert [(one.ending, one.configs, one.new) for one in again] == [(DONE, 3, 0)] * 2


def test_those_who_watch_see_it_go_on(tmp_path: Path) -> None:
    seen: list[tuple[int, str, int, int]] = []

    def watch(progress: Progress) -> None:
        seen.append((progress.number, progress.phase, progress.done, progress.new))
        assert progress.programs == 2
        assert progress.wanted == 6
        assert progress.left_s is None or progress.left_s >= 0

    collected(tmp_path, wanted(configs=6, batch=3), several(2), watch=watch)
    assert [number for number, *_ in seen] == sorted(number for number, *_ in seen)
    assert [done for number, phase, done, _ in seen if number == 2 and phase.startswith("compiling")] == [0, 3]
    assert seen[-1][3] == 12


def test_a_machine_that_changed_is_flagged_and_measured_again(tmp_path: Path) -> None:
    target = SimulatedTarget(drift=1.0, compile_s=0.05)
    collected(tmp_path, wanted(target.name, configs=8, batch=2))
    history = only_history(tmp_path)
    drifted = [record.measurement for record in searched(history) if record.measurement and record.measurement.drifted]
    again = [record.measurement for record in history.measured if record.measurement and record.purpose == AGAIN]
    assert drifted
    assert [one.config for one in again] == [one.config for one in drifted]
    assert history.ended[-1].value["drift"] > 1.1
    assert any(doubt.startswith("the machine changed while") for doubt in judge(history).doubts)
    steady = tmp_path / "steady"
    collected(steady, wanted(configs=8))
    assert not any(one.drifted for one in only_history(steady).asked.values())
    assert AGAIN not in {record.purpose for record in only_history(steady).measured}


def test_measuring_again_does_not_lead_the_search_elsewhere(tmp_path: Path) -> None:
    """What a search asks for follows from what it was told at the time."""
    target = SimulatedTarget(drift=2.0, compile_s=0.02, noise=0.1)
    for count in (20, 40):
        [one] = collected(tmp_path, wanted(target.name, configs=count, search="default"))
        assert one.configs == count
    history = only_history(tmp_path)
    assert AGAIN in {record.purpose for record in history.measured}
    assert len(searched(history)) == len(set(digests(searched(history)))) == 40


def test_the_finalists_are_measured_in_a_fresh_process(tmp_path: Path) -> None:
    collected(tmp_path, wanted(configs=12, finalists=2))
    history = only_history(tmp_path)
    processes = {purpose: {record.value["process"] for record in history.measured if record.purpose == purpose}
                 for purpose in ("search", FINALIST, REPEAT)}  # fmt: skip
    assert processes == {"search": {1}, FINALIST: {2}, REPEAT: {1, 2}}
    assert 0 < len(history.finalists) <= 2
    assert all(one.ratio and history.asked[one.config.digest].ratio for one in history.finalists)


def test_another_machine_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [here] = collected(tmp_path, wanted(configs=5))
    found = collecting.fingerprint()
    monkeypatch.setattr(collecting, "fingerprint", lambda: {**found, "processor": "another"})
    [there] = collected(tmp_path, wanted(configs=5))
    assert (there.ending, there.new) == (DONE, 5)
    assert there.study != here.study
    assert len(read_runs(tmp_path)) == 2
    monkeypatch.setattr(collecting, "fingerprint", lambda: {**found, "system": "a newer one"})
    [here_again] = collected(tmp_path, wanted(configs=5))
    assert (here_again.ending, here_again.study) == (BEFORE, here.study)


def test_what_is_wanted_keeps_studies_apart(tmp_path: Path) -> None:
    asked = wanted(configs=2)
    for one in (asked, replace(asked, seed=1), replace(asked, search="default"), replace(asked, spaces=("layout",))):
        [result] = collected(tmp_path, one)
        assert (result.ending, result.new) == (DONE, 2)
    assert len(read_runs(tmp_path)) == 4


def test_a_second_collect_into_a_folder_is_told_off(tmp_path: Path) -> None:
    with files.sole_writer(tmp_path), pytest.raises(BadRequest, match=f"{tmp_path}: another process is writing"):
        collected(tmp_path, wanted(configs=2))
    assert not list(tmp_path.glob("journal/*"))


def test_a_disk_that_fills_up_ends_it_in_a_sentence_and_it_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, left = os.fsync, 12

    def filling(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", filling)
    with pytest.raises(Unwritable, match="the disk is full; free some space and run the same command again"):
        collected(tmp_path, wanted(configs=9, batch=1))
    monkeypatch.undo()
    kept = len(searched(only_history(tmp_path)))
    assert 0 < kept < 9
    [again] = collected(tmp_path, wanted(configs=9, batch=1))
    assert (again.ending, again.new) == (DONE, 9 - kept)
    assert digests(searched(only_history(tmp_path))) == [config.digest for config in asked_for(9)]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(Unwritable, match="could not be written"):
        collected(Path("/sys/kernel/runs"), wanted(configs=1))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"target": "tensorrt"}, "tensorrt: no such target"),
        ({"search": "annealing"}, "annealing: no such search"),
        ({"configs": 0}, "--configs 0: expected at least 1"),
        ({"target": "simulated:speed=1"}, "no such setting speed"),
    ],
)
def test_what_cannot_be_collected_is_refused_at_once(options: dict[str, object], says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        wanted(**options)  # pyright: ignore[reportArgumentType]


def test_a_small_space_is_measured_whole(tmp_path: Path) -> None:
    [one] = collected(tmp_path, wanted(configs=1000, spaces=("form",)))
    assert (one.ending, one.configs) == (DONE, small_space(("form",)).size - 1)
    [again] = collect([selected()], wanted(configs=1000, spaces=("form",)), tmp_path)
    assert again.ending == BEFORE


def test_the_study_says_what_was_measured(tmp_path: Path) -> None:
    collected(tmp_path, wanted(configs=1), [selected("net", "the nets")])
    study = only_history(tmp_path).study
    program, _ = selected().capture()
    assert (study.program, study.family, study.spaces, study.target) == ("net", "the nets", JOINT, "simulated")
    assert study.space == small_space()
    assert study.parameters == program.parameters
    assert study.collection == "joint:simulated:random"
