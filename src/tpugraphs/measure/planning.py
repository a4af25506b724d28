"""What to collect of a program: what is wanted, what there is to vary, and about how long it will take."""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tpugraphs.errors import BadRequest, TpuGraphsError
from tpugraphs.measure.fingerprint import fingerprint
from tpugraphs.measure.journal import Study
from tpugraphs.measure.session import FIRST_LIMIT_S, ROUNDS, SAMPLE_S, Session
from tpugraphs.program import Program
from tpugraphs.program.graphs import node_of_place
from tpugraphs.program.selection import Selected
from tpugraphs.space import Space
from tpugraphs.space.knobs import FORM, SPACES
from tpugraphs.space.layout import OPERATIONS
from tpugraphs.space.product import encoding_of, space_of, spaces_named
from tpugraphs.space.search import SEARCHES
from tpugraphs.target import target_named

BATCH = 12
"""How many configs are compiled together and then timed in turns."""
FINALISTS, FINALIST_ROUNDS = 3, 12
PROFILED_CALLS = 2
FIXED = "nothing to vary"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to collect of every program."""

    spaces: tuple[str, ...]
    target: str = "xla:cpu"
    search: str = "random"
    configs: int = 100
    seed: int = 0
    batch: int = BATCH
    rounds: int = ROUNDS
    sample_s: float = SAMPLE_S
    profiled_calls: int = PROFILED_CALLS
    finalists: int = FINALISTS
    pinned: bool = True
    transposes: bool = False
    """Whether layouts of transposes vary too."""
    limit_s: float = FIRST_LIMIT_S
    """What the default may take to compile, check and time; limits for configs follow from what it takes."""

    def __post_init__(self) -> None:
        possible = [space for space in target_named(self.target).spaces if space in SPACES]
        if absent := [space for space in self.spaces if space not in possible]:
            wanted = f"{', '.join(absent)}: no such space of {self.target}"
            raise BadRequest(f"{wanted}; expected {', '.join(possible)}, or several with commas")
        if self.search not in SEARCHES:
            raise BadRequest(f"{self.search}: no such search; expected {' or '.join(SEARCHES)}")
        if self.configs < 1:
            raise BadRequest(f"--configs {self.configs}: expected at least 1")


@dataclass(frozen=True, slots=True)
class Plan:
    """A program ready to be collected."""

    program: Program
    study: Study
    hlo: bytes


def plan(selected: Selected, wanted: Wanted, found: Mapping[str, str]) -> Plan | None:
    """Captures a program and lays out its space; None if nothing in it can vary."""
    program, hlo = selected.capture()
    backend = target_named(wanted.target).backend
    laid_out = (*OPERATIONS, "transpose") if wanted.transposes else OPERATIONS
    space = space_of(program, wanted.spaces, backend=backend, laid_out=laid_out)
    known = node_of_place(program, hlo)
    space = Space(tuple(knob for knob in space.knobs if knob.place in known))  # some reshapes are folded away
    if not space.knobs:
        return None
    encoding = encoding_of(program, space, hlo, wanted.spaces, backend=backend)
    text_sha256 = hashlib.sha256(program.text.encode()).hexdigest()
    study = Study(
        program=selected.name,
        family=selected.family,
        spaces=spaces_named(",".join(wanted.spaces)),
        search=wanted.search,
        seed=wanted.seed,
        target=wanted.target,
        space=space,
        encoding=encoding,
        text_sha256=text_sha256,
        fingerprint=found,
        parameters=program.parameters,
    )
    return Plan(program, study, hlo)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What collecting a program would be like."""

    program: str
    size: int = 0
    knobs: Mapping[str, int] = field(default_factory=dict)
    """How many, by kind."""
    configs: int = 0
    default_ns: float = 0.0
    build_s: float = 0.0
    seconds: float = 0.0
    message: str = ""
    """Why nothing can be collected."""


def estimate(selected: Selected, wanted: Wanted) -> Estimate:
    """Builds and times the default, and reckons from that; writes nothing."""
    try:
        planned = plan(selected, wanted, fingerprint())
        if planned is None:
            return Estimate(selected.name, message=FIXED)
        with session_of(planned, wanted) as session:
            begun = time.monotonic()
            session.begin()
            begin_s = time.monotonic() - begun
    except TpuGraphsError as error:
        return Estimate(selected.name, message=str(error))
    space = planned.study.space
    configs = min(wanted.configs, space.size - 1)
    call_s, cores = session.default_ns / 1e9, os.cpu_count() or 1
    sample_s = max(wanted.sample_s, call_s) + call_s
    batches = -(-configs // wanted.batch)
    compiling_s = session.build_s / cores * (configs + batches + wanted.finalists)
    sampling_s = sample_s * (wanted.rounds * (configs + 2 * batches) + FINALIST_ROUNDS * (wanted.finalists + 2))
    seconds = 2 * begin_s + compiling_s + sampling_s
    knobs = Counter(knob.kind for knob in space.knobs)
    return Estimate(selected.name, space.size, knobs, configs, session.default_ns, session.build_s, seconds)


def session_of(planned: Plan, wanted: Wanted) -> Session:
    """Where the plan's configs are measured."""
    rewritten = [knob.place for knob in planned.study.space.knobs if knob.kind == FORM]
    return Session(
        planned.program,
        target_named(wanted.target),
        probed=rewritten,
        seed=wanted.seed,
        pinned=wanted.pinned,
        first_limit_s=wanted.limit_s,
    )
