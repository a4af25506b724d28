"""What measuring is worth on this machine, section by section.

    python bench/measure.py gains [--budget 30m] [PROGRAM ...] [--save]
    python bench/measure.py agreement | repeats | share | memory | kills [--save]

`gains` collects 60 random configs of layouts and of flags for each program of the small tier, and ResNet50, into
bench/runs, one program of each family first; it goes on where it stopped, and its table shows what is there. `share`
reads the same journals. The others measure anew. --save writes a section into bench/RESULTS.md.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import exp
from pathlib import Path
from statistics import median

import jax.numpy as jnp
import machine
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.live import Live

from tpugraphs.measure.child import BASELINE
from tpugraphs.measure.collect import collect
from tpugraphs.measure.journal import History, read_runs
from tpugraphs.measure.judging import Judgement, judge
from tpugraphs.measure.noise import modes
from tpugraphs.measure.planning import Wanted
from tpugraphs.measure.session import ROUNDS, Session
from tpugraphs.measure.timing import Ratio, floor_of, paired_ratio
from tpugraphs.metrics.ranking import noise_aware_tau
from tpugraphs.program import Program, capture_callable, programs, resolve_source
from tpugraphs.program.selection import select_programs
from tpugraphs.report.collecting import watching
from tpugraphs.report.tables import time_of
from tpugraphs.space import Config
from tpugraphs.space.knobs import FORM
from tpugraphs.space.product import space_of
from tpugraphs.space.search import RandomSearch
from tpugraphs.target.xla import XlaTarget
from tpugraphs.tuning.loop import seconds

RUNS = Path(__file__).with_name("runs")
SPACES, CONFIGS = ("layout", "flags"), 60
FIRST = ("resnet50",)
"""Before the small tier."""
AGREEING, OVER, BATCH = "mobilenetv2-64/inference/b1", ("layout", "form", "flags"), 10
"""Measured in two passes."""
REPEATED = ("resnet50-64/inference/b1", "bert-mini/inference/b1", "mobilenetv2-64/inference/b1")
PASS_PROCESSES = 3
CHANGED = Config.of({"fusion_library": "off"})
PROCESSES, PROCESS_ROUNDS = 10, 40
LONG, TINY = 5000, "dlrm-tiny/inference/b32"
KILLS, KILLED_CONFIGS = 20, 60

Lines = Iterator[str]


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--save"]
    section, given = (words or [""])[0], words[1:]
    if section not in SECTIONS:
        sys.exit(f"expected one of {', '.join(SECTIONS)}")
    title, make = SECTIONS[section]
    lines = list(make(given))
    print("\n".join(lines))
    if "--save" in sys.argv:
        machine.save(title, " ".join(["python bench/measure.py", *words, "--save"]), "\n".join(lines))


# The small tier -------------------------------------------------------------------------------------------------------


def gains(given: Sequence[str]) -> Lines:
    budget_s, names = None, list(given)
    if "--budget" in names:
        at = names.index("--budget")
        budget_s = seconds(names[at + 1])
        del names[at : at + 2]
    begun = time.monotonic()
    with Live(console=Console(stderr=True), auto_refresh=False) as view:
        for name in names or [*FIRST, *_by_family()]:
            for space in SPACES:
                left_s = None if budget_s is None else budget_s - (time.monotonic() - begun)
                if left_s is not None and left_s <= 0:
                    break
                wanted = Wanted((space,), configs=CONFIGS)
                collect(
                    select_programs([name]), wanted, RUNS, watch=lambda now: view.update(watching(now), refresh=True)
                )
    yield from _gains(read_runs(RUNS))


def _by_family() -> list[str]:
    """The small tier's programs: the first of each family, the second, …"""
    seen: Counter[str] = Counter()
    ranked = []
    for one in programs.tier("small"):
        ranked.append((seen[one.family], one.name))
        seen[one.family] += 1
    return [name for _, name in sorted(ranked, key=lambda pair: pair[0])]


