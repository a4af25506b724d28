"""From what is known of a machine, and from a self-test, to what that means for measuring and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tpugraphs.measure.machine import MachineFacts
from tpugraphs.measure.noise import SelfTest

Severity = Literal["good", "note", "warning", "bad"]
_UNKNOWN = "unknown"
_FIT, _COARSE = 0.02, 0.05
"""Ratios that matter are a few per cent: what cannot tell those apart is not fit."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about the machine, and what to do about it."""

    severity: Severity
    what: str
    found: str
    todo: str = ""


def findings(facts: MachineFacts) -> list[Finding]:
    """One of each rule; a fact that is not known is a finding too."""
    return [rule(facts) for rule in _RULES]


def findings_of_test(test: SelfTest) -> list[Finding]:
    """What the self-test says about the machine."""
    return [_place(test), _ticks(test), _pairs(test), _between(test), _habit(test), _stolen(test)]


def verdict(test: SelfTest) -> str:
    """One sentence."""
    apart, rounds, several = test.tells_apart(test.rounds), test.rounds, len(test.processes)
    if apart <= _FIT:
        return f"fit: two configs that differ by {percent(apart)} or more can be told apart with {rounds} samples each"
    more = test.tells_apart(4 * rounds, several)
    proof = f"with {4 * rounds} in each of {several} processes, {percent(more)}"
    if apart <= _COARSE:
        return f"fit for coarse work: {rounds} samples each tell apart what differs by {percent(apart)}; {proof}"
    return f"not fit: {rounds} samples each tell two configs apart only if they differ by {percent(apart)}; {proof}"


def as_dict(facts: MachineFacts, test: SelfTest | None) -> dict[str, Any]:
    """All of it, for JSON."""
    found = [*findings(facts), *(findings_of_test(test) if test else ())]
    busiest = None if facts.busiest is None else [busy._asdict() for busy in facts.busiest]
    return {
        "facts": asdict(facts) | {"busiest": busiest},
        "self_test": test.as_dict() if test else None,
        "findings": [asdict(one) for one in found],
        "verdict": verdict(test) if test else None,
    }


def percent(share: float) -> str:
    return f"{100 * share:.2g} %" if abs(share) < 0.095 else f"{100 * share:.0f} %"


# Rules about the machine ----------------------------------------------------------------------------------------------


def _processors(facts: MachineFacts) -> Finding:
    if facts.usable_cpus is None:
        told = _UNKNOWN if facts.cpus is None else f"{facts.cpus}; which of them this process may use is unknown"
        return Finding("note", "processors", told)
    count, all_ = len(facts.usable_cpus), facts.cpus or len(facts.usable_cpus)
    told = f"{ranges(facts.usable_cpus)}: {count} of {all_} may be used"
    if count == 1:
        return Finding(
            "warning",
            "processors",
            told,
            "one is shared by the program, this tool and the system: give it a second one (taskset, --cpuset-cpus)",
        )
    return Finding("good", "processors", told)


def _quota(facts: MachineFacts) -> Finding:
    if facts.quota_cpus is None:
        return Finding("good", "quota", "none found")
    told = f"{facts.quota_cpus:g} processors' worth of time"
    count = len(facts.usable_cpus) if facts.usable_cpus is not None else facts.cpus
    if count is not None and facts.quota_cpus >= count:
        return Finding("good", "quota", told)
    return Finding(
        "bad",
        "quota",
        f"{told}, fewer than there are: whoever has used them up is halted until the next period",
        "limit the processors in place of their time: docker run --cpuset-cpus=0-1, not --cpus=2",
    )


def _governor(facts: MachineFacts) -> Finding:
    if facts.governors is None:
        return Finding("note", "governor", f"{_UNKNOWN}; {_whose(facts)}")
    names = sorted(set(facts.governors.values()))
    if names == ["performance"]:
        return Finding("good", "governor", "performance")
    todo = "sudo cpupower frequency-set -g performance"
    return Finding("warning", "governor", f"{', '.join(names)}: the clock follows the load, late", todo)


def _frequency(facts: MachineFacts) -> Finding:
    now, most = facts.frequencies_mhz, facts.max_frequencies_mhz
    if now is None:
        return Finding("note", "frequency", _UNKNOWN)
    told = f"{_span(now.values())} MHz"
    if most is None:
        return Finding("note", "frequency", f"{told}; the highest is unknown, {_whose(facts)}")
    told = f"{told} of {_span(most.values())}"
    if max(most.values()) > 1.1 * min(most.values()):
        fast = [cpu for cpu, mhz in most.items() if mhz == max(most.values())]
        return Finding(
            "warning",
            "frequency",
            f"{told}: not all processors are alike",
            f"use only the fast: taskset -c {ranges(fast)}",
        )
    return Finding("good", "frequency", told)


