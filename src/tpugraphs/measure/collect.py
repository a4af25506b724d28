"""Collecting: configs of many programs, measured and written down; whatever stops it, the same call goes on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tpugraphs.child import ChildFailed
from tpugraphs.errors import TpuGraphsError, Unwritable
from tpugraphs.measure import journal as journals
from tpugraphs.measure.fingerprint import fingerprint
from tpugraphs.measure.journal import (
    AGAIN,
    BEGIN,
    END,
    FAILED,
    FINALIST,
    MEASURED,
    REPEAT,
    SEARCH,
    History,
    JournalWriter,
    Study,
    journal,
    read_runs,
)
from tpugraphs.measure.measurement import OK, Measurement
from tpugraphs.measure.planning import FINALIST_ROUNDS, FIXED, Plan, Wanted, plan, session_of
from tpugraphs.measure.session import Session
from tpugraphs.measure.timing import Ratio, floor_of
from tpugraphs.program.selection import Selected
from tpugraphs.space import Config
from tpugraphs.space.search import Search, search_named

DONE, BEFORE, BUDGET, BROKEN, STOPPED = "measured", "measured before", "out of budget", "failed", "interrupted"
_MOST_REPEATS = 64


@dataclass(slots=True)
class Progress:
    """Where a collect stands, for those who watch."""

    programs: int
    number: int = 0
    program: str = ""
    phase: str = ""
    wanted: int = 0
    done: int = 0
    """Of this program, those measured before included."""
    new: int = 0
    """Of all programs, in this run."""
    failed: Counter[str] = field(default_factory=Counter)
    default_ns: float = 0.0
    best: Ratio | None = None
    noise_floor: float | None = None
    used_s: float = 0.0
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class Collected:
    """What came of one program."""

    program: str
    ending: str
    study: str = ""
    configs: int = 0
    """Measured in all."""
    new: int = 0
    message: str = ""
    spent_s: Mapping[str, float] = field(default_factory=dict)
    wall_s: float = 0.0


Watch = Callable[[Progress], None]


def collect(
    selected: Sequence[Selected],
    wanted: Wanted,
    into: Path,
    *,
    budget_s: float | None = None,
    watch: Watch | None = None,
    about: Mapping[str, object] | None = None,
) -> list[Collected]:
    """Measures configs of each program; the journal in `into` is the truth, and what it holds is not measured again.

    With a budget, each program gets an equal share of what is left. Ctrl-C ends it between records.
    """
    found, start = fingerprint(), time.monotonic()
    progress = Progress(programs=len(selected), wanted=wanted.configs)
    results: list[Collected] = []
    with journal(into, found, about or {}) as writer:
        known = read_runs(into) if (into / journals.JOURNAL).is_dir() else {}
        for number, one in enumerate(selected):
            progress.number, progress.program, progress.phase = number + 1, one.name, "capturing"
            progress.done, progress.best, progress.noise_floor, progress.default_ns = 0, None, None, 0.0
            progress.failed.clear()
            share_s = None
            if budget_s is not None:
                left_s = budget_s - (time.monotonic() - start)
                if left_s <= 0:
                    results.append(Collected(one.name, BUDGET))
                    continue
                share_s = left_s / (len(selected) - number)
            run = _Run(one, wanted, writer, known, found, progress, watch or (lambda _: None), start, share_s)
            results.append(run.carry_out())
            if results[-1].ending == STOPPED:
                break
    return results


@dataclass
class _Run:
    """One program's turn."""

    selected: Selected
    wanted: Wanted
    writer: JournalWriter
    known: Mapping[str, History]
    fingerprint: Mapping[str, str]
    progress: Progress
    watch: Watch
    start: float
    share_s: float | None
    begun: float = field(default_factory=time.monotonic)
    new: int = 0
    repeats: list[float] = field(default_factory=list)
    """Ratios of the default to itself."""

    def carry_out(self) -> Collected:
        study = ""
        try:
            self._tell()
            planned = plan(self.selected, self.wanted, self.fingerprint)
            if planned is None:
                return Collected(self.selected.name, FIXED)
            study = planned.study.id
            return self._collect(planned)
        except KeyboardInterrupt:
            return Collected(self.selected.name, STOPPED, study, self.progress.done, self.new)
        except Unwritable:
            raise  # nothing counts any more
        except (TpuGraphsError, ChildFailed) as error:
            if study:
                self.writer.append(FAILED, study, [{"message": str(error)}])
            return Collected(self.selected.name, BROKEN, study, message=str(error))

    def _collect(self, planned: Plan) -> Collected:
        study = planned.study
        history = self.known.get(study.id, History(study))
        replay = _Replay(history, self.wanted)
        self.repeats = [one.ratio.value for one in history.repeats if one.ratio]
        self.progress.done = replay.count
        if replay.finished:
            return Collected(study.program, BEFORE, study.id, replay.count)
        self.writer.add_study(study, planned.program.text, planned.hlo)
        with session_of(planned, self.wanted) as session:
            session.known.update(replay.identities)
            self._tell("measuring the default")
            self._begin(session, study)
            ending = DONE
            while (batch := replay.next_batch(self.wanted.batch)) is not None:
                if self._over(session):
                    ending = BUDGET
                    break
                self._tell("compiling and measuring")
                for measured in self._measure(session, study, batch, SEARCH):
                    replay.tell(measured)
                    self._count(measured, replay)
            self._finish(session, study, replay)
        wall_s = time.monotonic() - self.begun
        return Collected(
            study.program, ending, study.id, replay.count, self.new, spent_s=dict(session.spent_s), wall_s=wall_s
        )

    def _begin(self, session: Session, study: Study) -> None:
        session.begin()
        self.progress.default_ns = session.default_ns
        value = {
            "default_ns": session.default_ns,
            "samples_ns": list(session.default_samples_ns),
            "build_s": session.build_s,
            "start_s": session.start_s,
            "pinning": None if session.pinning is None else list(session.pinning),
        }
        self.writer.append(BEGIN, study.id, [value])

    def _measure(
        self, session: Session, study: Study, configs: Sequence[Config], purpose: str, rounds: int | None = None
    ) -> list[Measurement]:
        """Measures them beside the default, and writes both down."""
        measured = session.measure(
            [Config(), *configs],
            rounds=rounds or self.wanted.rounds,
            sample_s=self.wanted.sample_s,
            profiled_calls=self.wanted.profiled_calls,
            again=purpose != SEARCH,
        )
        values = [
            {
                "purpose": REPEAT if one.config.is_default else purpose,
                "process": session.starts,
                "default_ns": session.default_ns,
                "measurement": one.to_json(),
            }
            for one in measured
        ]
        self.writer.append(MEASURED, study.id, values)
        self.repeats += [measured[0].ratio.value] if measured[0].ratio else []
        return measured[1:]

    def _finish(self, session: Session, study: Study, replay: _Replay) -> None:
        """What the machine had changed for is measured again; the best in a fresh process; the default last."""
        drift = session.judge_drift()
        if doubtful := replay.doubtful:
            self._tell("measuring again what the machine had changed for")
            for start in range(0, len(doubtful), self.wanted.batch):
                replay.correct(self._measure(session, study, doubtful[start : start + self.wanted.batch], AGAIN))
        if finalists := replay.best(self.wanted.finalists):
            self._tell("measuring the best again in a fresh process")
            session.worker.stop()
            self._measure(session, study, finalists, FINALIST, FINALIST_ROUNDS)
        wall_s = time.monotonic() - self.begun
        value = {
            "configs": replay.count,
            "drift": drift,
            "spent_s": dict(session.spent_s),
            "wall_s": wall_s,
            "processes": session.starts,
        }
        self.writer.append(END, study.id, [value])

    def _over(self, session: Session) -> bool:
        """Whether another batch, and what comes at the end, would take more than the share."""
        if self.share_s is None:
            return False
        used_s = time.monotonic() - self.begun
        per_config = (used_s - session.start_s) / max(1, self.new)
        ending_s = session.start_s + (self.wanted.finalists + 1) * max(session.build_s, per_config)
        return self.new > 0 and used_s + ending_s + self.wanted.batch * per_config > self.share_s

    def _count(self, measured: Measurement, replay: _Replay) -> None:
        self.new += 1
        self.progress.new += 1
        self.progress.done = replay.count
        if measured.status != OK:
            self.progress.failed[measured.status] += 1
        self.progress.best, self.progress.noise_floor = replay.best_ratio, floor_of(self.repeats[-_MOST_REPEATS:])
        used_s = time.monotonic() - self.start
        programs_left = self.progress.programs - self.progress.number
        left = self.wanted.configs - replay.count + programs_left * self.wanted.configs
        self.progress.left_s = used_s / self.progress.new * max(0, left)

    def _tell(self, phase: str = "capturing") -> None:
        self.progress.phase, self.progress.used_s = phase, time.monotonic() - self.start
        self.watch(self.progress)


