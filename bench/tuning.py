"""Tuning the zoo's programs, each twice with the default budget: default against tuned, as the user gets it.

    python bench/tuning.py [PROGRAM ...] [--save]

Takes up to two minutes a run. --save writes the table into bench/RESULTS.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import machine
from rich.console import Console

from tpugraphs.program import resolve_source
from tpugraphs.report import tuning
from tpugraphs.report.tables import time_of
from tpugraphs.tuning import Outcome, tune_program

AIMS = {"mobilenetv2": "≥ 10", "efficientnetb0": "≥ 7", "resnet50": "≥ 1.2", "transformer": "not slower"}
RUNS, BUDGET = 2, "2m"


def main() -> None:
    arguments = [word for word in sys.argv[1:] if not word.startswith("--")]
    lines = list(_table(arguments or list(AIMS)))
    print("\n".join(lines))
    if "--save" in sys.argv:
        command = " ".join(["python bench/tuning.py", *arguments, "--save"])
        machine.save("Tuning the zoo on XLA:CPU", command, "\n".join(lines))


def _table(names: list[str]) -> Iterator[str]:
    headings = "default | tuned | speed-up, 95 % interval | ratio by process | default again | configs | time of 120 s"
    yield f"| program, run | aim | {headings} |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name in names:
        for run in range(RUNS):
            start = time.monotonic()
            outcome = tune_program(resolve_source(name), budget=BUDGET, start=start)
            Console(stderr=True, width=130).print(tuning.outcome(outcome))
            yield f"| {name}, {run + 1} | {AIMS[name]} | {_cells(outcome)} |"


def _cells(outcome: Outcome) -> str:
    effort = f"{len(outcome.measurements)} | {outcome.used_s:.0f} s"
    if outcome.proof is None:
        return f"{time_of(outcome.default_ns)} | – | {outcome.verdict} | – | – | {effort}"
    proof, ratio, again = outcome.proof, outcome.proof.ratio, outcome.proof.noise
    speedup = f"{ratio.speedup:.2f}x, {1 / ratio.high:.2f} to {1 / ratio.low:.2f}"
    if not proof.faster:
        speedup = f"{outcome.verdict} ({speedup})"
    by_process = ", ".join(
        f"{tuned / default:.3f}" for tuned, default in zip(proof.tuned_ns, proof.default_ns, strict=True)
    )
    times = " | ".join(time_of(sorted(values)[len(values) // 2]) for values in (proof.default_ns, proof.tuned_ns))
    return f"{times} | {speedup} | {by_process} | {again.low:.3f} to {again.high:.3f} | {effort}"


if __name__ == "__main__":
    main()
