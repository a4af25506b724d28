"""Forms and the fusion library together, by the plainest search: default against tuned, as a user gets it.

    python bench/forms.py [PROGRAM ...] [--save]

At most 80 measurements and ten minutes a program. Beside the proof stand the largest errors against a reference in
float64, as shares of an output's spread. --save writes the table into bench/RESULTS.md.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import machine
import numpy as np
from rich.console import Console

from tpugraphs.measure.check import spread_of
from tpugraphs.measure.inputs import spread_inputs
from tpugraphs.program import mlir, resolve_source
from tpugraphs.report import tuning
from tpugraphs.report.tables import time_of
from tpugraphs.space import Config
from tpugraphs.space.knobs import FORM
from tpugraphs.space.product import apply, space_of
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
_BLOB, _HEX, _FLOAT = (
    re.compile(r'"0x([0-9A-F]+)"(> : tensor<[^>]*f32>)'),
    re.compile(r"0x([0-9A-F]{8})(?=[,\]>])"),
    "f32",
)


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--save"]
    if words[:1] == ["--errors"]:
        print(json.dumps(_errors(words[1], Config.of(json.loads(words[2])))))
        return
    lines = [*_table(words or list(AIMS)), "", _rewriting(LARGE)]
    print("\n".join(lines))
    if "--save" in sys.argv:
        command = " ".join(["python bench/forms.py", *words, "--save"])
        machine.save("Forms and the fusion library on XLA:CPU", command, "\n".join(lines))


def _table(names: list[str]) -> Iterator[str]:
    headings = "default | tuned | speed-up, 95 % interval | default again | configs, failed | time"
    yield f"| program | aim | {headings} | error of the default, of the tuned |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name in names:
        start = time.monotonic()
        outcome = tune_program(resolve_source(name), budget=BUDGET, start=start, most=MOST)
        Console(stderr=True, width=130).print(tuning.outcome(outcome))
        yield f"| {name} | {AIMS.get(name, 'not slower')} | {_cells(outcome)} | {_error_cells(name, outcome)} |"


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


def _cells(outcome: Outcome) -> str:
    effort = f"{len(outcome.measurements)}, {len(outcome.failed)} | {outcome.used_s:.0f} s"
    if outcome.proof is None:
        return f"{time_of(outcome.default_ns)} | – | {outcome.verdict} | – | {effort}"
    proof, ratio, again = outcome.proof, outcome.proof.ratio, outcome.proof.noise
    speedup = f"{ratio.speedup:.2f}x, {1 / ratio.high:.2f} to {1 / ratio.low:.2f}"
    times = " | ".join(time_of(float(np.median(values))) for values in (proof.default_ns, proof.tuned_ns))
    return f"{times} | {speedup} | {again.low:.3f} to {again.high:.3f} | {effort}"


def _error_cells(name: str, outcome: Outcome) -> str:
    """In a process of its own, which may switch JAX to float64."""
    if outcome.best.is_default:
        return "–"
    command = [sys.executable, __file__, "--errors", name, outcome.best.to_json()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return ", ".join(f"{error:.1e}" for error in json.loads(done.stdout.splitlines()[-1]))


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
            spread = spread_of({"": wanted})
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
