"""Which operations of the zoo XLA:CPU runs far slower than this machine could: time against a bound.

    python bench/slow.py [PROGRAM ...] [--save]

The bound of an operation is its bytes at the speed of a large copy; convolutions and dots have more to do than that.
What stands highest takes the most time beyond its bound, of the default of each program of the small tier. --save
writes the table into bench/RESULTS.md.
"""

from __future__ import annotations

import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import machine
import numpy as np

from tpugraphs.measure.inputs import spread_inputs
from tpugraphs.program import programs, resolve_source
from tpugraphs.report.tables import time_of
from tpugraphs.target.xla import XlaTarget

ROWS, CALLS = 40, 3
_LINE = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*?)\)")
_SHAPE = re.compile(r"(\w+?)(\d+)\[([\d,]*)\]")
_OPERAND = re.compile(r"%([\w.\-]+)")


@dataclass
class Kind:
    """Operations of one kind, over programs."""

    ns: float = 0.0
    bound_ns: float = 0.0
    worst: str = ""
    worst_ns: float = 0.0


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--save"]
    lines = list(_table(words or [one.name for one in programs.tier("small")]))
    print("\n".join(lines))
    if "--save" in sys.argv:
        machine.save(
            "Slow operations on XLA:CPU", " ".join(["python bench/slow.py", *words, "--save"]), "\n".join(lines)
        )


def _table(names: list[str]) -> Iterator[str]:
    copied = _copied()
    yield f"Bounds: {copied / 1e9:.1f} GB/s copied."
    yield ""
    kinds: dict[str, Kind] = defaultdict(Kind)
    for name in names:
        for what, ns, bound_ns in _operations(name, copied):
            kind = kinds[what]
            kind.ns += ns
            kind.bound_ns += bound_ns
            if ns - bound_ns > kind.worst_ns:
                kind.worst, kind.worst_ns = name, ns - bound_ns
        print(name, file=sys.stderr)
    yield "| operation | time in all programs | bound by its bytes | times its bound | most of it in |"
    yield "|---|---|---|---|---|"
    for what, kind in sorted(kinds.items(), key=lambda item: item[1].bound_ns - item[1].ns)[:ROWS]:
        times = f"{kind.ns / kind.bound_ns:.0f}" if kind.bound_ns else "–"
        yield f"| {what} | {time_of(kind.ns)} | {time_of(kind.bound_ns)} | {times} | {kind.worst} |"


def _operations(name: str, copied: float) -> Iterator[tuple[str, float, float]]:
    """What it is, ns, and the bound, of each instruction of a program's default."""
    program, target = resolve_source(name), XlaTarget("cpu")
    executable = target.build(program.text, {})
    arguments = [target.place(value) for value in spread_inputs(program.inputs, program.arguments)]
    executable.run(arguments)
    spent = executable.operations(arguments, CALLS)
    sizes: dict[str, float] = {}
    for line in executable.hlo.splitlines():
        if (match := _LINE.match(line)) is None:
            continue
        instruction, shape, opcode, operands = match.groups()
        sizes[instruction] = _bytes(shape)
        if instruction in spent:
            moved = sizes[instruction] + sum(sizes.get(one, 0.0) for one in _OPERAND.findall(operands))
            yield _kind(opcode, instruction), spent[instruction], 1e9 * moved / copied


def _kind(opcode: str, instruction: str) -> str:
    """Fusions and calls by what XLA named them after, others by their opcode."""
    name = re.sub(r"[.\d]+", "", instruction)
    return f"{opcode}: {name}" if opcode in ("fusion", "call", "custom-call") else opcode


def _bytes(shape: str) -> float:
    return sum(
        int(bits) / 8 * prod(int(length) for length in dims.split(",") if length)
        for _, bits, dims in _SHAPE.findall(shape)
    )


def _copied() -> float:
    """Bytes a second of a large copy, read and written."""
    values, target, taken = np.ones(1 << 25, np.float32), np.empty(1 << 25, np.float32), []
    for _ in range(7):
        begun = time.perf_counter()
        np.copyto(target, values)
        taken.append(time.perf_counter() - begun)
    return 2 * values.nbytes / min(taken)


if __name__ == "__main__":
    main()