def _gains(histories: dict[str, History]) -> Lines:
    found: dict[str, dict[str, Judgement]] = {}
    for history in histories.values():
        if history.ended:
            found.setdefault(history.study.program, {})[history.study.spaces[0]] = judge(history)
    headings = " | ".join(f"{space}: best of {CONFIGS} | in a fresh process | noise floor | failed" for space in SPACES)
    yield f"| program | default | {headings} |"
    yield "|---|---|" + "---|" * 4 * len(SPACES)
    for program, by_space in sorted(found.items()):
        default = time_of(median(one.default_ns for one in by_space.values()))
        cells = [_gain(by_space[space]) if space in by_space else "– | – | – | –" for space in SPACES]
        yield f"| {program} | {default} | {' | '.join(cells)} |"
    for space in SPACES:
        again = [one.confirmed.ratio for by in found.values() if (one := by.get(space)) and one.confirmed]
        faster = [ratio.speedup for ratio in again if ratio and ratio.high < 1]
        measured = sum(space in by for by in found.values())
        yield ""
        most = f", at most {max(faster):.2f}x" if faster else ""
        yield f"{space}: {len(faster)} of {measured} programs gain, by an interval that excludes 1{most}."


def _gain(one: Judgement) -> str:
    best = f"{one.best_ratio.speedup:.2f}x" if one.best_ratio else "–"
    again = _interval(one.confirmed.ratio) if one.confirmed and one.confirmed.ratio else "none is faster"
    floor = "–" if one.noise_floor is None else f"{exp(one.noise_floor) - 1:.1%}"
    return f"{best} | {again} | {floor} | {sum(one.failed.values())} of {one.configs}"


def _interval(ratio: Ratio) -> str:
    return f"{ratio.speedup:.2f}x, {1 / ratio.high:.2f} to {1 / ratio.low:.2f}"


# Trust ----------------------------------------------------------------------------------------------------------------


def agreement(_: Sequence[str]) -> Lines:
    """The same configs in two passes of several processes each; beside it the usual way, on the same builds."""
    program = resolve_source(AGREEING)
    with _session(program) as session:
        session.begin()
        asked = RandomSearch(space_of(program, OVER), count=44, seed=1).ask(44)
        configs = [one.config for one in session.measure(asked, rounds=2, sample_s=0.001) if one.ratio][:40]
    passes = [[_process(program, configs) for _ in range(PASS_PROCESSES)] for _ in range(2)]
    floor = floor_of([ratio for one in passes for process in one for ratio in process.again]) or 0.0
    yield f"{AGREEING}, {len(configs)} configs of the joint space, two passes; noise floor {exp(floor) - 1:.2%}."
    yield ""
    yield "| way | processes a pass | slowest / fastest | tau beyond the noise floor (≥ 0.95) | median difference |"
    yield "|---|---|---|---|---|"
    for way, name in (("paired", "paired, interleaved, median"), ("naive", "one after the other, minimum")):
        for count in (1, PASS_PROCESSES):
            first, second = (_combined([getattr(process, way) for process in one[:count]], way) for one in passes)
            tau = noise_aware_tau(first, second, noise_floor=floor)
            apart = exp(float(np.median(np.abs(np.log(first / second))))) - 1
            yield f"| {name} | {count} | {first.max() / first.min():.2f} | {tau:.3f} | {apart:.2%} |"


def _combined(processes: Sequence[dict[Config, float]], way: str) -> NDArray[np.float64]:
    """Of several processes: the median of paired ratios, the least of the others."""
    values = np.array([list(process.values()) for process in processes])
    return np.median(values, axis=0) if way == "paired" else values.min(axis=0)


@dataclass(slots=True)
class _Process:
    """Ratios to the default, by config, and of the default to itself."""

    paired: dict[Config, float] = field(default_factory=dict)
    naive: dict[Config, float] = field(default_factory=dict)
    again: list[float] = field(default_factory=list)


