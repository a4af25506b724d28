"""Which operations of the zoo XLA:CPU runs far slower than this machine could: time against a roofline bound.

    python bench/slow.py [PROGRAM ...] [--save]

The bound of a node is the longer of its operands and results at the speed of a large copy, and its own multiply-adds at
the speed of a large product; of what belongs to no node, its bytes alone. What stands highest takes the most time
beyond its bound, of the defaults of the small tier. --save writes the tables into bench/RESULTS.md.
"""

from __future__ import annotations

import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import machine
import numpy as np

from tpugraphs.measure.inputs import spread_inputs
from tpugraphs.program import Program, mlir, programs, resolve_source
from tpugraphs.report.tables import time_of
from tpugraphs.target.attribution import shares_by_operation
from tpugraphs.target.xla import XlaExecutable, XlaTarget

ROWS, CALLS = 24, 3
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*?)\)")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_CALLS = re.compile(r"calls=%?([\w.\-]+)")
_SHAPE = re.compile(r"(\w+?)(\d+)\[([\d,]*)\]")
_OPERAND = re.compile(r"%([\w.\-]+)")
_TELLING = (
    "fft sort topk scatter gather reduce-window dynamic-update-slice dynamic-slice while rng-bit-generator power tanh "
    "exponential exponential-minus-one log log-plus-one logistic sine cosine erf rsqrt sqrt divide reverse concatenate "
    "pad reduce transpose copy"
).split()
"""A fusion is called by the first of these that is in it."""


@dataclass(frozen=True)
class Machine:
    """What it does at best."""

    bytes_a_ns: float
    products_a_ns: float


@dataclass
class Kind:
    """Operations of one kind, over programs."""

    ns: float = 0.0
    bound_ns: float = 0.0
    worst: str = ""
    worst_ns: float = 0.0


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--save"]
    lines = list(_tables(words or [one.name for one in programs.tier("small")]))
    print("\n".join(lines))
    if "--save" in sys.argv:
        machine.save(
            "Slow operations on XLA:CPU", " ".join(["python bench/slow.py", *words, "--save"]), "\n".join(lines)
        )


def _tables(names: list[str]) -> Iterator[str]:
    best = Machine(_copied(), _multiplied())
    yield f"At best {best.bytes_a_ns:.1f} GB/s copied, {2 * best.products_a_ns:.0f} GFLOP/s in a large product."
    found: tuple[dict[str, Kind], dict[str, Kind]] = (defaultdict(Kind), defaultdict(Kind))
    for name in names:
        for kinds, spent in zip(found, _spent(name, best), strict=True):
            for what, ns, bound_ns in spent:
                kind = kinds[what]
                kind.ns += ns
                kind.bound_ns += bound_ns
                if ns - bound_ns > kind.worst_ns:
                    kind.worst, kind.worst_ns = name, ns - bound_ns
        print(name, file=sys.stderr)
    for title, kinds in zip(("node", "what belongs to no node"), found, strict=True):
        yield ""
        yield f"| {title} | time in all programs | bound | times its bound | most of it in |"
        yield "|---|---|---|---|---|"
        for what, kind in sorted(kinds.items(), key=lambda item: item[1].bound_ns - item[1].ns)[:ROWS]:
            times = f"{kind.ns / kind.bound_ns:.1f}" if kind.bound_ns else "–"
            yield f"| {what} | {time_of(kind.ns)} | {time_of(kind.bound_ns)} | {times} | {kind.worst} |"


Spent = Iterable[tuple[str, float, float]]


def _spent(name: str, best: Machine) -> tuple[Spent, Spent]:
    """What it is, ns, and the bound: of a program's nodes, and of what belongs to none."""
    program, target = resolve_source(name), XlaTarget("cpu")
    executable = target.build(program.text, {})
    arguments = [target.place(value) for value in spread_inputs(program.inputs, program.arguments)]
    executable.run(arguments)
    taken = executable.operations(arguments, CALLS)
    shares = shares_by_operation(executable.hlo)
    by_tag: dict[str, float] = {}
    for operation, ns in taken.items():
        for tag, share in shares.get(operation, {}).items():
            by_tag[tag] = by_tag.get(tag, 0.0) + share * ns
    others = {operation: ns for operation, ns in taken.items() if operation not in shares}
    return list(_nodes(program, by_tag, best)), list(_others(executable, others, best))


def _nodes(program: Program, by_tag: dict[str, float], best: Machine) -> Iterator[tuple[str, float, float]]:
    module = mlir.parse(program.text, program.name)
    with module.context:
        for op in mlir.operations(mlir.entry_block(module)):
            tag = mlir.tag_of(op)
            if tag in by_tag:
                ns = by_tag.pop(tag)
                moved = sum(_bytes_of(value) for value in (*op.operation.operands, *op.operation.results))
                bound_ns = max(moved / best.bytes_a_ns, _products(op.operation) / best.products_a_ns)
                yield _kind(op.operation), ns, bound_ns


