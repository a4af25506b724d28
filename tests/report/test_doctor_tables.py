"""What a person sees of a machine's fitness: the worst first, with what to do, within 80 columns."""

from __future__ import annotations

from dataclasses import fields, replace

from rich.cells import cell_len
from rich.console import Console, RenderableType

from tpugraphs.measure.machine import Busy, MachineFacts
from tpugraphs.measure.noise import Process, SelfTest
from tpugraphs.measure.pinning import Tried
from tpugraphs.report import doctor

FACTS = replace(
    MachineFacts(1.0, *[None] * (len(fields(MachineFacts)) - 1)),  # pyright: ignore[reportArgumentType]
    cpus=96,
    usable_cpus=tuple(range(0, 96, 2)),
    governors=dict.fromkeys(range(96), "powersave"),
    others_cpus=33.333,
    busiest=tuple(Busy("a process with a long name", 11.1) for _ in range(3)),
    huge_pages="always",
    turbo=True,
    smt=True,
    numa_nodes=8,
)
LOOSE, PINNED = Tried(None, 123.456e6, 0.1, 0.25), Tried((95,), 123.456e6, 0.01, None)
PROCESS = Process(123.456e6, (1.0, 1.01, 0.99), (1.3, 1.31, 1.29), (1.0,), (1.01,))
TEST = SelfTest(
    "transformer/inference/b1", "xla:cpu", 99.9, 5, 0.03, 250, (LOOSE, PINNED), PINNED, (PROCESS, PROCESS, PROCESS)
)


def shown(what: RenderableType, width: int = 80) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(what, highlight=False, markup=False)
    return capture.get()


def test_everything_fits_80_columns_and_nothing_is_cut() -> None:
    for text in (shown(doctor.machine(FACTS)), shown(doctor.self_test(TEST))):
        assert max(map(cell_len, text.splitlines())) <= 80
        assert "…" not in text


def test_the_worst_comes_first_with_what_to_do() -> None:
    text = shown(doctor.machine(FACTS), 120)
    severities = [line.split()[0] for line in text.splitlines() if line.strip()][1:]
    order = [word for word in dict.fromkeys(severities) if word in ("bad", "warning", "note", "good")]
    assert order == ["bad", "warning", "note", "good"]
    assert "→ sudo cpupower frequency-set -g performance" in text
    assert "stolen time   unknown" in text


def test_the_self_test_shows_places_processes_and_a_verdict() -> None:
    text = shown(doctor.self_test(TEST), 120)
    assert text.startswith("Self-test: transformer/inference/b1 on xla:cpu, 123.456 ms a call, 100 s")
    [any_processor] = [line.split() for line in text.splitlines() if "any processor" in line]
    assert any_processor[2:] == ["123.456", "ms", "10", "%", "25", "%"]
    [processor] = [line for line in text.splitlines() if line.startswith(" processor 95")]
    assert processor.split()[-2:] == ["unknown", "steadiest"]
    assert "1.3000" in text
    assert text.splitlines()[-1].startswith("fit: two configs that differ by ")


def test_a_target_without_options_has_no_other_program() -> None:
    alone = replace(TEST, processes=tuple(replace(process, other=()) for process in TEST.processes))
    assert "–" in shown(doctor.self_test(alone))
