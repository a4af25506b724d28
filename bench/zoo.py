"""Which programs of the zoo run how fast here: what the tiers stand for.

    python bench/zoo.py [--save] [PROGRAM ...]

Without names: the whole small tier, and three programs of the large one. Each is compiled with the compiler's defaults
and runs on the inputs that tuning uses, in a process of its own; the figure is the median of its calls.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median

import machine

import tpugraphs as tg

LARGE = ("densenet121/train/b1", "inceptionv3/train/b1", "nasnet-mobile/train/b1")
SMALL_MS, LARGE_NODES = 150, 10_000
CALLS, LONGEST_S = 15, 20.0
ALONE = "--alone"


def main() -> None:
    names = [word for word in sys.argv[1:] if not word.startswith("--")]
    if ALONE in sys.argv:
        print(_run(names[0]))
        return
    wanted = names or [*(program.name for program in tg.programs.tier("small")), *LARGE]
    lines = list(_table(wanted))
    print("\n".join(lines))
    if "--save" in sys.argv:
        command = " ".join(["python bench/zoo.py", *names, "--save"])
        machine.save("The zoo on XLA:CPU", command, "\n".join(lines))


def _table(names: list[str]) -> Iterator[str]:
    small, slow = [], []
    yield "| program | tier | nodes | compile | a call | finite |"
    yield "|---|---|---|---|---|---|"
    for name in names:
        command = [sys.executable, __file__, ALONE, name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no word"])[-1]
            yield f"| {name} | {tg.programs[name].tier} | failed: {last} | | | |"
            continue
        nodes, compile_s, call_ms, finite = done.stdout.split()
        if tg.programs[name].tier == "small":
            small.append(float(call_ms))
            slow += [name] * (float(call_ms) > SMALL_MS)
        print(f"{name}: {call_ms} ms", file=sys.stderr)
        yield f"| {name} | {tg.programs[name].tier} | {int(nodes):,} | {compile_s} s | {call_ms} ms | {finite} |"
    if small:
        yield ""
        over = f"; over it: {', '.join(slow)}" if slow else ""
        yield f"Small tier: {len(small) - len(slow)} of {len(small)} programs in {SMALL_MS} ms or less{over}."


def _run(name: str) -> str:
    """Nodes, seconds of compiling, ms of a call, and whether all results are finite."""
    import jax
    import numpy as np

    from tpugraphs.measure.inputs import spread_inputs
    from tpugraphs.program.capture import capture_zoo
    from tpugraphs.target.xla import XlaTarget

    program = capture_zoo(tg.programs[name])
    start = time.perf_counter()
    executable = XlaTarget("cpu").build(program.text, {})
    compile_s = time.perf_counter() - start
    inputs = [jax.device_put(value) for value in spread_inputs(program.inputs, program.arguments)]
    outputs = executable.run(inputs)
    calls, begun = [], time.perf_counter()
    while len(calls) < CALLS and (not calls or time.perf_counter() - begun < LONGEST_S):
        start = time.perf_counter()
        executable.run(inputs)
        calls.append(1000 * (time.perf_counter() - start))
    finite = all(np.isfinite(np.asarray(output)).all() for output in outputs if output.dtype.kind in "fc")
    nodes = tg.capture(tg.programs[name]).num_nodes
    return f"{nodes} {compile_s:.1f} {median(calls):.1f} {'yes' if finite else 'no'}"


if __name__ == "__main__":
    main()
