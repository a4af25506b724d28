"""The facts about a machine, from trees like those that systems have; what is not there is not known."""

from __future__ import annotations

import gzip
import os
import platform
from dataclasses import fields
from pathlib import Path

import pytest

from tpugraphs.measure import machine
from tpugraphs.measure.machine import Busy, ProcessorTimes, ProcessTime

CPUS = "sys/devices/system/cpu"
ABOUT = """processor\t: 0
cpu MHz\t\t: 2596.122
flags\t\t: fpu sse avx2 hypervisor

processor\t: 1
cpu MHz\t\t: 1200.000
flags\t\t: fpu sse avx2 hypervisor
"""


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_nothing_is_known_of_an_empty_system(tmp_path: Path) -> None:
    facts = machine.look(0, root=tmp_path)
    of_this_process = {"interval_s", "cpus", "usable_cpus", "timer_resolution_ns", "timer_cost_ns", "tick_hz"}
    unknown = {field.name for field in fields(facts)} - of_this_process
    assert {name for name in unknown if getattr(facts, name) is not None} == set()
    assert facts.interval_s >= 0


@pytest.mark.parametrize(
    "content", ["", "\0\xff\n", "cpu", "cpu a b c d e f g h", "-1 " * 30, "0::/", "1:cpu:/../..", "nan"]
)
def test_nonsense_is_not_known_either(tmp_path: Path, content: str) -> None:
    names = "proc/stat proc/loadavg proc/cpuinfo proc/config.gz proc/self/cgroup proc/self/personality proc/7/stat"
    names += " proc/sys/kernel/randomize_va_space sys/kernel/mm/transparent_hugepage/enabled sys/fs/cgroup/cpu.max"
    names += f" {CPUS}/cpu0/cpufreq/scaling_governor {CPUS}/cpu0/cpufreq/scaling_cur_freq {CPUS}/smt/active"
    names += " sys/class/thermal/thermal_zone0/temp"
    machine.look(0, root=tree(tmp_path, dict.fromkeys(names.split(), content)))


def test_clocks(tmp_path: Path) -> None:
    assert machine.frequencies_mhz(tree(tmp_path, {"proc/cpuinfo": ABOUT})) == {0: 2596.122, 1: 1200.0}
    assert machine.hypervisor(tmp_path) is True
    frequency = {f"{CPUS}/cpu{cpu}/cpufreq/scaling_cur_freq": f"{1_000_000 + cpu}\n" for cpu in (0, 2, 10)}
    governor = {f"{CPUS}/cpu{cpu}/cpufreq/scaling_governor": "powersave\n" for cpu in (0, 2, 10)}
    others = {
        f"{CPUS}/cpufreq/boost": "1\n",
        f"{CPUS}/smt/active": "0\n",
        f"{CPUS}/cpu0/cpufreq/cpuinfo_max_freq": "3500000",
    }
    tree(tmp_path, frequency | governor | others)
    assert machine.frequencies_mhz(tmp_path) == {0: 1000.0, 2: 1000.002, 10: 1000.01}
    assert machine.governors(tmp_path) == {0: "powersave", 2: "powersave", 10: "powersave"}
    assert machine.max_frequencies_mhz(tmp_path) == {0: 3500.0}
    assert machine.turbo(tmp_path) is True
    assert machine.turbo(tree(tmp_path, {f"{CPUS}/intel_pstate/no_turbo": "1\n"})) is False
    assert machine.look(0, root=tmp_path).smt is False


def test_heat(tmp_path: Path) -> None:
    zones = {"sys/class/thermal/thermal_zone0/temp": "45000\n", "sys/class/hwmon/hwmon1/temp2_input": "61500\n"}
    broken = {"sys/class/thermal/thermal_zone1/temp": "-274000\n", "sys/class/hwmon/hwmon1/temp3_input": "255000\n"}
    counts = {f"{CPUS}/cpu{cpu}/thermal_throttle/core_throttle_count": str(cpu) for cpu in (1, 2)}
    facts = machine.look(0, root=tree(tmp_path, zones | broken | counts))
    assert (facts.temperature_c, facts.throttles, facts.throttles_since_boot) == (61.5, 0, 3)


def test_memory_and_addresses(tmp_path: Path) -> None:
    enabled, random = "sys/kernel/mm/transparent_hugepage/enabled", "proc/sys/kernel/randomize_va_space"
    tree(tmp_path, {enabled: "always [madvise] never\n", random: "2\n"})
    assert machine.huge_pages(tmp_path) == "madvise"
    assert machine.aslr(tmp_path) is True
    assert machine.aslr(tree(tmp_path, {"proc/self/personality": "00040000\n"})) is False
    assert machine.aslr(tree(tmp_path, {"proc/self/personality": "00000000\n", random: "0\n"})) is False


