"""The whole way: tune a function, prove it, run it, save it; whatever fails on the way is recorded."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tpugraphs as tg
from tests.kit.programs import SHIFTED, depthwise_net, net_arguments
from tests.program.test_capture import WRONG
from tpugraphs.errors import BadFile, BadRequest, TpuGraphsError
from tpugraphs.measure.measurement import Measurement
from tpugraphs.measure.timing import Ratio
from tpugraphs.measure.worker import Worker
from tpugraphs.program import capture_callable
from tpugraphs.report import tuning
from tpugraphs.space import Config
from tpugraphs.tuning import Progress, Proof, loop, tiles, tune_program
from tpugraphs.tuning.loop import seconds

pytestmark = pytest.mark.xdist_group("tune")
Ask = Callable[..., dict[str, Any]]


FORMS_AND_OPTION = {"fusion_library": "off", "node0.form": "shifted", "node2.form": "shifted"}


def cost_ns(choices: dict[str, str]) -> float:
    """Both forms help; the option hurts alone and helps with them."""
    forms = [name for name in choices if name != "fusion_library"]
    option = 1.0 if "fusion_library" not in choices else 0.8 if len(forms) == 2 else 1.3
    return 1e7 * 0.5 ** len(forms) * option


COSTS = {
    Config.of(dict(picked)).digest: cost_ns(dict(picked))
    for count in range(4)
    for picked in itertools.combinations(FORMS_AND_OPTION.items(), count)
}
SLOWER = 1.3e7
"""What all other configs cost."""
COSTS |= {"baseline": 1e7, "again": 1e7, "tuned": cost_ns(FORMS_AND_OPTION)}


def simulated(real: Ask) -> Ask:
    """Worker.ask that builds and checks for real, but takes times from a known cost: tests judge no clock."""

    def ask(self: Worker, do: str, limit_s: float, **arguments: Any) -> dict[str, Any]:
        if do != "time" or not self.alive:
            return real(self, do, limit_s, **arguments)
        rng = np.random.default_rng(arguments["seed"])
        noise = np.exp(0.005 * rng.normal(size=(len(arguments["names"]), arguments["rounds"])))
        return {
            "samples": {
                name: (COSTS.get(name, SLOWER) * row).tolist()
                for name, row in zip(arguments["names"], noise, strict=True)
            }
        }

    return ask


@pytest.fixture(autouse=True)
def clockless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "PROOF_PROCESSES", 2)
    monkeypatch.setattr(Worker, "ask", simulated(Worker.ask))


@pytest.fixture(scope="module")
def tuned() -> tg.Outcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "PROOF_PROCESSES", 2)
        patch.setattr(Worker, "ask", simulated(Worker.ask))
        return tune_small()


def tune_small(budget: float = 300) -> tg.Outcome:
    """Over a space that can be tried whole."""
    return tune_program(capture_callable(depthwise_net, *net_arguments()), budget=budget, forms=SHIFTED)


def assert_same(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_the_pair_is_found_and_proved(tuned: tg.Outcome) -> None:
    assert tuned.best.as_dict() == FORMS_AND_OPTION
    assert tuned.proof is not None
    assert tuned.proof.faster
    assert tuned.speedup == pytest.approx(5, rel=0.03)
    assert tuned.proof.noise.value == pytest.approx(1, rel=0.02)
    assert len(tuned.proof.default_ns) == len(tuned.proof.tuned_ns) == 2


def test_every_config_was_measured_against_the_default(tuned: tg.Outcome) -> None:
    assert len({measurement.config for measurement in tuned.measurements}) == len(tuned.measurements) == 7
    assert tuned.ended == "exhausted"
    for measurement in tuned.measurements:
        assert measurement.status == "ok"
        assert measurement.ratio is not None
        assert len(measurement.samples_ns) == len(measurement.baseline_ns) > 1


def test_an_outcome_runs_the_tuned_program(tuned: tg.Outcome) -> None:
    arguments = net_arguments()
    assert_same(tuned(*arguments), depthwise_net(*arguments))


def test_an_outcome_can_be_saved_and_loaded(tuned: tg.Outcome, tmp_path: Path) -> None:
    tuned.save(tmp_path / "tuned")
    assert sorted(path.name for path in (tmp_path / "tuned").iterdir()) == ["outcome.json", "program.mlir"]
    loaded = tg.Outcome.load(tmp_path / "tuned")
    assert (loaded.best, loaded.proof, loaded.measurements) == (tuned.best, tuned.proof, tuned.measurements)
    assert loaded.space == tuned.space
    assert str(loaded) == str(tuned)
    arguments = net_arguments()
    assert_same(loaded(*arguments), depthwise_net(*arguments))


def test_an_outcome_refuses_other_arguments(tuned: tg.Outcome) -> None:
    weights, x = net_arguments()
    for arguments, says in (
        ((weights, x[:, :16]), r"argument 4: expected float32 \(1, 32, 32, 48\), found float32 \(1, 16, 32, 48\)"),
        ((weights, x.astype(np.float16)), "argument 4: expected float32 .* found float16"),
        ((x, weights), "expected arguments nested as when it was tuned"),
        ((weights,), "expected arguments nested as when it was tuned"),
    ):
        with pytest.raises(BadRequest, match=says):
            tuned(*arguments)


def test_a_damaged_outcome_is_told_off(tuned: tg.Outcome, tmp_path: Path) -> None:
    tuned.save(tmp_path)
    path = tmp_path / "outcome.json"
    path.write_text(path.read_text().replace("shifted", "default", 1))
    with pytest.raises(BadFile, match="seal: expected the text as it was written"):
        tg.Outcome.load(tmp_path)
    with pytest.raises(BadFile, match="expected a file, found nothing"):
        tg.Outcome.load(tmp_path / "nowhere")


def test_a_program_without_room_ends_with_the_default() -> None:
    """The only other config is slower: no proof is run, the outcome runs the default and says so."""
    outcome = tg.tune(lambda x: np.float32(2) * x @ x.T, np.ones((8, 8), np.float32), budget=300)
    assert outcome.best.is_default
    assert outcome.proof is None
    assert outcome.speedup == 1
    assert "nothing beats the default beyond noise" in str(outcome)
    assert (outcome(np.ones((8, 8), np.float32)) == 16).all()


def test_a_proof_inside_the_noise_is_no_proof() -> None:
    again = Ratio(1.0, 0.96, 1.04)
    assert not Proof(Ratio(0.95, 0.94, 0.97), again, (1.0,), (1.0,)).faster
    assert Proof(Ratio(0.9, 0.89, 0.95), again, (1.0,), (1.0,)).faster


def failing_at(do: str, number: int, fail: Callable[[Worker], dict[str, Any] | None]) -> Ask:
    """Worker.ask with something going wrong at the n-th request of a kind."""
    real, seen = Worker.ask, 0

    def ask(self: Worker, what: str, limit_s: float, **arguments: Any) -> dict[str, Any]:
        nonlocal seen
        seen += what == do
        if what == do and seen == number and (reply := fail(self)) is not None:
            return reply
        return real(self, what, limit_s, **arguments)

    return ask


def ending(how: signal.Signals) -> Callable[[Worker], None]:
    """Ends the worker by a signal."""

    def end(worker: Worker) -> None:
        process = worker._process
        assert process is not None
        os.kill(process.pid, how)
        process.wait()

    return end


@pytest.mark.parametrize(
    ("how", "status"), [(signal.SIGABRT, "crash"), (signal.SIGKILL, "out-of-memory")], ids=["SIGABRT", "SIGKILL"]
)
def test_a_worker_that_dies_is_a_recorded_failure_not_the_end(
    how: signal.Signals, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What kills without a word is most often the system that is out of memory."""
    monkeypatch.setattr(Worker, "ask", failing_at("build", 3, ending(how)))
    outcome = tune_small()
    [failure] = outcome.failed
    assert failure.status == status
    assert how.name in failure.message
    assert len(outcome.measurements) == 7
    assert outcome.proof is not None


