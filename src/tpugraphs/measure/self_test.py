"""Measures what is known, the default against itself, in fresh processes, to see how noisy measuring is here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import numpy as np

from tpugraphs.child import ChildFailed
from tpugraphs.errors import TpuGraphsError
from tpugraphs.measure import machine
from tpugraphs.measure.child import BASELINE
from tpugraphs.measure.noise import Process, SelfTest
from tpugraphs.measure.pinning import choose, judge
from tpugraphs.measure.session import ROUNDS, Session
from tpugraphs.program import resolve_source
from tpugraphs.space import Config
from tpugraphs.space.flags import flag_space
from tpugraphs.target import Target

PROGRAM = "transformer/inference/b1"
"""Some milliseconds a call, on all of XLA's threads."""
AGAIN, OTHER = "again", "other"
_PINNING_SHARE, _PINNING_CALLS = 0.2, 10
_LEAST_PROCESSES = 2

Watch = Callable[[str, float], None]
"""Told what is being done, and which share of the time is used."""


@dataclass(frozen=True, slots=True)
class _Clock:
    """How much of the time is used, and who wants to know."""

    begun: float
    limit_s: float
    watch: Watch

    @property
    def used(self) -> float:
        return (time.monotonic() - self.begun) / self.limit_s

    def tell(self, what: str) -> None:
        self.watch(what, self.used)


def self_test(
    target: Target, *, limit_s: float, processes: int = 5, watch: Watch = lambda _what, _share: None, seed: int = 0
) -> SelfTest:
    """Takes about this long, and longer only where the machine is too slow for one turn a process."""
    clock, stolen = _Clock(time.monotonic(), limit_s, watch), machine.processor_times()
    clock.tell("starting")
    program, tick_hz = resolve_source(PROGRAM), machine.tick_hz()
    try:
        with Session(program, target, seed=seed) as session:
            session.begin()
            tried = judge(session.try_places(_PINNING_CALLS, _turns(clock)), tick_hz)
            chosen = choose(tried)
            session.pinning = chosen.processors
            seen: list[Process] = []
            while len(seen) < processes and (len(seen) < _LEAST_PROCESSES or clock.used < 1):
                until = clock.used + (1 - clock.used) / (processes - len(seen))
                seen.append(_process(session, target, clock, until, f"process {len(seen) + 1} of {processes}"))
    except ChildFailed as error:
        raise TpuGraphsError(f"the self-test's worker failed: {error}") from error
    seconds = time.monotonic() - clock.begun
    steal_share, _ = machine.shares(stolen, machine.processor_times(), seconds)
    return SelfTest(program.name, target.name, seconds, ROUNDS, steal_share, tick_hz, tuple(tried), chosen, tuple(seen))


def _turns(clock: _Clock) -> Iterator[None]:
    """One at least, then as many as its share of the time allows."""
    while True:
        clock.tell("pinning")
        yield
        if clock.used >= _PINNING_SHARE:
            return


def _process(session: Session, target: Target, clock: _Clock, until: float, what: str) -> Process:
    """A fresh worker and its turns; in each, pairs first and blocks then."""
    clock.tell(what)
    session.begin()
    second = _second(target)
    configs = {AGAIN: Config(), **({} if second is None else {OTHER: second})}
    session.build(configs)
    default, again, other, paired, naive = (list[float]() for _ in range(5))
    while clock.used < until or not paired:
        samples = session.time([BASELINE, *configs], ROUNDS)
        default += samples[BASELINE]
        ratios = {name: np.divide(samples[name], samples[BASELINE]).tolist() for name in configs}
        again += ratios[AGAIN]
        other += ratios.get(OTHER, [])
        paired.append(median(ratios[AGAIN]))
        first, then = (min(session.time([name], ROUNDS)[name]) for name in (BASELINE, AGAIN))
        naive.append(then / first)
        clock.tell(what)
    return Process(median(default), *map(tuple, (again, other, paired, naive)))


def _second(target: Target) -> Config | None:
    """Some other program to compare: the first option that there is, at its second value."""
    knobs = flag_space(target.backend).knobs
    return Config.of({knobs[0].name: knobs[0].choices[1]}) if knobs else None
