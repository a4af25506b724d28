"""Forms and the fusion library together, by the plainest search: default against tuned, as a user gets it.

    python bench/forms.py [PROGRAM ...] [--small] [--budget 10m] [--save]

At most 80 measurements a program; without names, the programs with an aim, with --small all of the small tier. Beside
the proof stand IREE's default in the same units, where it runs the program, and the largest errors against a reference
in float64, as shares of an output's spread. Each program's row is kept in bench/runs/forms.jsonl as soon as it is
known, and what stands there for this processor is not measured again. --save writes the tables into bench/RESULTS.md.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any

import machine
import numpy as np
from rich.console import Console

from tpugraphs.measure import check
from tpugraphs.measure.fingerprint import fingerprint
from tpugraphs.measure.inputs import spread_inputs
from tpugraphs.measure.timing import interleaved, paired_ratio
from tpugraphs.program import mlir, programs, resolve_source
from tpugraphs.report import tuning
from tpugraphs.report.tables import time_of
from tpugraphs.space import Config
from tpugraphs.space.knobs import FORM
from tpugraphs.space.product import apply, space_of
from tpugraphs.target.iree import IreeTarget
from tpugraphs.target.xla import XlaTarget
from tpugraphs.tuning import Outcome, tune_program

AIMS = {
    "mobilenetv2": "≥ 10",
    "efficientnetb0": "≥ 7",
    "xception": "≥ 5",
    "convnext-tiny": "≥ 3",
    "mobilenetv2/train/b1": "≥ 3",
    "resnet50": "≥ 1.25",
}
MOST, BUDGET = 80, "10m"
LARGE = "efficientnetb7/train/b1"
KEPT = Path(__file__).with_name("runs") / "forms.jsonl"
BESIDE_LIMIT_S, BESIDE_ROUNDS = 300, 9
Row = dict[str, Any]
_BLOB, _HEX, _FLOAT = (
    re.compile(r'"0x([0-9A-F]+)"(> : tensor<[^>]*f32>)'),
    re.compile(r"0x([0-9A-F]{8})(?=[,\]>])"),
    "f32",
)


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["--beside"]:
        print(json.dumps(_beside(words[1], Config.of(json.loads(words[2])))))
        return
    budget = words[words.index("--budget") + 1] if "--budget" in words else BUDGET
    names = [word for word in words if not word.startswith("--") and word != budget] or list(AIMS)
    for name in [one.name for one in programs.tier("small")] if "--small" in words else names:
        if name not in _kept():
            _keep(_measured(name, budget))
    lines = [*_tables(list(_kept().values())), "", _rewriting(LARGE)]
    print("\n".join(lines))
    if "--save" in words:
        machine.save(
            "Forms and the fusion library on XLA:CPU", " ".join(["python bench/forms.py", *words]), "\n".join(lines)
        )


def _kept() -> dict[str, Row]:
    """What was measured on this processor, by program."""
    text = KEPT.read_text(encoding="utf-8") if KEPT.exists() else ""
    rows = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    return {row["program"]: row for row in rows if row["processor"] == fingerprint()["processor"]}


def _keep(row: Row) -> None:
    with KEPT.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _measured(name: str, budget: str) -> Row:
    start = time.monotonic()
    outcome = tune_program(resolve_source(name), budget=budget, start=start, most=MOST)
    Console(stderr=True, width=130).print(tuning.outcome(outcome))
    row: Row = {
        "program": name,
        "processor": fingerprint()["processor"],
        "default_ns": outcome.default_ns,
        "verdict": outcome.verdict,
        "configs": len(outcome.measurements),
        "failed": len(outcome.failed),
        "used_s": outcome.used_s,
        "budget": budget,
        "ended": outcome.ended,
        "config": outcome.best.as_dict(),
        **_asked(name, outcome.best),
    }
    if outcome.proof is not None:
        row |= _proved(outcome)
    return row


def _proved(outcome: Outcome) -> Row:
    proof = outcome.proof
    assert proof is not None
    return {
        "default_ns": float(np.median(proof.default_ns)),
        "tuned_ns": float(np.median(proof.tuned_ns)),
        "ratio": [proof.ratio.value, proof.ratio.low, proof.ratio.high],
        "again": [proof.noise.low, proof.noise.high],
    }


def _asked(name: str, config: Config) -> Row:
    """What stands beside, found in a process of its own, which may switch JAX to float64, hang or die."""
    try:
        command = [sys.executable, __file__, "--beside", name, config.to_json()]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=BESIDE_LIMIT_S)
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"iree": f"no answer within {BESIDE_LIMIT_S} s"}
    except subprocess.CalledProcessError as error:
        return {"iree": " ".join((error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1].split())}


def _beside(name: str, config: Config) -> Row:
    """IREE's default and, of a changed program, the errors; a sentence where one cannot be had."""
    row: Row = {}
    questions: dict[str, Callable[[], Any]] = {"iree": lambda: _iree(name)}
    if not config.is_default:
        questions["errors"] = lambda: _errors(name, config)
    for what, answer in questions.items():
        try:
            row[what] = answer()
        except Exception as error:  # whatever a compiler says
            row[what] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return row


def _tables(rows: list[Row]) -> Iterator[str]:
    proved = "default | tuned | speed-up, 95 % interval | default again | configs, failed | time"
    yield f"| program | aim | {proved} | error of the default, of the tuned | IREE's default |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        aim = AIMS.get(row["program"], "not slower")
        yield f"| {row['program']} | {aim} | {_cells(row)} | {_errors_of(row)} | {_iree_of(row)} |"
    yield ""
    yield from _summary(rows)