class _Replay:
    """A search that is told what the journal knows, and asks for the rest."""

    def __init__(self, history: History, wanted: Wanted) -> None:
        study = history.study
        asked = history.asked
        self._known = {digest: _lean(one) for digest, one in asked.items()}
        self._told = {digest: one.ratio for digest, one in history.first.items()}
        self._search: Search = search_named(study.search, study.space, count=wanted.configs, seed=study.seed)
        self._wanted, self._asked = wanted.configs, 0
        self._seen: list[Measurement] = []
        self._pending: list[Config] = []
        self.identities = {one.identity: one for one in reversed(self._known.values()) if one.identity}
        self._gather(1)
        self._ended = any(record.value.get("configs", 0) >= self.count for record in history.ended)

    @property
    def count(self) -> int:
        return len(self._seen)

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to ask for, and the end was reached before."""
        return not self._pending and self._ended

    def next_batch(self, most: int) -> list[Config] | None:
        """What to measure next; None at the end."""
        self._gather(most)
        batch, self._pending = self._pending[:most], self._pending[most:]
        return batch or None

    def tell(self, measured: Measurement) -> None:
        self._seen.append(_lean(measured))
        ratio = self._told.get(measured.config.digest, measured.ratio)
        self._search.tell(measured.config, ratio.value if ratio else None)

    def _gather(self, most: int) -> None:
        """Asks until so many unknown configs are waiting, or there are no more to be had for now."""
        while len(self._pending) < most and self._asked < self._wanted:
            asked = self._search.ask(min(most - len(self._pending), self._wanted - self._asked))
            if not asked:
                return
            self._asked += len(asked)
            for config in asked:
                if (known := self._known.get(config.digest)) is not None:
                    self.tell(known)
                else:
                    self._pending.append(config)

    def correct(self, measured: Sequence[Measurement]) -> None:
        """What came of measuring again; the search is not told, so that a replay asks for the same."""
        again = {one.config: _lean(one) for one in measured}
        self._seen = [again.get(one.config, one) for one in self._seen]

    @property
    def doubtful(self) -> list[Config]:
        """Twins follow the one that was measured."""
        return [one.config for one in self._seen if one.drifted and not one.same_as]

    def best(self, most: int) -> list[Config]:
        """The fastest, one of each compiled program, that are faster than the default."""
        found: dict[str, Measurement] = {}
        for one in sorted(self._timed, key=lambda one: one.ratio.value if one.ratio else 1.0):
            if one.ratio and one.ratio.value < 1:
                found.setdefault(one.identity, one)
        return [one.config for one in list(found.values())[:most]]

    @property
    def _timed(self) -> Iterator[Measurement]:
        return (one for one in self._seen if one.ratio is not None)

    @property
    def best_ratio(self) -> Ratio | None:
        return min((one.ratio for one in self._timed if one.ratio), key=lambda ratio: ratio.value, default=None)


def _lean(one: Measurement) -> Measurement:
    """Without samples, so that thousands fit in memory."""
    return replace(one, samples_ns=(), baseline_ns=(), node_ns={})