def _kind(op: Any) -> str:
    """`depthwise 3x3 convolution`, by what the description says before the shape, without figures of one node."""
    words = mlir.describe(op).partition(",")[0]
    if op.name != "stablehlo.convolution":
        return words
    if mlir.attribute(op, "batch_group_count", [1])[0] > 1:
        return "gradient of a grouped kernel (batch groups)"
    kernel, output = mlir.shape_of(op.operands[1]), mlir.shape_of(op.results[0])
    numbers = mlir.convolution_numbers(op)
    dilated = any(step > 1 for step in mlir.attribute(op, "lhs_dilation", [1]))
    what = "dilated " if dilated else ""
    what += "depthwise " if "depthwise" in words else "grouped " if "group" in words else ""
    if numbers is not None and prod(kernel[dim] for dim in numbers["kernel_spatial"]) == 1:
        return f"{what}pointwise convolution"
    if numbers is not None and prod(kernel[dim] for dim in numbers["kernel_spatial"]) > prod(
        output[dim] for dim in numbers["output_spatial"]
    ):
        return f"{what}convolution with a window larger than its output"
    return f"{what}convolution"


def _products(op: Any) -> float:
    """Multiply-adds of a convolution or dot."""
    output = prod(mlir.shape_of(op.results[0]))
    if op.name == "stablehlo.dot_general":
        left, right = (prod(mlir.shape_of(value)) for value in op.operands)
        numbers = str(op.attributes["dot_dimension_numbers"])
        match = re.search(r"lhs_batching_dimensions = \[([\d, ]*)\]", numbers)
        batch = prod(mlir.shape_of(op.operands[0])[int(dim)] for dim in match[1].split(",")) if match else 1
        return (left * right * output / batch) ** 0.5  # (bmk)(bkn)(bmn) / b is the square of bmkn
    numbers = mlir.convolution_numbers(op) if op.name == "stablehlo.convolution" else None
    if numbers is None:
        return 0.0
    kernel = mlir.shape_of(op.operands[1])
    return output * prod(kernel) / kernel[numbers["kernel_output"]]


def _bytes_of(value: Any) -> float:
    kind = str(value.type)
    bits = re.search(r"(?:f|i|ui|bf)(\d+)>*$", kind)
    return prod(mlir.shape_of(value)) * (int(bits[1]) if bits else 32) / 8


def _others(executable: XlaExecutable, taken: dict[str, float], best: Machine) -> Iterator[tuple[str, float, float]]:
    """By opcode, fusions by the most telling that is in them; the bound is that of one run."""
    inside: dict[str, set[str]] = defaultdict(set)
    sizes: dict[str, float] = {}
    current = ""
    for line in executable.hlo.splitlines():
        if (head := _COMPUTATION.match(line)) is not None:
            current = head[1]
        if (match := _INSTRUCTION.match(line)) is None:
            continue
        instruction, shape, opcode, operands = match.groups()
        inside[current].add(opcode)
        sizes[instruction] = _bytes(shape)
        if instruction in taken:
            called = _CALLS.search(line)
            what = opcode if called is None else _telling(inside[called[1]])
            moved = sizes[instruction] + sum(sizes.get(one, 0.0) for one in _OPERAND.findall(operands))
            yield what, taken[instruction], moved / best.bytes_a_ns


def _telling(opcodes: set[str]) -> str:
    return next((f"fusion with {opcode}" for opcode in _TELLING if opcode in opcodes), "elementwise fusion")


def _bytes(shape: str) -> float:
    return sum(
        int(bits) / 8 * prod(int(length) for length in dims.split(",") if length)
        for _, bits, dims in _SHAPE.findall(shape)
    )


def _copied() -> float:
    """Bytes a ns of a large copy, read and written."""
    values, target, taken = np.ones(1 << 25, np.float32), np.empty(1 << 25, np.float32), []
    for _ in range(7):
        begun = time.perf_counter_ns()
        np.copyto(target, values)
        taken.append(time.perf_counter_ns() - begun)
    return 2 * values.nbytes / min(taken)


def _multiplied() -> float:
    """Multiply-adds a ns of XLA's largest products."""
    length = 1536
    left = jax.numpy.ones((length, length), jax.numpy.float32)
    product, taken = jax.jit(lambda x: x @ x), []
    for _ in range(9):
        begun = time.perf_counter_ns()
        product(left).block_until_ready()
        taken.append(time.perf_counter_ns() - begun)
    return length**3 / min(taken)


if __name__ == "__main__":
    main()