def _cells(row: Row) -> str:
    effort = f"{row['configs']}, {row['failed']} | {row['used_s']:.0f} s"
    if "ratio" not in row:
        return f"{time_of(row['default_ns'])} | – | {row['verdict']} | – | {effort}"
    value, low, high = row["ratio"]
    speedup = f"{1 / value:.2f}x, {1 / high:.2f} to {1 / low:.2f}"
    speedup = speedup if row["config"] else f"not proved ({speedup})"
    times = f"{time_of(row['default_ns'])} | {time_of(row['tuned_ns'])}"
    return f"{times} | {speedup} | {row['again'][0]:.3f} to {row['again'][1]:.3f} | {effort}"


def _errors_of(row: Row) -> str:
    errors = row.get("errors")
    return ", ".join(f"{error:.1e}" for error in errors) if isinstance(errors, list) else errors or "–"


def _iree_of(row: Row) -> str:
    found = row["iree"]
    if isinstance(found, str):
        return "does not compile it" if "CompileFailed" in found else found
    wrong = "" if found["excess"] <= 1 else ", other results"
    return f"{time_of(found['ns'])}, {1 / found['ratio']:.2f}x{wrong}"


def _summary(rows: list[Row]) -> Iterator[str]:
    gains = [1 / row["ratio"][0] if row["config"] else 1.0 for row in rows]
    faster = [gain for gain in gains if gain > 1]
    mean = exp(fmean(log(gain) for gain in gains)) if gains else 1.0
    yield f"{len(faster)} of {len(rows)} programs proved faster; geometric mean over all {mean:.2f}x."
    yield "What is not proved faster keeps its default."
    ran = [row for row in rows if not isinstance(row["iree"], str)]
    ahead = sum(row["iree"]["ratio"] < (row["ratio"][0] if row["config"] else 1.0) for row in ran)
    yield ""
    yield f"IREE's default runs {len(ran)} of them, and is faster than the tuned program on {ahead}."


def _rewriting(name: str) -> str:
    """How long it takes to write every node of a large program in another form."""
    program = resolve_source(name)
    knobs = space_of(program, (FORM,)).knobs
    config = Config.of({knob.name: knob.choices[1] for knob in knobs})
    module = mlir.parse(program.text, name)
    count = sum(1 for _ in mlir.operations(mlir.entry_block(module)))
    begun = time.perf_counter()
    apply(program, config)
    seconds = time.perf_counter() - begun
    begun = time.perf_counter()
    mlir.parse(program.text, name)
    parsing = time.perf_counter() - begun
    return (
        f"{name}: {count:,} operations, {len(knobs)} nodes written in another form in {seconds:.2f} s, of which "
        f"{parsing:.2f} s are parsing (5,000 operations in ≤ 1 s: {5000 * seconds / count:.2f} s)."
    )


def _iree(name: str) -> Row:
    """IREE's default beside XLA's, in turns, and how far their results lie apart."""
    program = resolve_source(name)
    inputs = spread_inputs(program.inputs, program.arguments)
    samplers, results = {}, []
    for target in (XlaTarget("cpu"), IreeTarget()):
        job = target.prepare(program, Config())
        executable, placed = target.build(job.module, job.options), [target.place(value) for value in inputs]
        results.append(check.by_name(executable(placed), []))
        samplers[target.name] = lambda calls, run=executable.sample_ns, given=placed: run(given, calls)
    samples = interleaved(samplers, rounds=BESIDE_ROUNDS, sample_s=0.03, seed=0)
    xla, iree = (samples[name] for name in samplers)
    return {
        "ns": float(np.median(iree)),
        "ratio": paired_ratio([(iree, xla)]).value,
        "excess": min(check.deviation(results[1], results[0])[0], 1e30),
    }


def _errors(name: str, config: Config) -> list[float]:
    """The largest deviations from a run in float64, as shares of an output's spread: of the default, of the config."""
    import jax

    program, target = resolve_source(name), XlaTarget("cpu")
    inputs = spread_inputs(program.inputs, program.arguments)
    found = []
    for one in (Config(), config):
        job = target.prepare(program, one)
        placed = [target.place(value, job.input_layouts.get(index)) for index, value in enumerate(inputs)]
        found.append(target.build(job.module, job.options)(placed))
    jax.config.update("jax_enable_x64", True)
    wide = [target.place(value.astype(np.float64) if value.dtype == np.float32 else value) for value in inputs]
    reference = target.build(_in_float64(program.text), {})(wide)
    errors = []
    for outputs in found:
        worst = 0.0
        for output, wanted in zip(outputs, reference, strict=True):
            spread = check.spread_of({"": wanted})
            if spread > 0:
                worst = max(worst, float(np.abs(output.astype(np.float64) - wanted).max()) / spread)
        errors.append(worst)
    return errors


def _in_float64(text: str) -> str:
    """The same StableHLO with every float32 made a float64."""

    def of_blob(match: re.Match[str]) -> str:
        values = np.frombuffer(bytes.fromhex(match[1]), "<f4").astype("<f8")
        return f'"0x{values.tobytes().hex().upper()}"{match[2]}'

    def of_hex(match: re.Match[str]) -> str:
        value = np.frombuffer(bytes.fromhex(match[1]), ">f4").astype(">f8")
        return f"0x{value.tobytes().hex().upper()}"

    lines = text.split("\n")
    for index, line in enumerate(lines):
        if "stablehlo.constant" in line and _FLOAT in line:
            line = _BLOB.sub(of_blob, line)
            lines[index] = line if '"0x' in line else _HEX.sub(of_hex, line)
    return re.sub(r"\bf32\b|(?<=x)f32\b", "f64", "\n".join(lines))


if __name__ == "__main__":
    main()