def test_what_does_not_compile_is_a_recorded_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "ask", failing_at("build", 2, lambda worker: {"built": [{"error": "no way"}]}))
    [failure] = tune_small().failed
    assert (failure.status, failure.message, failure.ratio) == ("compile-error", "no way", None)


def test_a_wrong_form_is_never_timed() -> None:
    program = capture_callable(depthwise_net, *net_arguments())
    outcome = tune_program(program, budget=300, forms={"one tap short": WRONG["one tap short"]})
    wrong = [one for one in outcome.measurements if any(choice == "one tap short" for _, choice in one.config.changes)]
    assert wrong
    assert {one.status for one in wrong} == {"wrong-result"}
    assert all(one.ratio is None and "of the output's spread" in one.message for one in wrong)


def test_ctrl_c_keeps_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(worker: Worker) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "ask", failing_at("build", 5, interrupt))
    outcome = tune_small()
    assert outcome.ended == "interrupted"
    assert len(outcome.measurements) == 3
    assert not outcome.candidate.is_default
    assert outcome.best.is_default, "what is not proved is not used"
    assert "not proved" in outcome.verdict
    tuning.outcome(outcome)


def test_a_budget_that_is_too_small_says_so() -> None:
    outcome = tune_small(budget=0.5)
    assert outcome.measurements == ()
    assert "nothing was measured: 0 s left no time for it, give more" in str(outcome)
    tuning.outcome(outcome)


