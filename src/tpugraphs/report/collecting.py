"""Collecting as tables: a view of it while it runs, what it would take, what came of it, what a journal holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import exp

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tpugraphs.measure.collect import DONE, Collected, Progress
from tpugraphs.measure.journal import History
from tpugraphs.measure.judging import Judgement, judge
from tpugraphs.measure.measurement import OK
from tpugraphs.measure.planning import Estimate
from tpugraphs.measure.timing import Ratio
from tpugraphs.report.tables import count_of, plain_table, time_of

_MOST_FAILURES = 12
_LONGEST = 100


def watching(progress: Progress) -> RenderableType:
    """Two lines: where it is, and how it goes."""
    where = f"program {progress.number} of {progress.programs} · {progress.program} · {progress.phase}"
    told = [f"{progress.done} of {progress.wanted} configs"]
    if progress.new and progress.used_s:
        told.append(f"{progress.new / progress.used_s:.1f} a second")
    if progress.left_s is not None:
        told.append(f"{duration(progress.left_s)} left")
    if progress.default_ns:
        told.append(f"default {time_of(progress.default_ns)}")
    if progress.best is not None:
        told.append(f"best {progress.best.speedup:.2f}x")
    if progress.noise_floor is not None:
        told.append(f"noise floor {_percent(progress.noise_floor)}")
    told += [f"{count} {status}" for status, count in sorted(progress.failed.items())]
    return Group(Text(where, style="bold"), Text(" · ".join(told)))


def estimates(found: Sequence[Estimate]) -> RenderableType:
    """What a collect would measure, and about how long it would take."""
    table = plain_table("", "program", "knobs", "configs there are", "to measure", "default", "to compile", "about")
    for one in found:
        if one.message:
            table.add_row(one.program, Text(one.message, style="yellow"))
            continue
        knobs = ", ".join(f"{count} {kind}" for kind, count in sorted(one.knobs.items()))
        times = (time_of(one.default_ns), f"{one.build_s:.1f} s", duration(one.seconds))
        table.add_row(one.program, knobs, count_of(one.size - 1), f"{one.configs:,}", *times)
    configs, total_s = sum(one.configs for one in found), sum(one.seconds for one in found)
    return Group(table, Text(f"{configs:,} configs of {len(found)} programs, about {duration(total_s)}"))


def collected(results: Sequence[Collected], histories: Mapping[str, History], into: object) -> RenderableType:
    """What a collect did, program by program."""
    judged = [judge(histories[one.study]) for one in results if one.study in histories]
    parts: list[RenderableType] = [_studies(judged)] if judged else []
    if others := [one for one in results if one.ending != DONE]:
        parts.append(
            _listed(f"{one.program}: {one.ending}{f': {one.message}' if one.message else ''}" for one in others)
        )
    new = sum(one.new for one in results)
    parts.append(Text(f"{new:,} configs measured, {sum(one.configs for one in results):,} in all, in {into}"))
    return Group(*parts)


def runs(histories: Iterable[History], *, every: bool = False) -> RenderableType:
    """What a journal holds, by collection and machine; what to doubt and why; what failed and how."""
    by_kind: dict[tuple[str, str], list[History]] = {}
    for history in histories:
        machine = history.study.fingerprint.get("processor", "an unknown processor")
        by_kind.setdefault((history.study.collection, machine), []).append(history)
    parts: list[RenderableType] = []
    for (collection, machine), group in sorted(by_kind.items()):
        judged = sorted((judge(one) for one in group), key=lambda one: one.program)
        parts += [Text(f"{collection} on {machine}", style="bold"), _studies(judged)]
        if doubts := [f"{one.program}: {'; '.join(one.doubts)}" for one in judged if one.doubts]:
            parts += [Text("not to be trusted as they are:"), _listed(doubts)]
        parts += _failures(group, every)
    return Group(*parts)


def _studies(judged: Sequence[Judgement]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("program", overflow="fold", min_width=10)
    for heading in ("configs", "failed", "default", "best", "again, in a fresh process", "spread", "noise"):
        table.add_column(heading, justify="right", min_width=6)
    for one in judged:
        table.add_row(
            Text(f"{one.program} ?", style="yellow") if one.doubts else one.program,
            f"{one.configs:,}",
            str(sum(one.failed.values()) or ""),
            time_of(one.default_ns),
            f"{one.best_ratio.speedup:.2f}x" if one.best_ratio else "–",
            _interval(one.confirmed.ratio if one.confirmed else None),
            f"{one.spread:.2f}" if one.spread else "–",
            _percent(one.noise_floor),
        )
    return table


def _interval(ratio: Ratio | None) -> str:
    return "–" if ratio is None else f"{ratio.speedup:.2f}x, {1 / ratio.high:.2f} to {1 / ratio.low:.2f}"


def _failures(histories: Sequence[History], every: bool) -> list[RenderableType]:
    seen: Counter[tuple[str, str, str]] = Counter()
    for history in histories:
        for one in history.asked.values():
            if one.status != OK:
                seen[history.study.program, one.status, one.message[:_LONGEST]] += 1
    if not seen:
        return []
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="failed", title_justify="left", title_style="")
    for heading, kind in (("program", "left"), ("configs", "right"), ("how", "left"), ("what was said", "left")):
        table.add_column(heading, justify=kind, overflow="fold")  # pyright: ignore[reportArgumentType]
    for (program, status, message), count in seen.most_common(None if every else _MOST_FAILURES):
        table.add_row(program, f"{count:,}", status, message)
    more = len(seen) - _MOST_FAILURES
    return [table, *([Text(f"… and {more:,} more (--all lists them)", style="dim")] if more > 0 and not every else [])]


def _listed(lines: Iterable[str]) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row(Text(line))
    return table


def duration(seconds: float) -> str:
    """For people: 40 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def _percent(log_ratio: float | None) -> str:
    return "–" if log_ratio is None else f"{100 * (exp(log_ratio) - 1):.2f} %"
