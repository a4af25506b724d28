"""A program on a target, ready to measure configs of it: the default is built, checked and timed; workers may die."""

from __future__ import annotations

import os
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import log, sqrt
from statistics import median
from typing import Any

from tpugraphs.child import ChildFailed
from tpugraphs.errors import BadRequest, TpuGraphsError
from tpugraphs.measure import machine
from tpugraphs.measure.child import BASELINE
from tpugraphs.measure.inputs import spread_inputs
from tpugraphs.measure.measurement import COMPILE_ERROR, OK, RUN_ERROR, TIMEOUT, WRONG_RESULT, Measurement, status_of
from tpugraphs.measure.pinning import Processors, choose, judge, places
from tpugraphs.measure.timing import Ratio, Samples, paired_ratio
from tpugraphs.measure.worker import Worker
from tpugraphs.program import Program
from tpugraphs.space import Config
from tpugraphs.target import Job, Target
from tpugraphs.types import Kernel

ROUNDS, SAMPLE_S = 5, 0.03
FIRST_LIMIT_S = 300.0
"""What the default may take to compile, check and time: nothing is known of it yet."""
_LIMIT_S, _LIMIT_FACTOR = 20.0, 20.0
"""Later a request may take this long, or this many times as long as the default took, whichever is more."""
_DRIFT, _DRIFT_ERRORS = log(1.1), 4.0
"""A default that takes this much more or less than usual, beyond its noise, says that the machine has changed."""
_USUAL = 9
"""So many batches say what is usual: a new level that stays is usual before long."""
_HOPELESS, _FIRST_CALL_S, _HOPELESS_ROUNDS = 4.0, 0.05, 2
"""A config whose first call takes this many times as long as the default, and some time for being the first, is timed
by so few single calls: how slow it is to the percent is not worth the wait."""
_PINNED_BELOW_NS = 50e6
"""Slower programs are not pinned: to wait for a tick of some milliseconds is little to them, and trying takes long."""
_PINNING_TURNS, _PINNING_CALLS = 4, 8
_MEMORY_SHARE = 0.75
_GROWN, _GROWN_BYTES = 1.5, 1 << 29
"""A worker that holds more than this many times and bytes what it held at first is replaced."""


class _Culprit(Exception):
    """A config that took the worker with it."""

    def __init__(self, config: Config, measurement: Measurement) -> None:
        self.config, self.measurement = config, measurement


@dataclass(frozen=True, slots=True)
class _How:
    """How a batch is measured."""

    rounds: int
    sample_s: float
    profiled_calls: int
    again: bool


@dataclass(frozen=True, slots=True)
class _Level:
    """What a program took in one batch: the median's log, and that median's standard error."""

    log: float
    error: float


def _level(samples_ns: Sequence[float]) -> _Level:
    logs = [log(ns) for ns in samples_ns]
    middle = median(logs)
    return _Level(middle, 1.25 * 1.48 * median(abs(one - middle) for one in logs) / sqrt(len(logs)))


