"""What tuning found, as tables; and a view of it while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tpugraphs.report.tables import count_of, plain_table, time_of
from tpugraphs.target.contract import OTHER
from tpugraphs.tuning import Outcome, Progress

_MOST_ROWS = 12


def outcome(result: Outcome) -> RenderableType:
    """Default and tuned with the proof, what changed where, and how the budget was used."""
    verdict = Text(f"{result.program.name} on {result.target}: {result.verdict}", style="bold")
    parts: list[RenderableType] = [verdict]
    if result.proof is not None:
        parts.append(_proof(result))
    if not result.candidate.is_default:
        parts.append(_changes(result))
    elif result.measurements:
        parts.append(_tried(result))
    parts.append(Text(_effort(result), style="dim"))
    return Group(*parts)


def _proof(result: Outcome) -> RenderableType:
    proof = result.proof
    assert proof is not None  # noqa: S101 (the caller has looked)
    table = plain_table("", "", "time", "ratio", "95 % interval", "by process")
    again, ratio = proof.noise, proof.ratio
    by_process = " ".join(
        f"{tuned / default:.3f}" for tuned, default in zip(proof.tuned_ns, proof.default_ns, strict=True)
    )
    table.add_row("default", time_of(median(proof.default_ns)), "1", "", "")
    table.add_row("default again", "", f"{again.value:.3f}", f"{again.low:.3f} to {again.high:.3f}", "")
    interval = f"{ratio.low:.3f} to {ratio.high:.3f}"
    table.add_row("tuned", time_of(median(proof.tuned_ns)), f"{ratio.value:.3f}", interval, by_process, style="bold")
    return table


def _changes(result: Outcome) -> RenderableType:
    """Every changed knob, nodes by the time they took."""
    before, after, knobs = result.default_profile, result.tuned_profile, result.knobs
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("what", "now"):
        table.add_column(heading, overflow="fold")
    for heading in ("default", "tuned"):
        table.add_column(heading, justify="right", no_wrap=True)
    by_kind_and_time = sorted(
        (knobs[name].kind, -before.get(knobs[name].place, 0.0), name) for name, _ in result.candidate.changes
    )
    chosen = result.candidate.as_dict()
    changes = [(name, chosen[name]) for _, _, name in by_kind_and_time]
    for name, choice in changes[:_MOST_ROWS]:
        knob = knobs[name]
        times = (_spent(before, knob.place), _spent(after, knob.place)) if knob.kind == "form" else ("", "")
        table.add_row(knob.label, _now(knob.kind, choice), *times)
    rest = changes[_MOST_ROWS:]
    if rest:
        places = {knobs[name].place for name, _ in rest}
        times = (time_of(sum(profile.get(place, 0.0) for place in places)) for profile in (before, after))
        table.add_row(f"{len(rest)} more nodes", "likewise", *times)
    if not after:
        return table  # interrupted before the candidate was profiled
    changed = {knobs[name].place for name, _ in changes}
    left = (time_of(sum(ns for tag, ns in profile.items() if tag not in changed)) for profile in (before, after))
    table.add_row("everything else", "", *left, style="dim")
    unseen = [
        max(0.0, total - sum(profile.values())) for total, profile in zip(_totals(result), (before, after), strict=True)
    ]
    table.add_row("outside the profile", "", *map(time_of, unseen), style="dim")
    return table


def _totals(result: Outcome) -> tuple[float, float]:
    """Measured time per call, of the default and of the candidate (in the profile's own units: ns)."""
    if result.proof is None:
        return sum(result.default_profile.values()), sum(result.tuned_profile.values())
    return median(result.proof.default_ns), median(result.proof.tuned_ns)


def _now(kind: str, choice: str) -> str:
    from tpugraphs.space.form import FORMS

    return FORMS[choice].label if kind == "form" and choice in FORMS else choice


def _tried(result: Outcome) -> RenderableType:
    table = plain_table("", "tried", "ratio", "95 % interval")
    for one in result.measurements[:_MOST_ROWS]:
        what = ", ".join(f"{result.knobs[name].label} {choice}" for name, choice in one.config.changes[:3])
        more = f" and {len(one.config.changes) - 3} more" if len(one.config.changes) > 3 else ""
        ratio = one.ratio
        interval = f"{ratio.low:.3f} to {ratio.high:.3f}" if ratio else ""
        table.add_row(what + more, f"{ratio.value:.3f}" if ratio else one.status, interval)
    return table


def _spent(profile: Mapping[str, float], tag: str) -> str:
    return time_of(profile.get(tag)) if profile else "–"


def _effort(result: Outcome) -> str:
    where = ", ".join(
        f"{_label(result, tag)} {time_of(ns)}"
        for tag, ns in sorted(result.default_profile.items(), key=lambda item: -item[1])[:3]
    )
    failed = f", {len(result.failed)} failed ({result.failed[0].message[:120]})" if result.failed else ""
    size = count_of(result.space.size)
    spent = f"{result.used_s:.0f} s of {result.budget_s:.0f} s used, search ended: {result.ended}"
    return f"{len(result.measurements)} of {size} configs{failed}; {spent}. Most of the default's time: {where}."


def _label(result: Outcome, tag: str) -> str:
    if tag == OTHER:
        return "operations outside the nodes"
    return next((node.description for node in result.program.nodes if node.tag == tag), tag)


def watching(progress: Progress) -> RenderableType:
    """One line while it runs."""
    best = f" · best so far {progress.best.speedup:.2f}x" if progress.best else ""
    default = f" · default {time_of(progress.default_ns)}" if progress.default_ns else ""
    failed = f", {progress.failed} failed" if progress.failed else ""
    return Text(
        f"{progress.phase} · {progress.used_s:.0f} of {progress.budget_s:.0f} s{default}"
        f" · {progress.measured} configs measured{failed}{best}"
    )