def _turbo(facts: MachineFacts) -> Finding:
    if facts.turbo is None:
        return Finding("note", "turbo", f"{_UNKNOWN}; {_whose(facts)}")
    if not facts.turbo:
        return Finding("good", "turbo", "off")
    return Finding(
        "note",
        "turbo",
        "on: the clock depends on heat and on how many cores are busy",
        "for the steadiest times, off: echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo, "
        "or echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost",
    )


def _smt(facts: MachineFacts) -> Finding:
    if facts.smt is None:
        return Finding("note", "SMT", _UNKNOWN)
    if not facts.smt:
        return Finding("good", "SMT", "off: no two processors share a core, as far as is told")
    return Finding(
        "note",
        "SMT",
        "on: two processors share a core, and slow each other down",
        "use one of each core: taskset with the first of each line of "
        "/sys/devices/system/cpu/cpu*/topology/thread_siblings_list",
    )


def _hypervisor(facts: MachineFacts) -> Finding:
    if facts.hypervisor is None:
        return Finding("note", "virtual", f"{_UNKNOWN} whether this is a virtual machine")
    if not facts.hypervisor:
        return Finding("good", "virtual", "no: this is the machine itself")
    return Finding(
        "note",
        "virtual",
        "yes: what else the host does can slow this machine down unseen",
        "measure again at another hour; prefer an instance with processors of its own",
    )


def _steal(facts: MachineFacts) -> Finding:
    return _stolen_finding("stolen time", facts.steal_share, f"in {facts.interval_s:.1f} s")


def _others(facts: MachineFacts) -> Finding:
    if facts.others_cpus is None:
        return Finding("note", "others' load", _UNKNOWN)
    told = f"others keep {facts.others_cpus:.2f} processors busy"
    busy = [f"{one.name} {one.cpus:.2f}" for one in facts.busiest or () if one.cpus >= 0.05]
    if facts.others_cpus < 0.1:
        return Finding("good", "others' load", told)
    told = f"{told} ({', '.join(busy) or 'none of them can be seen'})"
    little, much = 0.25, max(0.25, 0.1 * (facts.cpus or 1))
    severity = "note" if facts.others_cpus < little else "warning" if facts.others_cpus < much else "bad"
    return Finding(severity, "others' load", told, "wait for them or stop them; nothing else helps as much")


def _load(facts: MachineFacts) -> Finding:
    if facts.load_averages is None:
        return Finding("note", "load", _UNKNOWN)
    told = "{:.2f}, {:.2f}, {:.2f} over 1, 5 and 15 minutes".format(*facts.load_averages)
    if facts.load_averages[1] <= 0.25 * (facts.cpus or 1):
        return Finding("good", "load", told)
    return Finding("note", "load", f"{told}: it has been busy", "look again in a few minutes")


def _timer(facts: MachineFacts) -> Finding:
    step, cost = facts.timer_resolution_ns, facts.timer_cost_ns
    if step is None or cost is None:
        return Finding("note", "timer", _UNKNOWN)
    told = f"steps of {step:.0f} ns, {cost:.0f} ns a reading"
    if max(step, cost) <= 1000:
        return Finding("good", "timer", told)
    todo = "see /sys/devices/system/clocksource/clocksource0/current_clocksource: tsc is the quick one"
    return Finding("warning", "timer", f"{told}: slow or coarse", todo)


def _tick(facts: MachineFacts) -> Finding:
    if facts.tick_hz is None:
        return Finding("note", "tick", f"{_UNKNOWN}: samples that waited for one cannot be told")
    return Finding(
        "good",
        "tick",
        f"{facts.tick_hz} Hz: who has to wait for a turn waits for a multiple of {1000 / facts.tick_hz:g} ms",
    )


def _huge_pages(facts: MachineFacts) -> Finding:
    if facts.huge_pages is None:
        return Finding("note", "huge pages", _UNKNOWN)
    if facts.huge_pages != "always":
        return Finding("good", "huge pages", facts.huge_pages)
    return Finding(
        "note",
        "huge pages",
        "always: a process may get them or not, and sooner or later",
        "take figures from several processes; or echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
    )


def _aslr(facts: MachineFacts) -> Finding:
    if facts.aslr is None:
        return Finding("note", "addresses", f"{_UNKNOWN} whether they are random")
    if not facts.aslr:
        told = "the same in every process: steadier, but one draw of those that users get"
        return Finding("note", "addresses", told, "leave them random, and take figures from several processes")
    return Finding("good", "addresses", "random: several processes show how much depends on them")


def _numa(facts: MachineFacts) -> Finding:
    if facts.numa_nodes is None:
        return Finding("note", "memory nodes", _UNKNOWN)
    if facts.numa_nodes == 1:
        return Finding("good", "memory nodes", "1")
    return Finding(
        "warning",
        "memory nodes",
        f"{facts.numa_nodes}: memory may be near or far",
        "keep to one: numactl --cpunodebind=0 --membind=0 tpugraphs ...",
    )


