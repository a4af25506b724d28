"""What about this machine, right now, makes timings unsteady, and what its user can do about it; it only reads."""

from __future__ import annotations

import itertools
import math
import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from tpugraphs.measure.system_files import as_number, paths_like, read_text, switch

ROOT = Path("/")
T = TypeVar("T")
_CPUS = "sys/devices/system/cpu"
_NO_RANDOMIZE = 0x0040000  # ADDR_NO_RANDOMIZE of personality(2)
_COARSE_CLOCK = 6  # CLOCK_MONOTONIC_COARSE of Linux, which advances at ticks
_TICKS_HZ = (1000, 300, 250, 100)  # those that Linux offers
NEAR_TICK = 0.02
"""Of a tick's period: so near is at the tick."""
_CLEARLY_LESS = 0.9


class Busy(NamedTuple):
    """A process and how many CPUs it kept busy."""

    name: str
    cpus: float


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What matters for timing; None where it cannot be known."""

    interval_s: float
    cpus: int | None
    usable_cpus: tuple[int, ...] | None
    """The numbers of those that this process may run on."""
    governors: Mapping[int, str] | None
    """By CPU, as the frequencies are."""
    frequencies_mhz: Mapping[int, float] | None
    max_frequencies_mhz: Mapping[int, float] | None
    turbo: bool | None
    smt: bool | None
    """Whether hardware threads share cores."""
    hypervisor: bool | None
    steal_share: float | None
    """Of all processor time in the interval, what the hypervisor gave to others while this system wanted it."""
    load_averages: tuple[float, float, float] | None
    """Over 1, 5 and 15 minutes, this process's own part included."""
    others_cpus: float | None
    """How many CPUs were busy in the interval, apart from this process and those that it started."""
    busiest: tuple[Busy, ...] | None
    """Of the other processes that can be seen, those that used the most in the interval."""
    timer_resolution_ns: float | None
    """The smallest step of the clock that was seen: not less than what a reading costs."""
    timer_cost_ns: float | None
    tick_hz: int | None
    huge_pages: str | None
    """always, madvise or never."""
    aslr: bool | None
    quota_cpus: float | None
    """CPUs' worth of time that the control group allows; None without a limit too."""
    numa_nodes: int | None
    temperature_c: float | None
    throttles: int | None
    """Times that heat slowed a core down in the interval."""
    throttles_since_boot: int | None


def look(interval_s: float = 1.0, *, root: Path = ROOT) -> MachineFacts:
    """Watches the machine for this long; never fails, changes nothing."""
    times, processes, hot, begun = processor_times(root), process_times(root), throttle_count(root), time.monotonic()
    time.sleep(max(0.0, interval_s))
    elapsed_s = time.monotonic() - begun
    times_after, processes_after, hot_after = processor_times(root), process_times(root), throttle_count(root)
    ours, others = used_cpus(processes, processes_after, elapsed_s)
    steal_share, busy_cpus = shares(times, times_after, elapsed_s)
    resolution_ns, cost_ns = timer()
    return MachineFacts(
        interval_s=elapsed_s,
        cpus=os.cpu_count(),
        usable_cpus=usable_cpus(),
        governors=governors(root),
        frequencies_mhz=frequencies_mhz(root),
        max_frequencies_mhz=max_frequencies_mhz(root),
        turbo=turbo(root),
        smt=switch(read_text(root / _CPUS / "smt/active")),
        hypervisor=hypervisor(root),
        steal_share=steal_share,
        load_averages=load_averages(root),
        others_cpus=None if busy_cpus is None else max(0.0, busy_cpus - ours),
        busiest=tuple(others[:3]) if processes_after else None,
        timer_resolution_ns=resolution_ns,
        timer_cost_ns=cost_ns,
        tick_hz=tick_hz(root),
        huge_pages=huge_pages(root),
        aslr=aslr(root),
        quota_cpus=quota_cpus(root),
        numa_nodes=len(paths_like(root / "sys/devices/system/node", "node[0-9]*")) or None,
        temperature_c=temperature_c(root),
        throttles=None if hot is None or hot_after is None else hot_after - hot,
        throttles_since_boot=hot_after,
    )