@dataclass
class Session:
    """Use in a `with`; `begin`, then `measure`."""

    program: Program
    target: Target
    probed: Collection[str] = ()
    """Nodes whose own results judge a config: those that may be rewritten."""
    seed: int = 0
    memory: int | None = field(default_factory=lambda: most_memory())
    """How many bytes the worker may allocate."""
    pinned: bool = False
    """Whether to find, by trying, the processors that the worker's main thread is steadiest on."""
    first_limit_s: float = FIRST_LIMIT_S
    default_ns: float = 0.0
    default_samples_ns: Sequence[float] = ()
    build_s: float = 0.0
    start_s: float = 0.0
    pinning: Processors = None
    """Where the worker's main thread is kept."""
    tick_hz: int | None = None
    worker: Worker = field(init=False)
    _probe: Collection[str] | None = None
    """Where the program's own results show nothing (all the same, all NaN), every config is judged by nodes inside."""
    _right: set[tuple[str, str]] = field(default_factory=set)
    """Choices that were judged by results inside the program, and found right."""
    _levels: deque[_Level] = field(default_factory=deque)
    """What the default took of late."""
    _held: int = 0
    """Bytes that the worker held after its first batch."""
    starts: int = 0
    """How many worker processes there were."""
    known: dict[str, Measurement] = field(default_factory=dict)
    """What was measured, by identity; without samples."""
    spent_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Wall time by what it went into: start, prepare, build, check, time, profile, drop."""

    def __post_init__(self) -> None:
        inputs = spread_inputs(self.program.inputs, self.program.arguments, self.seed)
        self.tick_hz = machine.tick_hz()
        self.worker = Worker(self.program, inputs, self.target, self.memory)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.__exit__()

    def begin(self) -> None:
        """Starts a worker and gives it the default; the first time, measures that."""
        first = not self.build_s
        try:
            self.start()
            [built] = self._build({BASELINE: Config()}, self.probed)
            self._must(built)
            checked = self._must(self._ask("check", self._limit, name=BASELINE))
            if first:
                self.build_s = built["compile_s"]
                if not checked["spread"] > 0:
                    told = "do not vary" if checked["spread"] == 0 else "are not finite"
                    raise BadRequest(f"{self.program.name}: its outputs {told}, so no result could be checked")
                self._probe = None if checked["own_spread"] > 0 else ()
                self.known[built["identity"]] = Measurement(Config(), OK, Ratio(1.0, 1.0, 1.0))
                self._time_default()
                if self.pinned and self.default_ns < _PINNED_BELOW_NS:
                    self._find_pinning()
        except ChildFailed as error:
            if not first:
                raise  # it worked before: this is the worker's trouble, and the next config's worker may be better
            raise TpuGraphsError(f"{self.program.name}: the default itself fails: {error}") from error

    def start(self) -> None:
        """A fresh worker, which knows nothing yet."""
        self.starts += 1
        with self._clock("start") as begun:
            self.worker.start()
            if self.pinning is not None:
                self.pin(self.pinning)
        self.start_s = time.monotonic() - begun

    def measure(
        self,
        configs: Sequence[Config],
        *,
        rounds: int = ROUNDS,
        sample_s: float = SAMPLE_S,
        profiled_calls: int = 0,
        again: bool = False,
    ) -> list[Measurement]:
        """Builds all of them on all cores, then checks and times them alone; whatever goes wrong is a status.

        The default may be among them: it is built once more, and its ratio shows the noise. What compiles to a
        program that was measured before takes that one's measurement, unless all are to be measured `again`.
        """
        done: dict[Config, Measurement] = {}
        suspects = set[Config]()
        groups = [list(configs)]
        while groups:
            group = groups.pop(0)
            try:
                self._attempt(group, done, _How(rounds, sample_s, profiled_calls, again))
            except _Culprit as failure:
                if failure.config in suspects or failure.measurement.status == TIMEOUT:
                    done[failure.config] = failure.measurement
                suspects.add(failure.config)  # or somebody killed the worker: once more, and alone
                group = [config for config in group if config != failure.config]
                groups[:0] = [[failure.config]] if failure.config not in done else []
            except ChildFailed as error:
                left = [config for config in group if config not in done]
                if len(left) == 1:
                    done[left[0]] = _failure(left[0], error.status, str(error))
                groups[:0] = [[config] for config in left if config not in done]
                continue
            if left := [config for config in group if config not in done]:
                groups.insert(0, left)
        return [done[config] for config in configs]

    def build(self, configs: Mapping[str, Config]) -> None:
        """Builds configs under names of one's own; a config that worked before is expected to."""
        for reply in self._build(configs, None, probing=False):
            if "error" in reply:
                raise ChildFailed(COMPILE_ERROR, reply["error"])

    def time(self, names: Sequence[str], rounds: int = ROUNDS, sample_s: float = SAMPLE_S) -> Samples:
        """Samples of what was built, in turns."""
        expected = rounds * len(names) * (sample_s + 3 * self.default_ns / 1e9)
        limit = self._limit + _LIMIT_FACTOR * expected
        reply = self._ask("time", limit, names=list(names), rounds=rounds, sample_s=sample_s, seed=self.seed)
        if "error" in reply:
            raise ChildFailed("crash", reply["error"])
        return reply["samples"]

    def profile(self, name: str, calls: int) -> dict[str, float]:
        """ns per call by node tag."""
        return self._ask("profile", self._limit + _LIMIT_FACTOR, name=name, calls=calls).get("ns", {})

    def kernels(self, name: str, calls: int) -> tuple[list[Kernel], dict[str, float]]:
        """The kernels of what was built, and ns per call by their names, of all places that run one."""
        reply = self._ask("kernels", self._limit + _LIMIT_FACTOR, name=name, calls=calls)
        if "error" in reply:
            raise ChildFailed(RUN_ERROR, reply["error"])
        return [Kernel.from_json(one) for one in reply["kernels"]], reply["ns"]

    def kernels_of(self, config: Config, calls: int) -> tuple[list[Kernel], dict[str, float]]:
        """The kernels of a config, checked and timed in place; raises `ChildFailed` where it does not come to that."""
        if not self.worker.alive:
            self.begin()
        name = config.digest
        self.build({name: config})
        checked = self._ask("check", self._limit, name=name)
        if "error" in checked:
            raise ChildFailed(RUN_ERROR, checked["error"])
        if checked["excess"] > 1:
            raise ChildFailed(WRONG_RESULT, checked["where"])
        found = self.kernels(name, calls)
        self.drop([name])
        return found

    def pin(self, place: Processors) -> bool:
        """Keeps the worker's main thread there, or anywhere; whether the system lets it."""
        return "error" not in self.worker.ask("pin", _LIMIT_S, cpus=None if place is None else list(place))

    def try_places(self, calls: int, turns: Iterable[object]) -> dict[Processors, list[float]]:
        """ns of single calls of the default with the main thread in each place, in turns: a change of the machine
        meets all alike."""
        taken: dict[Processors, list[float]] = {place: [] for place in places(machine.usable_cpus())}
        for _ in turns:
            for place in list(taken):
                if self.pin(place) or place is None:
                    taken[place] += self.time([BASELINE], calls, 0.0)[BASELINE]
                else:
                    del taken[place]
        return taken

    def drop(self, names: Sequence[str]) -> int:
        """Forgets what was built; how many bytes the worker then holds."""
        return self._ask("drop", _LIMIT_S, names=list(names))["memory"]

    def judge_drift(self) -> float:
        """The default's time now over what it was at first."""
        try:
            if not self.worker.alive:
                self.begin()
            now_ns = median(self.time([BASELINE])[BASELINE])
        except ChildFailed:  # somebody killed it: another will do
            self.begin()
            now_ns = median(self.time([BASELINE])[BASELINE])
        return now_ns / self.default_ns

    def _attempt(self, group: list[Config], done: dict[Config, Measurement], how: _How) -> None:
        """Puts what it finds out into `done`."""
        if not self.worker.alive:
            self.begin()
        built = dict(zip(group, self._build({config.digest: config for config in group}, self._probe), strict=True))
        ready: list[Config] = []
        here: dict[str, Config] = {}
        twins: list[tuple[Config, Config]] = []
        for config, reply in built.items():
            if "error" in reply:
                done[config] = _failure(config, COMPILE_ERROR, reply["error"])
            elif config.is_default:
                ready.append(config)
            elif not how.again and (twin := self.known.get(reply["identity"])) is not None:
                done[config] = _as_its_twin(config, reply, twin)
            elif reply["identity"] in here:
                twins.append((config, here[reply["identity"]]))
            else:
                here[reply["identity"]] = config
                ready.append(config)
        call_s = {config: self._check(config, built[config], done) for config in ready}
        ready = [config for config in ready if config not in done]
        limit_s = _HOPELESS * self.default_ns / 1e9 + _FIRST_CALL_S
        if hopeful := [config for config in ready if call_s[config] <= limit_s]:
            self._time(hopeful, built, done, how)
        if hopeless := [config for config in ready if call_s[config] > limit_s]:
            self._time(hopeless, built, done, replace(how, rounds=_HOPELESS_ROUNDS, sample_s=0.0))
        for config, first in twins:
            done[config] = _as_its_twin(config, built[config], done[first])
        held = self.drop([config.digest for config in group])
        self._held = self._held or held
        if held > _GROWN * self._held + _GROWN_BYTES:
            self.worker.stop()  # the next batch gets a fresh one

    def _check(self, config: Config, built: Mapping[str, Any], done: dict[Config, Measurement]) -> float:
        """Compares its results with the default's; a failure is done. How many seconds its first call took."""
        try:
            reply = self._ask("check", self._limit, name=config.digest)
        except ChildFailed as error:
            raise _Culprit(config, _failure(config, error.status, str(error), built)) from error
        if "error" in reply:
            done[config] = _failure(config, RUN_ERROR, reply["error"], built)
        elif reply["excess"] > 1:
            done[config] = _failure(config, WRONG_RESULT, reply["where"], built)
        else:
            self._right |= set(config.changes)
        return reply.get("call_s", 0.0)

    def _time(
        self,
        ready: list[Config],
        built: Mapping[Config, Mapping[str, Any]],
        done: dict[Config, Measurement],
        how: _How,
    ) -> None:
        names = [BASELINE, *(config.digest for config in ready)]
        samples = self.time(names, how.rounds, how.sample_s)
        if self._has_drifted(samples):
            samples = self.time(names, how.rounds, how.sample_s)  # whatever it was may be over
        drifted, load = self._has_drifted(samples), _load()
        self._levels.append(_level(samples[BASELINE]))
        for config in ready:
            ours, default = samples[config.digest], samples[BASELINE]
            ratio, identity = paired_ratio([(ours, default)], self.seed), built[config]["identity"]
            self.known.setdefault(identity, Measurement(config, OK, ratio))
            done[config] = Measurement(
                config,
                OK,
                ratio,
                tuple(ours),
                tuple(default),
                built[config]["compile_s"],
                identity=identity,
                node_ns=self.profile(config.digest, how.profiled_calls) if how.profiled_calls else {},
                load=load,
                drifted=drifted,
                ticks=sum(machine.at_ticks(ours, self.tick_hz or 0, 0.0)),
            )

    def _has_drifted(self, samples: Mapping[str, Sequence[float]]) -> bool:
        now, usual = _level(samples[BASELINE]), median(level.log for level in self._levels)
        error = median(level.error for level in (*self._levels, now))
        return abs(now.log - usual) > max(_DRIFT, _DRIFT_ERRORS * error)

    def _time_default(self) -> None:
        self.default_samples_ns = self.time([BASELINE])[BASELINE]
        self.default_ns = median(self.default_samples_ns)
        self._levels = deque([_level(self.default_samples_ns)], maxlen=_USUAL)

    def _find_pinning(self) -> None:
        """Keeps the main thread where it is steadiest, and takes the default's time there."""
        tried = self.try_places(_PINNING_CALLS, range(_PINNING_TURNS))
        self.pinning = choose(judge(tried, self.tick_hz)).processors
        self.pin(self.pinning)
        self._time_default()

    def _build(
        self, configs: Mapping[str, Config], probe: Collection[str] | None, *, probing: bool = True
    ) -> list[dict[str, Any]]:
        with self._clock("prepare"):
            jobs = {name: self.target.prepare(self.program, config, probe) for name, config in configs.items()}
        with self._clock("build"):
            told = {
                name: job if probing and self._needs_probing(configs[name]) else _unprobed(job)
                for name, job in jobs.items()
            }
            return self.worker.build(told, self._limits(len(jobs)))

    def _needs_probing(self, config: Config) -> bool:
        """A node that was found right in a form is so beside other nodes' forms, and so are options; the program's own
        results are compared all the same."""
        return config.is_default or self._probe is not None or not set(config.changes) <= self._right

    def _ask(self, do: str, limit_s: float, **arguments: Any) -> dict[str, Any]:
        with self._clock(do):
            return self.worker.ask(do, limit_s, **arguments)

    @contextmanager
    def _clock(self, phase: str) -> Iterator[float]:
        begun = time.monotonic()
        try:
            yield begun
        finally:
            self.spent_s[phase] += time.monotonic() - begun

    def _must(self, reply: dict[str, Any]) -> dict[str, Any]:
        if "error" in reply:
            raise TpuGraphsError(f"{self.program.name}: the default itself fails: {reply['error']}")
        return reply

    @property
    def _limit(self) -> float:
        """For one config's build or check."""
        if not self.build_s:
            return self.first_limit_s
        return max(_LIMIT_S, _LIMIT_FACTOR * max(self.build_s, self.default_ns / 1e9))

    def _limits(self, count: int) -> float:
        """For building several: one of them may take its limit, the others about what the default took."""
        return self._limit + 3 * count * self.build_s


def _failure(config: Config, status: str, message: str, built: Mapping[str, Any] | None = None) -> Measurement:
    told = built or {}
    return Measurement(
        config,
        status_of(status, message),
        compile_s=told.get("compile_s", 0.0),
        message=message,
        identity=told.get("identity", ""),
        load=_load(),
    )


def _as_its_twin(config: Config, built: Mapping[str, Any], twin: Measurement) -> Measurement:
    """What holds of a program holds of the other config that compiles to it."""
    return Measurement(
        config,
        twin.status,
        twin.ratio,
        compile_s=built["compile_s"],
        message=twin.message,
        identity=built["identity"],
        same_as=twin.config.digest,
        load=_load(),
        drifted=twin.drifted,
    )


def most_memory() -> int | None:
    """Most of what the machine has: a program that wants more shall fail, not bring the machine down."""
    try:
        return int(_MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (OSError, ValueError):
        return None


def _unprobed(job: Job) -> Job:
    return Job(job.module, job.options, job.input_layouts)


def _load() -> float:
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return 0.0