def _heat(facts: MachineFacts) -> Finding:
    hot = facts.temperature_c is not None and facts.temperature_c >= 90
    told = "temperature unknown" if facts.temperature_c is None else f"{facts.temperature_c:.0f} °C"
    if facts.throttles_since_boot is None:
        told += ", throttling unknown"
        return Finding("warning" if hot else "note", "heat", told, "let it cool down" if hot else "")
    told += f", slowed down {facts.throttles or 0} times just now, {facts.throttles_since_boot} since it was started"
    if facts.throttles:
        return Finding("bad", "heat", told, "better cooling, turbo off, or fewer cores at a time")
    if hot:
        return Finding("warning", "heat", told, "let it cool down")
    return Finding("note" if facts.throttles_since_boot else "good", "heat", told)


_RULES = (
    _processors,
    _quota,
    _governor,
    _frequency,
    _turbo,
    _smt,
    _hypervisor,
    _steal,
    _others,
    _load,
    _timer,
    _tick,
    _huge_pages,
    _aslr,
    _numa,
    _heat,
)


# Rules about the self-test --------------------------------------------------------------------------------------------


def _place(test: SelfTest) -> Finding:
    if len(test.pinnings) == 1:
        return Finding("note", "pinning", "not possible here")
    chosen, loose = test.pinning, next(one for one in test.pinnings if one.processors is None)
    if chosen.processors is None:
        return Finding("good", "pinning", "the main thread is no steadier on any one processor: leave it to the system")
    return Finding(
        "note",
        "pinning",
        f"the main thread is best on processor {ranges(chosen.processors)}: {_steadiness(chosen.unsteadiness)}, "
        f"{_steadiness(loose.unsteadiness)} where the system puts it",
        "in scripts of your own: os.sched_setaffinity in the main thread, once the compiler's threads are there",
    )


def _ticks(test: SelfTest) -> Finding:
    share = test.pinning.tick_share
    if share is None:
        return Finding("note", "waits", "unknown, as the tick is")
    told = f"{percent(share)} of calls waited for a tick of the kernel"
    if share <= 0.01:
        return Finding("good", "waits", told)
    todo = "a thread has to wait for its turn: stop what else runs, or give the compiler a thread less (NPROC, for XLA)"
    return Finding("warning" if share <= 0.1 else "bad", "waits", told, todo)


def _pairs(test: SelfTest) -> Finding:
    told = f"one pair's ratio deviates by {percent(test.spread)}"
    if test.spread <= 0.02:
        return Finding("good", "noise", told)
    severity = "warning" if test.spread <= 0.05 else "bad"
    return Finding(severity, "noise", told, "see the warnings about the machine; more samples help by their root")


def _between(test: SelfTest) -> Finding:
    split = [groups for groups in (test.again_modes, test.other_modes) if len(groups) > 1]
    if not split:
        return Finding("good", "processes", f"{len(test.processes)} fresh ones agree")
    told = "; ".join(" and ".join(f"{sum(group) / len(group):.3f}" for group in groups) for groups in split)
    return Finding(
        "warning",
        "processes",
        f"their ratios are in modes: {told}",
        "trust a ratio only after several fresh processes, and look at each one's",
    )


def _habit(test: SelfTest) -> Finding:
    told = (
        f"from {test.rounds} samples, minima of one block after the other are off by up to "
        f"{percent(test.naive_error)}, medians of pairs by {percent(test.paired_error)}"
    )
    return Finding("note", "minima", told)


def _stolen(test: SelfTest) -> Finding:
    return _stolen_finding("stolen in test", test.steal_share, "meanwhile")


# Words ----------------------------------------------------------------------------------------------------------------


def ranges(numbers: Iterable[int]) -> str:
    """0-3, 8."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in spans)


def _stolen_finding(what: str, share: float | None, when: str) -> Finding:
    if share is None:
        return Finding("note", what, _UNKNOWN)
    told = f"{percent(share)} of processor time {when}"
    if share < 0.002:
        return Finding("good", what, told)
    severity = "note" if share < 0.01 else "warning" if share < 0.05 else "bad"
    todo = "the host has too many guests: measure at another hour, or on an instance with processors of its own"
    return Finding(severity, what, told, todo)


def _steadiness(share: float) -> str:
    return f"unsteady by {percent(share)}"


def _whose(facts: MachineFacts) -> str:
    return "the host decides" if facts.hypervisor else "this system does not tell"


def _span(values: Iterable[float]) -> str:
    least, *_, most = [*sorted(values)] * 2
    return f"{least:.0f}" if round(least) == round(most) else f"{least:.0f} to {most:.0f}"