def at_ticks(samples_ns: Sequence[float], tick_hz: int, usual_ns: float) -> list[bool]:
    """Which samples, of one call each, the kernel's tick ended: a thread waited for its turn until then.

    Such a sample lies at a multiple of the tick's period, and the usual call takes clearly less than that. Near is
    2 % of one period whatever the multiple: of the multiple itself, everything would be near after 25 periods.
    """
    if tick_hz <= 0:
        return [False] * len(samples_ns)
    period_ns = 1e9 / tick_hz
    flags: list[bool] = []
    for sample_ns in samples_ns:
        multiple_ns = round(sample_ns / period_ns) * period_ns if math.isfinite(sample_ns) else 0.0
        near = multiple_ns > 0 and abs(sample_ns - multiple_ns) <= NEAR_TICK * period_ns
        flags.append(bool(near and usual_ns < _CLEARLY_LESS * multiple_ns))
    return flags


# Processor time -------------------------------------------------------------------------------------------------------


class ProcessorTimes(NamedTuple):
    """Of all CPUs together, since boot."""

    busy_s: float
    stolen_s: float
    total_s: float


class ProcessTime(NamedTuple):
    name: str
    parent: int
    used_s: float


def processor_times(root: Path = ROOT) -> ProcessorTimes | None:
    fields = (read_text(root / "proc/stat") or "").split("\n", 1)[0].split()
    values = [as_number(field) for field in fields[1:9]]  # guests' time, which follows, is in the first two already
    known = [value for value in values if value is not None]
    if not fields or fields[0] != "cpu" or len(known) < 8:
        return None
    idle, stolen, total = known[3] + known[4], known[7], sum(known)
    per_s = _clock_ticks_per_s()
    return ProcessorTimes((total - idle - stolen) / per_s, stolen / per_s, total / per_s)


def shares(
    before: ProcessorTimes | None, after: ProcessorTimes | None, elapsed_s: float
) -> tuple[float | None, float | None]:
    """The stolen share of all processor time, and how many CPUs were busy."""
    if before is None or after is None or after.total_s <= before.total_s or elapsed_s <= 0:
        return None, None
    stolen = (after.stolen_s - before.stolen_s) / (after.total_s - before.total_s)
    return max(0.0, stolen), max(0.0, (after.busy_s - before.busy_s) / elapsed_s)


def process_times(root: Path = ROOT) -> dict[tuple[int, str], ProcessTime]:
    """By process and when it began, since numbers come again."""
    found: dict[tuple[int, str], ProcessTime] = {}
    for folder in paths_like(root / "proc", "[0-9]*"):
        number, opened, rest = (read_text(folder / "stat") or "").partition("(")
        name, closed, fields_text = rest.rpartition(")")  # a name may hold brackets and spaces
        fields = fields_text.split()
        if not (opened and closed) or len(fields) < 20:
            continue
        process, parent, user, system = (as_number(text) for text in (number, fields[1], fields[11], fields[12]))
        if process is None or parent is None or user is None or system is None:
            continue
        used_s = (user + system) / _clock_ticks_per_s()
        found[int(process), fields[19]] = ProcessTime(name, int(parent), used_s)
    return found


def used_cpus(
    before: Mapping[tuple[int, str], ProcessTime], after: Mapping[tuple[int, str], ProcessTime], elapsed_s: float
) -> tuple[float, list[Busy]]:
    """CPUs that this process and its descendants kept busy, and the other processes, the busiest first."""
    parents = {key[0]: process.parent for key, process in after.items()}
    ours, others = 0.0, []
    for key, process in after.items():
        # one that was not there before has used all its time since
        used_s = process.used_s - (before[key].used_s if key in before else 0.0)
        if used_s <= 0 or elapsed_s <= 0:
            continue
        if os.getpid() in _ancestry(key[0], parents):
            ours += used_s / elapsed_s
        else:
            others.append(Busy(process.name, used_s / elapsed_s))
    return ours, sorted(others, key=lambda busy: -busy.cpus)