def _process(program: Program, configs: Sequence[Config]) -> _Process:
    found = _Process()
    with _session(program) as session:
        session.begin()
        least = min(session.time([BASELINE], ROUNDS)[BASELINE])
        for start in range(0, len(configs), BATCH):
            names = {config.digest: config for config in configs[start : start + BATCH]}
            session.build({"again": Config(), **names})
            samples = session.time([BASELINE, "again", *names], ROUNDS)
            found.again.append(paired_ratio([(samples["again"], samples[BASELINE])]).value)
            for name, config in names.items():
                found.paired[config] = paired_ratio([(samples[name], samples[BASELINE])]).value
                found.naive[config] = min(session.time([name], ROUNDS)[name]) / least
            session.drop(["again", *names])
    return found


def repeats(_: Sequence[str]) -> Lines:
    """One config against the default in fresh processes, and the same samples the usual way."""
    headings = "ratios by process, paired | modes | CV within a mode (≤ 1 %) | CV of all | the usual way: CV of all"
    yield f"`{CHANGED.to_json()}` over the default, {PROCESSES} fresh processes, {PROCESS_ROUNDS} samples each."
    yield ""
    yield f"| program | {headings} |"
    yield "|---|---|---|---|---|---|"
    for name in REPEATED:
        by_process, naive = [], []
        with _session(resolve_source(name)) as session:
            for _process in range(PROCESSES):
                session.begin()
                session.build({"changed": CHANGED})
                samples = session.time([BASELINE, "changed"], PROCESS_ROUNDS)
                by_process.append(np.divide(samples["changed"], samples[BASELINE]).tolist())
                alone = [min(session.time([one], PROCESS_ROUNDS)[one]) for one in (BASELINE, "changed")]
                naive.append(alone[1] / alone[0])
                session.worker.stop()
        groups = modes(by_process)
        within = max(_variation(group) for group in groups)
        medians = [median(one) for one in by_process]
        told = ", ".join(f"{len(group)} at {median(group):.3f}" for group in groups)
        ratios = " ".join(f"{one:.3f}" for one in medians)
        yield f"| {name} | {ratios} | {told} | {within:.2%} | {_variation(medians):.2%} | {_variation(naive):.2%} |"


def _variation(values: Sequence[float]) -> float:
    """The coefficient of variation."""
    return float(np.std(values, ddof=1) / np.mean(values)) if len(values) > 1 else 0.0


def _session(program: Program) -> Session:
    rewritten = [knob.place for knob in space_of(program, (FORM,)).knobs]
    return Session(program, XlaTarget("cpu"), probed=rewritten, pinned=True)


# Cost -----------------------------------------------------------------------------------------------------------------


def share(_: Sequence[str]) -> Lines:
    """Where the wall time of the collects in bench/runs went."""
    spent: Counter[str] = Counter()
    wall_s, configs, ended = 0.0, 0, 0
    for history in read_runs(RUNS).values():
        for record in history.ended:
            spent.update(record.value["spent_s"])  # pyright: ignore[reportCallIssue, reportArgumentType]
            wall_s += record.value["wall_s"]
            ended += 1
        configs += len(history.asked)
    yield f"{ended} collects, {configs:,} configs, {wall_s / 60:.0f} min: {configs / wall_s:.2f} configs a second."
    yield ""
    yield "| what | share of the wall time |"
    yield "|---|---|"
    names = {"build": "compiling", "time": "timing", "check": "running to compare results", "profile": "time per node"}
    for phase, name in names.items():
        yield f"| {name} | {spent[phase] / wall_s:.1%} |"
    yield f"| compiling and running together (≥ 75 %) | {sum(spent[phase] for phase in names) / wall_s:.1%} |"
    yield f"| starting processes | {spent['start'] / wall_s:.1%} |"
    yield f"| applying configs to the program | {spent['prepare'] / wall_s:.1%} |"


