"""What a study's measurements are worth: failures, twins, noise, spread, and what speaks against trusting them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import exp, log
from typing import Any

from tpugraphs.measure.journal import History
from tpugraphs.measure.measurement import OK, Measurement
from tpugraphs.measure.timing import Ratio, floor_of

_FEW_REPEATS = 3
_NOISY_SHARE = 0.5
"""Noise that is more than this share of how far configs lie apart leaves little of their order."""
_MANY_FAILED = 0.5
_FEW = 10
_TICKING = 0.5
"""Of samples at multiples of the tick; by chance it is 1 in 25."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One study in figures."""

    study: str
    program: str
    collection: str
    configs: int
    failed: Mapping[str, int]
    """By class."""
    twins: int
    """Configs that compile to the same program as another, which were not measured again."""
    default_ns: float
    best: Measurement | None
    """The fastest of the search."""
    confirmed: Measurement | None
    """The fastest of those that were measured again in a fresh process: the best of many noisy figures flatters."""
    spread: float | None
    """Slowest over fastest, the default included."""
    noise_floor: float | None
    repeats: int
    drift: float | None
    """The default's time at the end over that at the beginning, the last time."""
    doubts: tuple[str, ...]
    """What speaks against trusting it; none is good."""

    @property
    def best_ratio(self) -> Ratio | None:
        return self.best.ratio if self.best is not None else None

    def to_json(self) -> dict[str, Any]:
        """What a collection keeps of it."""
        return {
            "study": self.study,
            "failed": dict(self.failed),
            "twins": self.twins,
            "repeats": self.repeats,
            "default_ns": self.default_ns,
            "drift": self.drift,
            "doubts": list(self.doubts),
        }


def judge(history: History) -> Judgement:
    """Judges what a journal says of one study."""
    asked = list(history.asked.values())
    timed = [one for one in asked if one.ratio is not None and one.status == OK]
    ratios = [one.ratio.value for one in timed if one.ratio]
    repeats = [one.ratio.value for one in history.repeats if one.ratio]
    drifts = [record.value.get("drift") for record in history.ended]
    spread = max([1.0, *ratios]) / min([1.0, *ratios]) if ratios else None
    apart = floor_of([1.0, *ratios])
    floor = floor_of(repeats)
    failed = Counter(one.status for one in asked if one.status != OK)
    return Judgement(
        study=history.study.id,
        program=history.study.program,
        collection=history.study.collection,
        configs=len(asked),
        failed=failed,
        twins=sum(bool(one.same_as) for one in asked),
        default_ns=default_ns(history),
        best=_fastest(timed),
        confirmed=_fastest(one for one in history.finalists if one.status == OK),
        spread=spread,
        noise_floor=floor,
        repeats=len(repeats),
        drift=drifts[-1] if drifts else None,
        doubts=tuple(_doubts(history, asked, apart, floor, len(repeats), failed.total(), drifts)),
    )


def _fastest(measured: Iterable[Measurement]) -> Measurement | None:
    timed = ((one.ratio.value, one) for one in measured if one.ratio is not None)
    return min(timed, key=lambda pair: pair[0], default=(1.0, None))[1]


def default_ns(history: History) -> float:
    """What the default took when the study began: the unit that ratios are turned into times by."""
    return float(history.begun[0].value["default_ns"]) if history.begun else 0.0


def _doubts(
    history: History,
    asked: list[Measurement],
    apart: float | None,
    floor: float | None,
    repeats: int,
    failed: int,
    drifts: list[float | None],
) -> Iterator[str]:
    if history.failed and not asked:
        yield str(history.failed[-1].value.get("message", "the default itself fails"))
        return
    if len(asked) < _FEW:
        yield f"only {len(asked)} configs"
    if not history.ended:
        yield "not finished"
    if failed > _MANY_FAILED * len(asked):
        yield f"{failed} of {len(asked)} configs failed"
    if repeats < _FEW_REPEATS:
        yield f"the default was repeated {repeats} times, too few to know the noise"
    elif floor is not None and apart is not None and floor > _NOISY_SHARE * apart:
        yield f"noise of {exp(floor) - 1:.1%}, where 19 of 20 pairs of configs are less than {exp(apart) - 1:.1%} apart"
    if drifts and drifts[-1] is not None and any(one.drifted for one in asked):
        number = sum(one.drifted for one in asked)
        yield f"the machine changed while {number} configs were measured"
    samples = sum(len(one.samples_ns) for one in asked)
    if samples and (ticks := sum(one.ticks for one in asked)) > _TICKING * samples:
        yield f"{ticks / samples:.0%} of the samples lie at multiples of the kernel's tick"
    yield from _unlike_itself(history, floor)


def _unlike_itself(history: History, floor: float | None) -> Iterator[str]:
    """Finalists that came out otherwise in a fresh process: the program runs in modes."""
    asked, off = history.asked, 0.0
    for one in history.finalists:
        first = asked.get(one.config.digest)
        if first is not None and first.ratio and one.ratio:
            off = max(off, abs(log(one.ratio.value / first.ratio.value)))
    if off > max(0.05, 2 * (floor or 0.0)):
        yield f"a fresh process gave {exp(off) - 1:.0%} other times"