def _ancestry(process: int, parents: Mapping[int, int]) -> set[int]:
    """The process and those above it."""
    line: set[int] = set()
    while process in parents and process not in line:
        line.add(process)
        process = parents[process]
    return line


def load_averages(root: Path = ROOT) -> tuple[float, float, float] | None:
    values = [as_number(word) for word in (read_text(root / "proc/loadavg") or "").split()[:3]]
    known = [value for value in values if value is not None]
    return (known[0], known[1], known[2]) if len(known) == 3 else None


def usable_cpus() -> tuple[int, ...] | None:
    try:
        return tuple(sorted(os.sched_getaffinity(0)))
    except (AttributeError, OSError):  # not on every system
        return None


def quota_cpus(root: Path = ROOT) -> float | None:
    """The narrowest limit of this process's control group and those above it, of version 1 or 2."""
    limits: list[float] = []
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for mount in ("", "unified") if not controllers else (controllers, "cpu"):
            for depth in range(len(parts) + 1):
                limits += _limits(root.joinpath("sys/fs/cgroup", mount, *parts[:depth]))
    return min(limits, default=None)


def _limits(folder: Path) -> list[float]:
    words = (read_text(folder / "cpu.max") or "").split()
    words += [read_text(folder / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
    numbers = [as_number(word) or 0.0 for word in words]  # "max" and -1 are no limit
    return [
        quota / period for quota, period in zip(numbers[::2], numbers[1::2], strict=False) if min(quota, period) > 0
    ]


# Memory ---------------------------------------------------------------------------------------------------------------


def huge_pages(root: Path = ROOT) -> str | None:
    chosen = re.search(r"\[(\w+)\]", read_text(root / "sys/kernel/mm/transparent_hugepage/enabled") or "")
    return None if chosen is None else chosen.group(1)


def aslr(root: Path = ROOT) -> bool | None:
    """Whether every process gets other addresses: the system's setting, unless this process was started without."""
    setting = as_number(read_text(root / "proc/sys/kernel/randomize_va_space") or "")
    if setting is None:
        return None
    try:
        personality = int(read_text(root / "proc/self/personality") or "0", 16)
    except ValueError:
        personality = 0
    return setting > 0 and not personality & _NO_RANDOMIZE


# Clocks and heat ------------------------------------------------------------------------------------------------------


def governors(root: Path = ROOT) -> dict[int, str] | None:
    return _by_cpu(root, "cpufreq/scaling_governor", lambda text: text.strip() or None)


def frequencies_mhz(root: Path = ROOT) -> dict[int, float] | None:
    found = _by_cpu(root, "cpufreq/scaling_cur_freq", _mhz)
    if found is None:
        told = re.findall(r"^cpu MHz\s*:\s*([\d.]+)", read_text(root / "proc/cpuinfo") or "", re.MULTILINE)
        found = {cpu: mhz for cpu, word in enumerate(told) if (mhz := as_number(word)) is not None}
    return found or None


def max_frequencies_mhz(root: Path = ROOT) -> dict[int, float] | None:
    return _by_cpu(root, "cpufreq/cpuinfo_max_freq", _mhz)


def turbo(root: Path = ROOT) -> bool | None:
    forbidden = switch(read_text(root / _CPUS / "intel_pstate/no_turbo"))
    return switch(read_text(root / _CPUS / "cpufreq/boost")) if forbidden is None else not forbidden


def hypervisor(root: Path = ROOT) -> bool | None:
    """None without flags to look at: ARM has none that tells."""
    flags = re.search(r"^flags\s*:(.*)$", read_text(root / "proc/cpuinfo") or "", re.MULTILINE)
    return None if flags is None else "hypervisor" in flags.group(1).split()


def temperature_c(root: Path = ROOT) -> float | None:
    """The hottest sensor's."""
    paths = paths_like(root / "sys/class/thermal", "thermal_zone*/temp") + paths_like(
        root / "sys/class/hwmon", "*/temp*_input"
    )
    told = [(as_number(read_text(path) or "") or 0.0) / 1000 for path in paths]
    return max((degrees for degrees in told if 0 < degrees < 150), default=None)  # broken sensors tell anything


def throttle_count(root: Path = ROOT) -> int | None:
    told = [read_text(path) for path in paths_like(root / _CPUS, "cpu[0-9]*/thermal_throttle/core_throttle_count")]
    counts = [count for text in told if (count := as_number(text or "")) is not None]
    return int(sum(counts)) if counts else None


def timer(readings: int = 2000) -> tuple[float | None, float | None]:
    """The smallest step of `perf_counter_ns` and what a reading of it costs, both in ns."""
    read, steps, costs = time.perf_counter_ns, set[int](), list[float]()
    for _ in range(5):  # the cheapest batch is the one that nothing interrupted
        seen = [read() for _ in range(readings)]
        costs.append((seen[-1] - seen[0]) / max(1, readings - 1))
        steps.update(after - before for before, after in itertools.pairwise(seen) if after > before)
    return float(min(steps)) if steps else None, min(costs) if min(costs) > 0 else None


def tick_hz(root: Path = ROOT) -> int | None:
    """How often the kernel reconsiders who runs: from its configuration, its coarse clock, or the gaps in a busy loop.

    The gaps come last, and not in a guest: there the host's ticks show too, and more (a guest of 250 Hz looked like
    1000).
    """
    for path in (root / "proc/config.gz", root / f"boot/config-{platform.release()}"):
        if found := re.search(r"^CONFIG_HZ=(\d+)$", read_text(path) or "", re.MULTILINE):
            return int(found.group(1))
    try:
        coarse_hz = round(1 / time.clock_getres(_COARSE_CLOCK)) if os.path.exists("/proc") else 0  # noqa: PTH110
    except (AttributeError, OSError, ZeroDivisionError):
        coarse_hz = 0
    if coarse_hz in _TICKS_HZ:
        return coarse_hz
    return None if hypervisor(root) else tick_of_gaps(*_gaps_ns())


def tick_of_gaps(gaps_ns: Sequence[float], span_ns: float) -> int | None:
    """The highest tick at whose every beat, or nearly, there is a gap; None if no beat fits."""
    for hz in _TICKS_HZ:
        period_ns, beats = 1e9 / hz, span_ns * hz / 1e9
        for phase_ns in gaps_ns if beats >= 8 else ():
            off_ns = [(gap_ns - phase_ns + period_ns / 2) % period_ns - period_ns / 2 for gap_ns in gaps_ns]
            on_beat = {
                round((gap - phase_ns) / period_ns)
                for gap, off in zip(gaps_ns, off_ns, strict=True)
                if abs(off) < NEAR_TICK * period_ns
            }
            if len(on_beat) >= 0.8 * beats and len(gaps_ns) < 3 * beats:
                return hz
    return None


def _gaps_ns(span_ns: int = 100_000_000, least_ns: int = 1500) -> tuple[list[float], float]:
    """When a busy loop was interrupted."""
    found: list[float] = []
    begun = last = time.perf_counter_ns()
    while last - begun < span_ns:
        now = time.perf_counter_ns()
        if now - last > least_ns:
            found.append(now - begun)
        last = now
    return found, last - begun


def _by_cpu(root: Path, file: str, meaning: Callable[[str], T | None]) -> dict[int, T] | None:
    found: dict[int, T] = {}
    for folder in paths_like(root / _CPUS, "cpu[0-9]*"):
        value, cpu = meaning(read_text(folder / file) or ""), folder.name.removeprefix("cpu")
        if value is not None and cpu.isdecimal():
            found[int(cpu)] = value
    return dict(sorted(found.items())) or None


def _mhz(text: str) -> float | None:
    khz = as_number(text)
    return None if khz is None else khz / 1000


def _clock_ticks_per_s() -> float:
    try:
        return float(os.sysconf("SC_CLK_TCK"))
    except (AttributeError, OSError, ValueError):
        return 100.0