def test_stolen_and_busy_time_are_those_between_two_looks(tmp_path: Path) -> None:
    before = machine.processor_times(tree(tmp_path, {"proc/stat": "cpu  100 0 100 1000 50 0 0 10 99 99\ncpu0 1 2\n"}))
    after = machine.processor_times(tree(tmp_path, {"proc/stat": "cpu  150 0 120 1100 60 0 0 30 99 99\ncpu0 1 2\n"}))
    per_s = os.sysconf("SC_CLK_TCK")
    assert before == ProcessorTimes(200 / per_s, 10 / per_s, 1260 / per_s)
    steal_share, busy_cpus = machine.shares(before, after, 2.0)
    assert steal_share == pytest.approx(20 / 200)
    assert busy_cpus == pytest.approx(70 / per_s / 2)
    assert machine.shares(None, after, 1.0) == (None, None)
    assert machine.shares(after, after, 1.0) == (None, None)


def stat(process: int, name: str, parent: int, used: int, began: int = 5) -> dict[str, str]:
    return {f"proc/{process}/stat": f"{process} ({name}) S {parent} {'0 ' * 9}{used} 0 {'0 ' * 6}{began} 0 0\n"}


def test_other_processes_are_known_by_name_and_our_own_apart(tmp_path: Path) -> None:
    per_s, us = os.sysconf("SC_CLK_TCK"), os.getpid()
    child, other, odd = us + 1, us + 2, us + 3
    before = (
        stat(us, "me", 1, 0) | stat(child, "worker", us, 0) | stat(other, "old", 1, 10) | stat(odd, "a) b (c", 1, 0)
    )
    earlier = machine.process_times(tree(tmp_path, before))
    assert earlier[odd, "5"] == ProcessTime("a) b (c", 1, 0.0)
    after = stat(us, "me", 1, per_s) | stat(child, "worker", us, per_s) | stat(odd, "a) b (c", 1, per_s)
    reused = stat(other, "new", 1, per_s // 2, began=9)
    ours, others = machine.used_cpus(earlier, machine.process_times(tree(tmp_path, after | reused)), 2.0)
    assert ours == pytest.approx(1.0)
    assert others == [Busy("a) b (c", 0.5), Busy("new", 0.25)]


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        (
            {
                "proc/self/cgroup": "0::/user.slice/job\n",
                "sys/fs/cgroup/user.slice/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/user.slice/job/cpu.max": "max 100000\n",
            },
            4.0,
        ),
        (
            {
                "proc/self/cgroup": "3:cpuset:/\n2:cpu,cpuacct:/docker/abc\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, None),
    ],
    ids=["v2", "v2 without", "v2 above", "v1", "v1 without", "no group"],
)
def test_quotas_of_control_groups(tmp_path: Path, files: dict[str, str], limit: float | None) -> None:
    assert machine.quota_cpus(tree(tmp_path, files)) == limit


def test_the_tick_is_read_from_the_kernels_configuration(tmp_path: Path) -> None:
    tree(tmp_path, {f"boot/config-{platform.release()}": "CONFIG_HZ_300=y\nCONFIG_HZ=300\n"})
    assert machine.tick_hz(tmp_path) == 300
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/config.gz").write_bytes(gzip.compress(b"# CONFIG_HZ_100 is not set\nCONFIG_HZ=1000\n"))
    assert machine.tick_hz(tmp_path) == 1000


@pytest.mark.parametrize("hz", [100, 250, 300, 1000])
def test_the_tick_is_seen_in_gaps(hz: int) -> None:
    beats = [1.3e6 + beat * 1e9 / hz for beat in range(hz // 10)]
    assert machine.tick_of_gaps(sorted([*beats, 3.1e6, 7.7e6, 55e6]), 1e8) == hz


def test_gaps_without_a_beat_are_no_tick() -> None:
    assert machine.tick_of_gaps([1e6, 2.7e6, 11e6, 17.9e6, 44e6], 1e8) is None
    assert machine.tick_of_gaps([], 1e8) is None


def test_samples_at_ticks_are_told() -> None:
    samples = [3.7e6, 8.0e6, 8.05e6, 4.0e6, 12.01e6, 9.0e6, float("nan"), float("inf")]
    assert machine.at_ticks(samples, 250, usual_ns=3.7e6) == [False, True, True, False, True, False, False, False]
    assert machine.at_ticks([400e6 + 0.5e6], 250, usual_ns=3.7e6) == [False], "near is near the tick, however late"
    assert machine.at_ticks([8.0e6], 250, usual_ns=7.9e6) == [False], "that is how long it takes"
    assert machine.at_ticks([8.0e6], 0, usual_ns=1e6) == [False]


def test_this_machine_can_be_looked_at() -> None:
    facts = machine.look(0.05)
    assert facts.interval_s >= 0.05
    assert facts.usable_cpus is None or set(facts.usable_cpus) == os.sched_getaffinity(0)
    assert facts.timer_resolution_ns is not None
    assert facts.timer_cost_ns is not None
    assert facts.timer_resolution_ns > 0