def memory(_: Sequence[str]) -> Lines:
    """Resident memory of driver and worker over many configs of a small program."""
    rng = np.random.default_rng(0)
    arguments = [rng.normal(size=shape).astype(np.float32) for shape in ((32, 24), (24, 16), (16, 8))]
    program = capture_callable(lambda x, v, w: jnp.tanh(jnp.tanh(x @ v) @ w), *arguments, name="perceptron")
    configs = RandomSearch(space_of(program, ("layout",)), count=LONG).ask(LONG)
    yield f"A perceptron of two dots, {len(configs):,} configs of layouts."
    yield ""
    yield "| configs | driver | worker | workers so far |"
    yield "|---|---|---|---|"
    with _session(program) as session:
        session.begin()
        for start in range(0, len(configs), 20):
            session.measure(configs[start : start + 20], rounds=2, sample_s=0.001)
            done = start + 20
            if done in (100, 200) or done % (LONG // 20) == 0:
                driver, worker = _resident(os.getpid()), _resident(session.worker.pid) if session.worker.pid else 0.0
                yield f"| {done:,} | {driver:.0f} MB | {worker:.0f} MB | {session.starts} |"
                print(done, driver, worker, session.starts, file=sys.stderr)


def _resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def kills(_: Sequence[str]) -> Lines:
    """kill -9 of worker and driver in the middle of real collects, and going on, until there were enough."""
    rng, killed, totals = random.Random(0), Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        while killed.total() < KILLS:
            totals["collects"] += 1
            into, alone = Path(folder) / f"disturbed{totals['collects']}", Path(folder) / f"alone{totals['collects']}"
            begun = time.monotonic()
            subprocess.run(_collecting(alone, totals["collects"]), check=True, capture_output=True)
            lasts_s = time.monotonic() - begun
            while _disturbed(_collecting(into, totals["collects"]), lasts_s, rng, killed) and killed.total() < KILLS:
                pass
            subprocess.run(_collecting(into, totals["collects"]), check=True, capture_output=True)
            ours, theirs = _configs_of(into), _configs_of(alone)
            totals["configs"] += len(theirs)
            totals["lost"] += len(theirs.keys() - ours.keys())
            totals["foreign"] += len(ours.keys() - theirs.keys())
            totals["twice"] += ours.total() - len(ours)
    yield (
        f"{killed['driver']} kills of the driver and {killed['worker']} of the worker in {totals['collects']} collects "
        f"of {TINY}: of the {totals['configs']} configs of undisturbed runs {totals['lost']} were lost, "
        f"{totals['twice']} measured twice, and {totals['foreign']} others came."
    )


def _collecting(into: Path, seed: int) -> list[str]:
    command = [sys.executable, "-m", "tpugraphs", "collect", "layout,flags", "--programs", TINY, "--into", str(into)]
    return [*command, "--configs", str(KILLED_CONFIGS), "--seed", str(seed)]


def _disturbed(command: Sequence[str], lasts_s: float, rng: random.Random, killed: Counter[str]) -> bool:
    """Starts it and kills its worker at some point, and later itself; whether it was still at work."""
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for which in ("worker", "driver"):
        try:
            driver.wait(rng.uniform(0.1, lasts_s / 2))
        except subprocess.TimeoutExpired:
            victim = driver.pid if which == "driver" else _child_of(driver.pid)
            if victim is not None:
                os.kill(victim, signal.SIGKILL)
                killed[which] += 1
        else:
            return False
    driver.wait()
    return True


def _configs_of(runs: Path) -> Counter[str]:
    """How often the search's configs stand in a journal."""
    [history] = read_runs(runs).values()
    return Counter(
        record.measurement.config.digest
        for record in history.measured
        if record.measurement and record.purpose == "search"
    )


def _child_of(pid: int) -> int | None:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return None
    return int(children[0]) if children else None


SECTIONS: dict[str, tuple[str, Callable[[Sequence[str]], Lines]]] = {
    "gains": ("Best of 60 random configs on XLA:CPU", gains),
    "agreement": ("Two passes over the same configs", agreement),
    "repeats": ("One ratio in fresh processes", repeats),
    "share": ("Where the time of collecting goes", share),
    "memory": ("Memory over many configs", memory),
    "kills": ("Killing a collect", kills),
}

if __name__ == "__main__":
    main()