def test_a_candidate_that_fails_in_the_proof_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof's third build is the candidate's."""
    real = Worker.ask

    def ask(self: Worker, do: str, limit_s: float, **arguments: Any) -> dict[str, Any]:
        reply = real(self, do, limit_s, **arguments)
        if [job["name"] for job in arguments.get("jobs", ())] == ["baseline", "again", "tuned"]:
            reply["built"][2] = {"error": "no more"}
        return reply

    monkeypatch.setattr(Worker, "ask", ask)
    outcome = tune_small()
    assert outcome.best.is_default
    assert outcome.verdict == "the proof failed: the best candidate is not proved, and so not used"
    assert outcome.failed[-1].message == "in the proof: no more"


def test_float64_is_taken_as_jit_takes_it(tuned: tg.Outcome) -> None:
    weights, x = net_arguments()
    assert_same(tuned(weights, x.astype(np.float64)), tuned(weights, x))


def test_the_default_itself_must_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "ask", failing_at("build", 1, ending(signal.SIGKILL)))
    with pytest.raises(TpuGraphsError, match="the default itself fails: the worker"):
        tune_small()


def test_outputs_that_do_not_vary_cannot_be_checked() -> None:
    with pytest.raises(BadRequest, match="its outputs do not vary"):
        tg.tune(lambda x: x * 0, np.ones((8,), np.float32), budget=300)


def test_who_watches_hears_of_it() -> None:
    heard: list[Progress] = []
    tg.tune(lambda x: x @ x.T, np.ones((64, 64), np.float32), budget=300, watch=heard.append)
    assert heard[0].phase == "measuring the default"
    assert heard[-1].measured > 1
    assert heard[-1].default_ns > 0


@pytest.mark.parametrize(
    ("budget", "expected"), [("90s", 90), ("2m", 120), ("1h", 3600), ("45", 45), ("1.5m", 90), (7, 7)]
)
def test_budgets(budget: str | float, expected: float) -> None:
    assert seconds(budget) == expected


@pytest.mark.parametrize("budget", ["soon", "2 weeks", "-3s", "0s", 0, -1])
def test_budgets_that_are_none(budget: str | float) -> None:
    with pytest.raises(BadRequest, match="budget"):
        seconds(budget)


def test_another_compiler_is_tuned_likewise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(loop, "OPTIONS", {"iree:llvm-cpu": {"im2col": ("on",)}})
    monkeypatch.setattr(tiles, "CHOICES", 3)
    program = capture_callable(depthwise_net, *net_arguments())
    outcome = tune_program(program, target="iree:llvm-cpu", budget=300, forms=SHIFTED)
    assert outcome.best.as_dict() == {"node0.form": "shifted", "node2.form": "shifted"}
    assert not outcome.failed
    assert {knob.kind for knob in outcome.space.knobs} == {"form", "flag", "tile"}
    outcome.save(tmp_path)
    assert_same(tg.Outcome.load(tmp_path)(*net_arguments()), depthwise_net(*net_arguments()))


def test_a_target_that_does_not_exist() -> None:
    with pytest.raises(BadRequest, match="cuda: no such target; expected xla:cpu"):
        tg.tune(lambda x: x, np.ones(3), target="cuda")


def test_saved_outcomes_are_plain_json(tuned: tg.Outcome, tmp_path: Path) -> None:
    tuned.save(tmp_path)
    saved = json.loads((tmp_path / "outcome.json").read_text())
    assert saved["candidate"] == tuned.candidate.as_dict()
    assert saved["proof"]["ratio"]["value"] == tuned.proof.ratio.value if tuned.proof else False
    first = saved["measurements"][0]
    assert first["status"] == "ok"
    assert isinstance(tuned.measurements[0], Measurement)
    assert isinstance(tuned.measurements[0].config, Config)
