"""The table of a tuning run says what was found, what changed, and how it was spent."""

from __future__ import annotations

import numpy as np

import tpugraphs as tg
from tests.kit.programs import SHIFTED, small_program
from tests.report.test_tables import text
from tpugraphs.measure.measurement import Measurement
from tpugraphs.measure.timing import Ratio
from tpugraphs.report import tuning
from tpugraphs.space import Config
from tpugraphs.space.product import space_of
from tpugraphs.tuning import Progress, Proof

PROGRAM = small_program()
SPACE = space_of(PROGRAM, options={"fusion_library": ("off",)}, forms=SHIFTED)
LIBRARY = SPACE.by_name["fusion_library"].label
BOTH = Config.of({"node0.form": "shifted", "fusion_library": "off"})


def outcome(candidate: Config = BOTH, proof: Proof | None = None, *measurements: Measurement) -> tg.Outcome:
    return tg.Outcome(
        program=PROGRAM,
        target="xla:cpu",
        space=SPACE,
        candidate=candidate,
        proof=proof,
        measurements=measurements,
        default_ns=5e6,
        default_profile={"tpugraphs.node0": 4e6, "tpugraphs.node1": 0.5e6, "other": 0.2e6},
        tuned_profile={"tpugraphs.node0": 0.3e6, "tpugraphs.node1": 0.4e6, "other": 0.2e6},
        budget_s=120,
        used_s=47,
        ended="exhausted",
        fingerprint={},
    )


PROOF = Proof(Ratio(0.25, 0.24, 0.26), Ratio(1.0, 0.99, 1.01), (5e6, 5.2e6, 5.1e6), (1.25e6, 1.3e6, 1.2e6))


def test_a_proof_is_shown_with_its_processes() -> None:
    shown = text(tuning.outcome(outcome(BOTH, PROOF, Measurement(BOTH, "ok", Ratio(0.25, 0.2, 0.3)))))
    assert max(map(len, text(tuning.outcome(outcome(BOTH, PROOF)), width=80).splitlines())) <= 80
    for words in (
        "depthwise_net on xla:cpu: 4.00x faster than the default (95 % interval 3.85 to 4.17)",
        "0.240 to 0.260",
        "default again",
        "0.250 0.250 0.235",
        LIBRARY,
        "shifted multiply-adds",
        "depthwise 3x3 convolution, 1x32x32x48",
        "300.000 µs",
        "1 of 8 configs; 47 s of 120 s used, search ended: exhausted",
    ):
        assert words in shown, words


def test_nothing_found_is_a_normal_end() -> None:
    tried = Measurement(Config.of({"fusion_library": "off"}), "ok", Ratio(1.12, 1.1, 1.15))
    shown = text(tuning.outcome(outcome(Config(), None, tried)))
    assert "nothing beats the default beyond noise" in shown
    assert f"{LIBRARY} off" in shown
    assert "1.120" in shown


def test_failures_are_told() -> None:
    failed = Measurement(BOTH, "crash", message="the worker ended with signal SIGABRT")
    shown = text(tuning.outcome(outcome(Config(), None, failed)))
    assert "1 failed (the worker ended with signal SIGABRT)" in shown


def test_the_view_while_it_runs() -> None:
    line = text(tuning.watching(Progress("searching", 12, 120, 5e6, Ratio(0.5, 0.4, 0.6), 7, 1)))
    assert (
        line.strip() == "searching · 12 of 120 s · default 5.000 ms · 7 configs measured, 1 failed · best so far 2.00x"
    )


def test_what_is_outside_the_profile_is_said() -> None:
    """Library calls can run where the profiler does not see them: the rows still add up to the time measured."""
    shown = text(tuning.outcome(outcome(BOTH, PROOF)))
    assert "outside the profile" in shown
    assert np.isclose(1.25 - 0.9, 0.35)
    assert "350.000 µs" in shown
