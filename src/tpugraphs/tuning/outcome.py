"""What tuning returns: the best config, the proof, and the tuned program itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import jax

from tpugraphs import files
from tpugraphs.errors import BadFile, BadRequest
from tpugraphs.measure.inputs import numpy_dtype
from tpugraphs.measure.measurement import Measurement
from tpugraphs.measure.timing import Ratio
from tpugraphs.program import InputSpec, Node, Program
from tpugraphs.program.trees import describe_tree, rebuild
from tpugraphs.space import Config, Knob, Space
from tpugraphs.target import Executable, Target, target_named

SCHEMA_VERSION = 2
_OUTCOME, _PROGRAM = "outcome.json", "program.mlir"


@dataclass(frozen=True, slots=True)
class Proof:
    """The best config and the default, measured again in turns, in fresh processes."""

    ratio: Ratio
    noise: Ratio
    """The default, compiled once more, over the default: what comes out where nothing differs."""
    default_ns: tuple[float, ...]
    """Per process, the median."""
    tuned_ns: tuple[float, ...]

    @property
    def margin(self) -> float:
        """How far the default itself strays from 1."""
        return max(abs(self.noise.low - 1), abs(self.noise.high - 1))

    @property
    def faster(self) -> bool:
        """Whether the whole interval lies beyond the noise."""
        return self.ratio.high < 1 - self.margin


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The result of tuning a program. Call it with the program's arguments to run the tuned program."""

    program: Program
    target: str
    space: Space
    candidate: Config
    """The best of the search; the default where nothing seemed faster."""
    proof: Proof | None
    measurements: tuple[Measurement, ...]
    default_ns: float
    default_profile: Mapping[str, float]
    """ns per call by node tag, the default's."""
    tuned_profile: Mapping[str, float]
    budget_s: float
    used_s: float
    ended: str
    """Why the search ended: budget, count, exhausted or interrupted."""
    fingerprint: Mapping[str, str]
    _running: list[Executable] = field(default_factory=list, repr=False)

    @property
    def best(self) -> Config:
        """The config to use: the candidate if it was proved faster, else the default."""
        return self.candidate if self.proof is not None and self.proof.faster else Config()

    @property
    def speedup(self) -> float:
        """Default time over best time, 1 where nothing beats the default."""
        return self.proof.ratio.speedup if self.proof is not None and not self.best.is_default else 1.0

    @property
    def failed(self) -> tuple[Measurement, ...]:
        return tuple(measurement for measurement in self.measurements if measurement.status != "ok")

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.proof is not None and self.proof.faster:
            ratio = self.proof.ratio
            low, high = 1 / ratio.high, 1 / ratio.low
            return f"{ratio.speedup:.2f}x faster than the default (95 % interval {low:.2f} to {high:.2f})"
        if self.proof is None and not self.candidate.is_default:
            how = "interrupted before the proof" if self.ended == "interrupted" else "the proof failed"
            return f"{how}: the best candidate is not proved, and so not used"
        if not self.measurements and self.ended != "exhausted":
            return f"nothing was measured: {self.budget_s:.0f} s left no time for it, give more"
        return "nothing beats the default beyond noise"

    @property
    def knobs(self) -> Mapping[str, Knob]:
        return self.space.by_name

    def __call__(self, *arguments: Any) -> Any:
        """Runs the tuned program; the first call compiles it."""
        leaves, structure = jax.tree.flatten(arguments)
        if self.program.in_tree is not None and describe_tree(structure) != self.program.in_tree:
            raise BadRequest(f"{self.program.name}: expected arguments nested as when it was tuned, found {structure}")
        values = _checked(self.program, self._target, leaves)
        if not self._running:
            job = self._target.prepare(self.program, self.best)
            self._running.append(self._target.build(job.module, job.options))
        results = self._running[0].run(values)
        return results if self.program.out_tree is None else rebuild(self.program.out_tree, results)

    @property
    def _target(self) -> Target:
        return target_named(self.target)

    def __str__(self) -> str:
        return f"{self.program.name} on {self.target}: {self.verdict}"

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes `outcome.json` and `program.mlir`; the weights are arguments and stay with the caller."""
        target, program = Path(folder), self.program
        value = {
            "schema_version": SCHEMA_VERSION,
            "program": {
                "name": program.name,
                "inputs": [asdict(spec) for spec in program.inputs],
                "nodes": [asdict(node) for node in program.nodes],
                "in_tree": program.in_tree,
                "out_tree": program.out_tree,
            },
            "target": self.target,
            "space": [asdict(knob) for knob in self.space.knobs],
            "candidate": self.candidate.as_dict(),
            "proof": None if self.proof is None else asdict(self.proof),
            "measurements": [measurement.to_json() for measurement in self.measurements],
            "default_ns": self.default_ns,
            "default_profile": dict(self.default_profile),
            "tuned_profile": dict(self.tuned_profile),
            "budget_s": self.budget_s,
            "used_s": self.used_s,
            "ended": self.ended,
            "fingerprint": dict(self.fingerprint),
        }
        files.write_text(target / _PROGRAM, program.text)
        files.write_sealed_json(target / _OUTCOME, value)

    @staticmethod
    def load(folder: str | os.PathLike[str]) -> Outcome:
        """Reads what `save` wrote; the program is compiled when it is first called."""
        path = Path(folder) / _OUTCOME
        value = files.read_sealed_json(path, "outcome", "tune the program again")
        version = value.get("schema_version") if isinstance(value, dict) else None
        if version != SCHEMA_VERSION:
            raise BadFile(path, "schema_version", expected=str(SCHEMA_VERSION), found=str(version))
        text = files.read_bytes(Path(folder) / _PROGRAM, "program").decode("utf-8", "replace")
        saved = value["program"]
        program = Program(
            name=saved["name"],
            text=text,
            inputs=tuple(InputSpec(tuple(spec["shape"]), spec["dtype"], spec["fan_in"]) for spec in saved["inputs"]),
            nodes=tuple(Node(**node) for node in saved["nodes"]),
            in_tree=saved["in_tree"],
            out_tree=saved["out_tree"],
        )
        proof = value["proof"]
        return Outcome(
            program=program,
            target=value["target"],
            space=Space(tuple(Knob(**{**knob, "choices": tuple(knob["choices"])}) for knob in value["space"])),
            candidate=Config.of(value["candidate"]),
            proof=None if proof is None else _read_proof(proof),
            measurements=tuple(Measurement.from_json(one) for one in value["measurements"]),
            **{
                key: value[key]
                for key in (
                    "default_ns",
                    "default_profile",
                    "tuned_profile",
                    "budget_s",
                    "used_s",
                    "ended",
                    "fingerprint",
                )
            },
        )


def _checked(program: Program, target: Target, leaves: list[Any]) -> list[Any]:
    """Device arrays of exactly the program's shapes and dtypes: the runtime itself would not notice others."""
    if len(leaves) != len(program.inputs):
        raise BadRequest(f"{program.name}: expected {len(program.inputs)} arrays, found {len(leaves)}")
    values = []
    for index, (leaf, spec) in enumerate(zip(leaves, program.inputs, strict=True)):
        value = jax.numpy.asarray(leaf)  # as jit would take it: float64 becomes float32 unless JAX is told otherwise
        if value.shape != spec.shape or value.dtype != numpy_dtype(spec.dtype):
            wanted = f"{spec.dtype} {spec.shape}"
            raise BadRequest(f"{program.name}: argument {index}: expected {wanted}, found {value.dtype} {value.shape}")
        values.append(target.place(cast(Any, value), None))
    return values


def _read_proof(value: dict[str, Any]) -> Proof:
    return Proof(
        ratio=Ratio(**value["ratio"]),
        noise=Ratio(**value["noise"]),
        default_ns=tuple(value["default_ns"]),
        tuned_ns=tuple(value["tuned_ns"]),
    )
