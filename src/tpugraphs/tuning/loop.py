"""The loop: measure the default, search while the budget lasts, then prove the best in fresh processes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any

from tpugraphs.child import ChildFailed
from tpugraphs.errors import BadRequest, TpuGraphsError
from tpugraphs.measure import Ratio, Worker, paired_ratio
from tpugraphs.measure.check import add_probes
from tpugraphs.measure.child import BASELINE
from tpugraphs.measure.fingerprint import fingerprint
from tpugraphs.measure.inputs import spread_inputs
from tpugraphs.program import Program, capture_callable
from tpugraphs.space import Config, Space, space_of
from tpugraphs.space.form import FORMS, Form
from tpugraphs.space.product import apply
from tpugraphs.tuning.outcome import Measurement, Outcome, Proof
from tpugraphs.tuning.strategy import CornersThenClimb

TARGETS = ("xla:cpu",)
PROOF_PROCESSES, PROOF_ROUNDS = 5, 12
_LEAST_PROOF_PROCESSES, _LEAST_PROOF_ROUNDS = 3, 4
_PROOF_SHARE = 0.5
"""Slow programs get a proof of fewer processes and rounds, so that it takes about this share of the budget."""
_SEARCH_ROUNDS, _SAMPLE_S = 5, 0.03
_FINALISTS = 3
_WORTH_A_PROOF = 0.99
"""A search that found nothing below this share of the default's time has found nothing."""
_PROFILED_CALLS = 5
_LIMIT_S, _LIMIT_FACTOR = 20.0, 20.0
"""A request may take this long, or this many times as long as the default took, whichever is more."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|)")


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a tuning run stands, for those who watch."""

    phase: str
    used_s: float
    budget_s: float
    default_ns: float = 0.0
    best: Ratio | None = None
    measured: int = 0
    failed: int = 0


Watch = Callable[[Progress], None]


def tune(
    function: Callable[..., Any],
    *arguments: Any,
    target: str = "xla:cpu",
    budget: str | float = "2m",
    seed: int = 0,
    watch: Watch | None = None,
) -> Outcome:
    """Tunes a JAX function for these arguments; the outcome runs the tuned program when called."""
    start = time.monotonic()
    program = capture_callable(function, *arguments)
    return tune_program(program, target=target, budget=budget, seed=seed, watch=watch, start=start)


def tune_program(
    program: Program,
    *,
    target: str = "xla:cpu",
    budget: str | float = "2m",
    seed: int = 0,
    watch: Watch | None = None,
    start: float | None = None,
    forms: Mapping[str, Form] = FORMS,
) -> Outcome:
    """Tunes a program. Ctrl-C ends the search and returns what was found, without a proof."""
    if target not in TARGETS:
        raise BadRequest(f"{target}: no such target; expected {' or '.join(TARGETS)}")
    run = _Run(program, seconds(budget), seed, watch or (lambda _: None), start or time.monotonic(), forms)
    return run.carry_out()


def seconds(budget: str | float) -> float:
    """`90`, `90s`, `2m` or `1h` as seconds."""
    if isinstance(budget, str):
        match = _DURATION.fullmatch(budget.strip())
        if match is None:
            raise BadRequest(f"budget {budget!r}: expected a duration such as 90s, 2m or 1h")
        budget = float(match[1]) * {"s": 1, "": 1, "m": 60, "h": 3600}[match[2]]
    if budget <= 0:
        raise BadRequest(f"budget {budget}: expected more than nothing")
    return budget


