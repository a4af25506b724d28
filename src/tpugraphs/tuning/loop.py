"""The loop: measure the default, search while the budget lasts, then prove the best in fresh processes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from tpugraphs.child import ChildFailed
from tpugraphs.errors import BadRequest
from tpugraphs.measure.child import BASELINE
from tpugraphs.measure.fingerprint import fingerprint
from tpugraphs.measure.measurement import Measurement
from tpugraphs.measure.session import ROUNDS, SAMPLE_S, Session
from tpugraphs.measure.timing import Ratio, paired_ratio
from tpugraphs.program import Program, capture_callable
from tpugraphs.space import Config, Space
from tpugraphs.space.form import FORMS, Form
from tpugraphs.space.knobs import FORM, TILE
from tpugraphs.space.product import space_of
from tpugraphs.target import Target, target_named
from tpugraphs.tuning.outcome import Outcome, Proof
from tpugraphs.tuning.strategy import CornersThenClimb
from tpugraphs.tuning.tiles import TileSearch, by_digest
from tpugraphs.types import Kernel

OPTIONS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "xla:cpu": {"fusion_library": ("off",)},
    "iree:llvm-cpu": {"im2col": ("on",), "data_tiling": ("on",)},
}
"""By target, the options that are tried in every combination with the forms."""
_SEVERAL_AT_ONCE = 1.5 * max(1.0, 2 / (os.cpu_count() or 1))
"""How many times as long as one module, compiled beside another, three of them take, on all cores."""
PROOF_PROCESSES, PROOF_ROUNDS = 5, 12
_LEAST_PROOF_PROCESSES, _LEAST_PROOF_ROUNDS = 3, 4
_PROOF_SHARE = 0.5
"""Slow programs get a proof of fewer processes and rounds, so that it takes about this share of the budget."""
_FINALISTS = 3
_WORTH_A_PROOF = 0.99
"""A search that found nothing below this share of the default's time has found nothing."""
_PROFILED_CALLS, _SEARCH_PROFILED_CALLS, _KERNEL_CALLS = 5, 2, 3
_FORMS_SHARE = 0.6
"""Of the time before the proof, where tiles are to be tried after forms."""
_REPAIRS = 6
"""So many times tiles that the compiler refuses are taken out of a choice for all kernels."""
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
    most: int | None = None,
) -> Outcome:
    """Tunes a program, with `most` configs at the most. Ctrl-C ends the search and returns what was found, without a
    proof."""
    if target not in OPTIONS:
        raise BadRequest(f"{target}: no such target; expected {' or '.join(OPTIONS)}")
    compiler = target_named(target, forms)
    space = space_of(program, backend=compiler.backend, options=OPTIONS[target], forms=forms)
    begun = start or time.monotonic()
    run = _Run(program, compiler, space, seconds(budget), seed, watch or (lambda _: None), begun, most)
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
    target: Target
    space: Space
    budget_s: float
    seed: int
    watch: Watch
    start: float
    most: int | None = None
    measurements: list[Measurement] = field(default_factory=list)
    profiles: dict[Config, dict[str, float]] = field(default_factory=dict)
    session: Session = field(init=False)

    def __post_init__(self) -> None:
        rewritten = [knob.place for knob in self.space.knobs if knob.kind == FORM]
        self.session = Session(self.program, self.target, probed=rewritten, seed=self.seed)

    @property
    def used_s(self) -> float:
        return time.monotonic() - self.start

    def carry_out(self) -> Outcome:
        candidate, proof, ended = Config(), None, "interrupted"
        with self.session as session:
            try:
                self._tell("measuring the default")
                session.begin()
                self.profiles[Config()] = session.profile(BASELINE, _PROFILED_CALLS)
                ended = self._search()
                candidate = self._choose()
                if not candidate.is_default:
                    proof = self._prove(candidate)
            except KeyboardInterrupt:
                if not session.default_ns:
                    raise
                ended = "interrupted"
                candidate = candidate if not candidate.is_default else self._best_so_far()
        return Outcome(
            program=replace(self.program, arguments=None),
            target=self.target.name,
            space=self.space,
            candidate=candidate,
            proof=proof,
            measurements=tuple(self.measurements),
            default_ns=session.default_ns,
            default_profile=self.profiles.get(Config(), {}),
            tuned_profile=self.profiles.get(candidate, {}),
            budget_s=self.budget_s,
            used_s=self.used_s,
            ended=ended,
            fingerprint=fingerprint(),
        )

    def _search(self) -> str:
        tiled = TILE in self.target.spaces
        ended = self._search_forms(_FORMS_SHARE if tiled else 1.0)
        return (tiled and self._search_tiles()) or ended

    def _search_forms(self, share: float) -> str:
        """Forms and options, in this share of the time before the proof."""
        strategy = CornersThenClimb(self.space, self.profiles[Config()])
        while True:
            if self.used_s + self._one_more_s() > share * (self.budget_s - self._proof_s()):
                return "budget"
            if self.most is not None and len(self.measurements) >= self.most:
                return "count"
            config = strategy.ask()
            if config is None:
                return "exhausted"
            measured = self._measure(config)
            strategy.tell(config, measured.ratio.value if measured.ratio else None, measured.node_ns)

    def _search_tiles(self) -> str | None:
        """Of the kernels that the best config so far is made of; None where they cannot be timed."""
        base = self._best_so_far()
        try:
            kernels, times = self.session.kernels_of(base, _KERNEL_CALLS)
        except ChildFailed:
            return None
        search = TileSearch(kernels, times, seed=self.seed)
        self.space = self.space * search.space
        ended, took_s = "exhausted", self._one_more_s()
        while asked := search.ask():
            if self.used_s + self._proof_s() + took_s + self._one_more_s() > self.budget_s:
                ended = "budget"
                break
            begun = self.used_s
            search.tell(asked, self._kernel_times(base, asked, kernels))
            took_s = self.used_s - begun
            self._tell(f"tiles, {len(search.best)} of {len(search.space.knobs)} kernels faster")
        if search.best:
            self._measure(Config.of({**base.as_dict(), **search.best}))
        return ended

    def _kernel_times(self, base: Config, asked: dict[str, str], kernels: Sequence[Kernel]) -> dict[str, float]:
        """ns by kernel. Tiles that the compiler names as the trouble leave `asked`, and the rest is tried again."""
        names = {kernel.digest: kernel.name for kernel in kernels}
        for _ in range(_REPAIRS):
            try:
                found, times = self.session.kernels_of(Config.of({**base.as_dict(), **asked}), _KERNEL_CALLS)
                return by_digest(found, times)
            except ChildFailed as error:
                guilty = [name for name in asked if names[name.removesuffix(f".{TILE}")] in str(error)]
                if not guilty:
                    break
                for name in guilty:
                    del asked[name]
        asked.clear()
        return {}

    def _measure(self, config: Config) -> Measurement:
        [measured] = self.session.measure([config], profiled_calls=_SEARCH_PROFILED_CALLS)
        self.measurements.append(measured)
        self._tell("searching")
        return measured

    def _choose(self) -> Config:
        """Measures the finalists against each other; the default if none is worth it."""
        good = sorted((m for m in self.measurements if m.ratio), key=lambda m: m.ratio.value if m.ratio else 0.0)
        finalists = [m.config for m in good[:_FINALISTS] if m.ratio and m.ratio.value < _WORTH_A_PROOF]
        if not finalists:
            return Config()
        self._tell("comparing the finalists")
        session = self.session
        try:
            if not session.worker.alive:
                session.begin()
            session.build({config.digest: config for config in finalists})
            names = [config.digest for config in finalists]
            samples = session.time([BASELINE, *names], sample_s=2 * SAMPLE_S)
            chosen = min(finalists, key=lambda one: paired_ratio([(samples[one.digest], samples[BASELINE])]).value)
            self.profiles[chosen] = session.profile(chosen.digest, _PROFILED_CALLS)
        except ChildFailed:
            return finalists[0]
        return chosen

    def _prove(self, candidate: Config) -> Proof | None:
        """Default, default again and candidate in turns, in fresh processes; None if the candidate fails there."""
        processes, (count, rounds) = [], self._proof_size
        for number in range(count):
            self._tell(f"proving, process {number + 1} of {count}")
            try:
                self.session.start()
                self.session.build({BASELINE: Config(), "again": Config(), "tuned": candidate})
                processes.append(self.session.time([BASELINE, "again", "tuned"], rounds))
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
        finalists = self._compile_s + ROUNDS * (_FINALISTS + 1) * 2 * self._sample_s
        processes, rounds = self._proof_size
        return finalists + processes * (self._proof_start_s + rounds * 3 * self._sample_s)

    def _one_more_s(self) -> float:
        return self._compile_s + ROUNDS * 2 * self._sample_s

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
        return self.session.start_s + self._compile_s

    @property
    def _sample_s(self) -> float:
        """A sample of the default with its uncounted call."""
        return max(SAMPLE_S, self.session.default_ns / 1e9) + self.session.default_ns / 1e9

    @property
    def _compile_s(self) -> float:
        """For a few modules at a time. What was measured of one had its probing copy compiled beside it."""
        return _SEVERAL_AT_ONCE * max([self.session.build_s, *(m.compile_s for m in self.measurements)])

    def _tell(self, phase: str) -> None:
        ratios = [m.ratio for m in self.measurements if m.ratio]
        best = min(ratios, key=lambda ratio: ratio.value, default=None)
        failed = sum(m.status != "ok" for m in self.measurements)
        default_ns = self.session.default_ns
        self.watch(Progress(phase, self.used_s, self.budget_s, default_ns, best, len(self.measurements), failed))
