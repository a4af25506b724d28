"""Small programs with every kind of knob, and collects of them that take a second."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tpugraphs.measure import collect as collecting
from tpugraphs.measure.collect import Collected, Wanted, Watch, collect
from tpugraphs.measure.journal import BEGIN, MEASURED, SEARCH, History, Record, Study, read_runs
from tpugraphs.measure.measurement import OK, Measurement
from tpugraphs.measure.timing import Ratio
from tpugraphs.program import Program, capture_callable, xla
from tpugraphs.program.selection import Selected
from tpugraphs.space import Config, Space
from tpugraphs.space.product import encoding_of, space_of
from tpugraphs.target.simulated import SimulatedTarget

BATCH, HEIGHT, WIDTH, INPUTS, CHANNELS = 2, 6, 5, 3, 4
JOINT = ("layout", "form", "flags")


def small_net(weights: dict[str, Any], x: jax.Array) -> jax.Array:
    """A convolution, a depthwise one, a reshape and a dot."""
    numbers = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(x, weights["conv"], (1, 1), "SAME", dimension_numbers=numbers)
    groups = x.shape[-1]
    x = jax.lax.conv_general_dilated(
        x, weights["depthwise"], (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups
    )
    return jax.numpy.tanh(x.reshape(x.shape[0], -1) @ weights["head"])


@cache
def small_captured(name: str = "net", outputs: int = 7) -> tuple[Program, bytes]:
    rng = np.random.default_rng(0)

    def values(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    weights = {
        "conv": values(3, 3, INPUTS, CHANNELS),
        "depthwise": values(3, 3, 1, CHANNELS),
        "head": values(HEIGHT * WIDTH * CHANNELS, outputs),
    }
    program = capture_callable(small_net, weights, values(BATCH, HEIGHT, WIDTH, INPUTS), name=name)
    return program, xla.hlo_of_stablehlo(program.text)


def small_space(spaces: Sequence[str] = JOINT) -> Space:
    return space_of(small_captured()[0], spaces)


def selected(name: str = "net", family: str = "", outputs: int = 7) -> Selected:
    return Selected(name, family or name, lambda: small_captured(name, outputs))


def several(count: int) -> list[Selected]:
    return [selected(f"net{number}", outputs=7 + number) for number in range(count)]


def wanted(target: str = "simulated", configs: int = 10, **options: Any) -> Wanted:
    """Quick: a few rounds, no trying of processors."""
    quick = {"spaces": JOINT, "rounds": 3, "sample_s": 1e-4, "pinned": False, "profiled_calls": 0}
    return Wanted(target=target, configs=configs, **{**quick, **options})


def collected(into: Path, asked: Wanted, programs: Sequence[Selected] | None = None, **options: Any) -> list[Collected]:
    return collect(programs or [selected()], asked, into, **options)


def only_history(runs: Path) -> History:
    [history] = read_runs(runs).values()
    return history


def searched(history: History) -> list[Record]:
    """Every record of what a search asked for, in order: a config that was measured twice would be here twice."""
    return [record for record in history.measured if record.purpose == SEARCH]


def digests(records: Sequence[Record]) -> list[str]:
    return [record.measurement.config.digest for record in records if record.measurement]


def statuses(history: History) -> dict[str, str]:
    return {digest: one.status for digest, one in history.asked.items()}


def small_study(*, machine: str = "one", search: str = "random", seed: int = 0, target: str = "simulated") -> Study:
    """A study as `collect` writes it down, of a machine with this name for a processor."""
    program, hlo = small_captured()
    space = small_space()
    return Study(
        program=program.name,
        family=program.name,
        spaces=JOINT,
        search=search,
        seed=seed,
        target=target,
        space=space,
        encoding=encoding_of(program, space, hlo, JOINT),
        text_sha256="0" * 64,
        fingerprint={"processor": machine},
        parameters=3,
    )


def measured(config: Config, ratio: float | None = 1.0, status: str = OK, **more: Any) -> Measurement:
    return Measurement(config, status, None if ratio is None else Ratio(ratio, 0.99 * ratio, 1.01 * ratio), **more)


def record(study: Study, measurement: Measurement, purpose: str = SEARCH) -> Record:
    return Record(MEASURED, study.id, {"purpose": purpose}, measurement)


def history_of(study: Study, *records: Record, default_ns: float = 1e6) -> History:
    return History(study, list(records), [Record(BEGIN, study.id, {"default_ns": default_ns})])


@contextmanager
def interrupting(at: int) -> Iterator[Watch]:
    """A watch that is interrupted, as by Ctrl-C, the `at`-th time it is told something."""
    told = 0

    def watch(progress: collecting.Progress) -> None:
        nonlocal told
        told += 1
        if told == at:
            raise KeyboardInterrupt

    yield watch


def fate_of(target: SimulatedTarget, config: Config) -> str | None:
    """How a config is going to fail there, if it does."""
    return target.fate(json.dumps(config.as_dict(), sort_keys=True))