@dataclass
class _Run:
    """One tuning run: its program, its budget, what it has seen."""

    program: Program
    budget_s: float
    seed: int
    watch: Watch
    start: float
    forms: Mapping[str, Form]
    measurements: list[Measurement] = field(default_factory=list)
    profiles: dict[Config, dict[str, float]] = field(default_factory=dict)
    default_ns: float = 0.0
    build_s: float = 0.0
    start_s: float = 0.0

    @cached_property
    def space(self) -> Space:
        return space_of(self.program, self.forms)

    @property
    def used_s(self) -> float:
        return time.monotonic() - self.start

    def carry_out(self) -> Outcome:
        candidate, proof, ended = Config(), None, "interrupted"
        inputs = spread_inputs(self.program.inputs, self.program.arguments, self.seed)
        with Worker(self.program, inputs) as worker:
            try:
                self._tell("measuring the default")
                self._begin(worker)
                ended = self._search(worker)
                candidate = self._choose(worker)
                if not candidate.is_default:
                    proof = self._prove(worker, candidate)
            except KeyboardInterrupt:
                if not self.default_ns:
                    raise
                ended = "interrupted"
                candidate = candidate if not candidate.is_default else self._best_so_far()
        return Outcome(
            program=replace(self.program, arguments=None),
            target=TARGETS[0],
            candidate=candidate,
            proof=proof,
            measurements=tuple(self.measurements),
            default_ns=self.default_ns,
            default_profile=self.profiles.get(Config(), {}),
            tuned_profile=self.profiles.get(candidate, {}),
            budget_s=self.budget_s,
            used_s=self.used_s,
            ended=ended,
            fingerprint=fingerprint(),
        )

    def _begin(self, worker: Worker) -> None:
        """Starts a worker and gives it the default; the first time, measures that."""
        first = not self.build_s
        begun = time.monotonic()
        try:
            worker.start()
            self.start_s = time.monotonic() - begun
            module, options = apply(self.program, Config(), self.forms)
            built = self._must(
                worker.ask("build", 600, name=BASELINE, module=worker.write_module(module), options=options)
            )
            variable = [knob.name for knob in self.space.knobs if knob.kind == "form"]
            checked = self._must(self._check(worker, BASELINE, module, options, variable, 600))
            if first:
                self.build_s = built["compile_s"]
                if not checked["spread"] > 0:
                    raise BadRequest(f"{self.program.name}: its outputs do not vary, so no result could be checked")
                timed = worker.ask("time", 600, names=[BASELINE], rounds=5, sample_s=_SAMPLE_S, seed=self.seed)
                self.default_ns = median(self._must(timed)["samples"][BASELINE])
                profiled = worker.ask("profile", 600, name=BASELINE, calls=_PROFILED_CALLS)
                self.profiles[Config()] = self._must(profiled)["ns"]
        except ChildFailed as error:
            if not first:
                raise  # it worked before: this is the worker's trouble, and the next config's worker may be better
            raise TpuGraphsError(f"{self.program.name}: the default itself fails: {error}") from error

    def _must(self, reply: dict[str, Any]) -> dict[str, Any]:
        if "error" in reply:
            raise TpuGraphsError(f"{self.program.name}: the default itself fails: {reply['error']}")
        return reply

    def _search(self, worker: Worker) -> str:
        strategy = CornersThenClimb(self.space, self.profiles[Config()])
        while True:
            if self.used_s + self._proof_s() + self._one_more_s() > self.budget_s:
                return "budget"
            config = strategy.ask()
            if config is None:
                return "exhausted"
            measured = self._measure(worker, config)
            self.measurements.append(measured)
            strategy.tell(config, measured.ratio.value if measured.ratio else None)
            self._tell("searching")

    def _measure(self, worker: Worker, config: Config) -> Measurement:
        """Builds, checks and times one config; whatever goes wrong is its status."""
        compile_s = 0.0
        try:
            if not worker.alive:
                self._begin(worker)
            name, limit = config.digest, max(_LIMIT_S, _LIMIT_FACTOR * self.build_s)
            module, options = apply(self.program, config, self.forms)
            reply = worker.ask("build", limit, name=name, module=worker.write_module(module), options=options)
            if "error" in reply:
                return Measurement(config, "compile-error", message=reply["error"])
            compile_s = reply["compile_s"]
            limit += max(_LIMIT_S, _LIMIT_FACTOR * self.default_ns / 1e9)
            reply = self._check(worker, name, module, options, config.as_dict(), limit)
            if "error" in reply:
                return Measurement(config, "compile-error", compile_s=compile_s, message=reply["error"])
            if reply["excess"] > 1:
                return Measurement(config, "wrong-result", compile_s=compile_s, message=reply["where"])
            samples = self._time(worker, [BASELINE, name], _SEARCH_ROUNDS, _SAMPLE_S)
            worker.ask("drop", _LIMIT_S, name=name)
        except ChildFailed as error:
            return Measurement(config, error.status, compile_s=compile_s, message=str(error))
        ours, default = samples[name], samples[BASELINE]
        ratio = paired_ratio([(ours, default)], self.seed)
        return Measurement(config, "ok", ratio, tuple(ours), tuple(default), compile_s)

    def _check(
        self, worker: Worker, name: str, module: Any, options: dict[str, str], tags: Collection[str], limit_s: float
    ) -> dict[str, Any]:
        """Adds probes of these nodes and the last ones to the module, and has the results compared."""
        probes = add_probes(module, tags)
        path = worker.write_module(module)
        return worker.ask("check", limit_s, name=name, module=path, options=options, probes=probes)

    def _time(self, worker: Worker, names: list[str], rounds: int, sample_s: float) -> dict[str, list[float]]:
        expected = rounds * len(names) * (sample_s + 3 * self.default_ns / 1e9)
        reply = worker.ask(
            "time", _LIMIT_S + _LIMIT_FACTOR * expected, names=names, rounds=rounds, sample_s=sample_s, seed=self.seed
        )
        if "error" in reply:
            raise ChildFailed("crash", reply["error"])
        return reply["samples"]

    def _choose(self, worker: Worker) -> Config:
        """Measures the finalists against each other; the default if none is worth it."""
        good = sorted((m for m in self.measurements if m.ratio), key=lambda m: m.ratio.value if m.ratio else 0.0)
        finalists = [m.config for m in good[:_FINALISTS] if m.ratio and m.ratio.value < _WORTH_A_PROOF]
        if not finalists:
            return Config()
        self._tell("comparing the finalists")
        try:
            if not worker.alive:
                self._begin(worker)
            for config in finalists:
                self._build(worker, config)
            names = [config.digest for config in finalists]
            samples = self._time(worker, [BASELINE, *names], _SEARCH_ROUNDS, 2 * _SAMPLE_S)
            chosen = min(finalists, key=lambda one: paired_ratio([(samples[one.digest], samples[BASELINE])]).value)
            self.profiles[chosen] = worker.ask("profile", 60, name=chosen.digest, calls=_PROFILED_CALLS).get("ns", {})
        except ChildFailed:
            return finalists[0]
        return chosen

    def _build(self, worker: Worker, config: Config, name: str = "") -> None:
        module, options = apply(self.program, config, self.forms)
        reply = worker.ask(
            "build",
            max(_LIMIT_S, _LIMIT_FACTOR * self.build_s),
            name=name or config.digest,
            module=worker.write_module(module),
            options=options,
        )
        if "error" in reply:
            raise ChildFailed("compile-error", reply["error"])

    def _prove(self, worker: Worker, candidate: Config) -> Proof | None:
        """Default, default again and candidate in turns, in fresh processes; None if the candidate fails there."""
        processes, (count, rounds) = [], self._proof_size
        for number in range(count):
            self._tell(f"proving, process {number + 1} of {count}")
            try:
                worker.start()
                for config, name in ((Config(), BASELINE), (Config(), "again"), (candidate, "tuned")):
                    self._build(worker, config, name)
                processes.append(self._time(worker, [BASELINE, "again", "tuned"], rounds, _SAMPLE_S))
            except ChildFailed as error:
                self.measurements.append(Measurement(candidate, error.status, message=f"in the proof: {error}"))
                return None
        return Proof(
            ratio=paired_ratio([(one["tuned"], one[BASELINE]) for one in processes], self.seed),
            noise=paired_ratio([(one["again"], one[BASELINE]) for one in processes], self.seed),
            default_ns=tuple(median(one[BASELINE]) for one in processes),
            tuned_ns=tuple(median(one["tuned"]) for one in processes),
        )

    def _best_so_far(self) -> Config:
        good = [m for m in self.measurements if m.ratio and m.ratio.value < _WORTH_A_PROOF]
        return min(good, key=lambda m: m.ratio.value if m.ratio else 1.0).config if good else Config()

    def _proof_s(self) -> float:
        """About how long finalists and proof will take."""
        finalists = _FINALISTS * self._compile_s + _SEARCH_ROUNDS * (_FINALISTS + 1) * 2 * self._sample_s
        processes, rounds = self._proof_size
        return finalists + processes * (self._proof_start_s + rounds * 3 * self._sample_s)

    def _one_more_s(self) -> float:
        return 2.5 * self._compile_s + _SEARCH_ROUNDS * 2 * self._sample_s

    @property
    def _proof_size(self) -> tuple[int, int]:
        """How many processes, and rounds in each: for slow programs fewer, the processes first."""
        share_s, round_s = _PROOF_SHARE * self.budget_s, 3 * self._sample_s
        affordable = int(share_s / (self._proof_start_s + _LEAST_PROOF_ROUNDS * round_s))
        processes = min(PROOF_PROCESSES, max(_LEAST_PROOF_PROCESSES, affordable))
        rounds = int((share_s / processes - self._proof_start_s) / round_s)
        return processes, min(PROOF_ROUNDS, max(_LEAST_PROOF_ROUNDS, rounds))

    @property
    def _proof_start_s(self) -> float:
        """What a process of the proof takes before it measures."""
        return self.start_s + 3 * self._compile_s

    @property
    def _sample_s(self) -> float:
        """A sample of the default with its uncounted call."""
        return max(_SAMPLE_S, self.default_ns / 1e9) + self.default_ns / 1e9

    @property
    def _compile_s(self) -> float:
        return max([self.build_s, *(m.compile_s for m in self.measurements)])

    def _tell(self, phase: str) -> None:
        ratios = [m.ratio for m in self.measurements if m.ratio]
        best = min(ratios, key=lambda ratio: ratio.value, default=None)
        failed = sum(m.status != "ok" for m in self.measurements)
        self.watch(Progress(phase, self.used_s, self.budget_s, self.default_ns, best, len(self.measurements), failed))
