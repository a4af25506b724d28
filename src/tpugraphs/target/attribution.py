"""Which nodes of a program the instructions of its compiled HLO belong to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tpugraphs.program.mlir import TAG

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (?:\(.*?\)|\S+) ([\w\-]+)\((.*?)\)")
_CALLS = re.compile(r"(?:calls|to_apply)=%?([\w.\-]+)")
_NAME = re.compile(r"%([\w.\-]+)")
_COMPUTING = ("convolution", "dot")
Shares = dict[str, dict[str, float]]


@dataclass
class _Computation:
    """What is in one computation."""

    tags: Counter[str] = field(default_factory=Counter)
    computes: bool = False
    """Whether a convolution or dot is among its instructions."""
    users: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Instruction:
    computation: str
    computes: bool
    tag: str | None
    called: str | None


def shares_by_operation(hlo: str) -> Shares:
    """For each instruction of an HLO text, the nodes it belongs to by their share of what it is made of.

    A convolution or dot without a tag is what the compiler made of a node behind it, as it makes the gradient of a
    depthwise kernel out of a full convolution and a mask: it and what leads from it there belong to that node.
    """
    computations, instructions = _read(hlo)
    shares: Shares = {}
    for name, one in instructions.items():
        inside = computations[one.called].tags if one.called in computations else Counter[str]()
        if inside:
            shares[name] = {tag: count / inside.total() for tag, count in inside.items()}
        elif one.tag is not None:
            shares[name] = {one.tag: 1.0}
    for name, one in instructions.items():
        computes = one.computes or (one.called in computations and computations[one.called].computes)
        if computes and name not in shares:
            found = dict(_behind(name, computations[one.computation].users, shares))
            shares.update(found)
    return shares


def _read(hlo: str) -> tuple[dict[str, _Computation], dict[str, _Instruction]]:
    computations: dict[str, _Computation] = {}
    instructions: dict[str, _Instruction] = {}
    current = ""
    for line in hlo.splitlines():
        if (head := _COMPUTATION.match(line)) is not None:
            current = head[1]
            computations[current] = _Computation()
        elif (match := _INSTRUCTION.match(line)) is not None:
            name, opcode, operands = match.groups()
            tag, called, here = TAG.search(line), _CALLS.search(line), computations[current]
            instructions[name] = _Instruction(
                current, opcode in _COMPUTING, tag[0] if tag else None, called[1] if called else None
            )
            here.computes |= opcode in _COMPUTING
            if tag is not None:
                here.tags[tag[0]] += 1
            for operand in _NAME.findall(operands):
                here.users.setdefault(operand, []).append(name)
    return computations, instructions


def _behind(start: str, users: Mapping[str, list[str]], shares: Shares) -> Iterator[tuple[str, dict[str, float]]]:
    """The instructions from here to the nearest that belongs to a node, each with that one's shares."""
    came_from: dict[str, str] = {start: ""}
    waiting = [start]
    for name in waiting:
        for user in users.get(name, []):
            if user in shares:
                while name:
                    yield name, shares[user]
                    name = came_from[name]
                return
            if user not in came_from:
                came_from[user] = name
                waiting.append(user)
