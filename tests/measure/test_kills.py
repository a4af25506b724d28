"""Whatever is killed, whenever: the same call goes on, no config is lost, none measured twice, no process left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from tests.kit.driver import BATCH, SPACES
from tests.kit.studies import collected, digests, only_history, searched, wanted
from tpugraphs.measure.collect import _Replay
from tpugraphs.measure.journal import History
from tpugraphs.measure.measurement import OK
from tpugraphs.space import Config
from tpugraphs.space.search import search_named
from tpugraphs.target.simulated import SimulatedTarget

CONFIGS = 48
KILLS = 7
TARGET = SimulatedTarget(compile_s=0.1)
_MEASURING_SHARE, _LONGEST_S = 0.7, 0.7
_PATIENCE_S, _GONE_S = 60.0, 10.0


def driver(runs: Path, search: str, target: SimulatedTarget = TARGET) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.kit.driver", str(runs), target.name, search, str(CONFIGS)]
    root = Path(__file__).parents[2]
    runs.mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(runs)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root, env=environment
    )


def workers_of(driver: int) -> list[int]:
    """The worker processes whose parent this is."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{driver}/task/{driver}/children").read_text(encoding="ascii")
        return [int(child) for child in children.split() if is_worker(int(child))]
    return []


def is_worker(process: int) -> bool:
    try:
        return b"tpugraphs.measure.child" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def wait_for(what: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Until something is so, or the process has ended."""
    deadline = time.monotonic() + _PATIENCE_S
    while not what() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def begun(runs: Path) -> bool:
    return any(path.stat().st_size for path in runs.glob("journal/*.jsonl"))


def journals(runs: Path) -> int:
    return len(list(runs.glob("journal/*.jsonl")))


def kill_driver(process: subprocess.Popen[str], runs: Path, rng: random.Random) -> bool:
    """Now and then while it begins, mostly while it measures; its worker goes with it. Whether it was still there."""
    if rng.random() < _MEASURING_SHARE:
        before = journals(runs)
        wait_for(lambda: journals(runs) > before, process)
    time.sleep(rng.uniform(0.0, _LONGEST_S))
    return kill(process)


def kill(process: subprocess.Popen[str]) -> bool:
    workers, was_there = workers_of(process.pid), process.poll() is None
    process.kill()
    process.communicate()
    expect_gone(workers)
    return was_there


def expect_gone(workers: Collection[int]) -> None:
    deadline = time.monotonic() + _GONE_S
    while any(is_worker(worker) for worker in workers):
        assert time.monotonic() < deadline, "a worker survived its driver"
        time.sleep(0.005)


def kill_worker(process: subprocess.Popen[str], runs: Path, rng: random.Random) -> None:
    """While it measures configs, or later."""
    before = journals(runs)
    wait_for(lambda: journals(runs) > before, process)
    time.sleep(rng.uniform(0.0, 0.9))
    for worker in workers_of(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


def finish(runs: Path, search: str) -> History:
    process = driver(runs, search)
    told, trouble = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 0, trouble
    ending, configs, _ = told.rsplit(maxsplit=2)
    assert ending.endswith(("measured", "before"))
    assert int(configs) == CONFIGS
    return only_history(runs)


def asked_without_kills(search: str, tmp_path: Path) -> list[str]:
    runs = tmp_path / "undisturbed"
    quick = SimulatedTarget(compile_s=0.0).name
    collected(runs, wanted(quick, configs=CONFIGS, search=search, spaces=SPACES, batch=BATCH))
    return digests(searched(only_history(runs)))


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_driver_loses_nothing(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    runs = tmp_path / "killed"
    there = sum(kill_driver(driver(runs, "random"), runs, rng) for _ in range(KILLS))
    assert there == KILLS, "each kill came before the end"
    assert journals(runs) > KILLS / 3, "and many while it measured"
    history = finish(runs, "random")
    asked = digests(searched(history))
    assert sorted(asked) == sorted(asked_without_kills("random", tmp_path))
    assert {one.status for one in history.asked.values()} == {OK}


def test_a_killed_worker_is_replaced_and_loses_nothing(tmp_path: Path) -> None:
    rng = random.Random(2)
    runs = tmp_path / "killed"
    for _ in range(KILLS - 4):
        process = driver(runs, "random")
        kill_worker(process, runs, rng)
        time.sleep(rng.uniform(0.0, 0.7))
        kill(process)
    history = finish(runs, "random")
    asked = digests(searched(history))
    assert sorted(asked) == sorted(asked_without_kills("random", tmp_path))


def test_a_busy_worker_dies_with_its_driver(tmp_path: Path) -> None:
    """It is in the middle of a compile that takes minutes, and reads nothing."""
    process = driver(tmp_path, "random", SimulatedTarget(compile_s=300.0))
    wait_for(lambda: list(tmp_path.rglob("module0")), process)  # what it is asked to build
    time.sleep(0.2)
    workers = workers_of(process.pid)
    assert workers
    process.kill()
    process.communicate()
    expect_gone(workers)


def test_a_driver_outlives_its_worker(tmp_path: Path) -> None:
    """What the worker was about is tried again, and measured as if nothing had been."""
    process = driver(tmp_path, "random")
    wait_for(lambda: begun(tmp_path), process)
    rng = random.Random(3)
    for _ in range(3):
        time.sleep(rng.uniform(0.1, 0.4))
        for worker in workers_of(process.pid):
            os.kill(worker, signal.SIGKILL)
    told, trouble = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 0, trouble
    assert told.split() == ["measured", str(CONFIGS), str(CONFIGS)]
    history = only_history(tmp_path)
    assert len(digests(searched(history))) == len(set(digests(searched(history)))) == CONFIGS
    failed = [one for one in history.asked.values() if one.status != OK]
    assert len(failed) <= 3, "at most what was being checked at that moment"


def test_a_killed_search_goes_on_where_it_stood(tmp_path: Path) -> None:
    """Replaying the journal brings it to the same next config as telling a fresh one the same."""
    rng = random.Random(4)
    asked = wanted(TARGET.name, configs=CONFIGS, search="default", spaces=SPACES, batch=BATCH)
    for _ in range(KILLS - 4):
        kill_driver(driver(tmp_path, "default"), tmp_path, rng)
        if not begun(tmp_path):
            continue
        histories = [only_history(tmp_path) for _ in range(2)]
        one, other = (_Replay(history, asked) for history in histories)
        batch = one.next_batch(BATCH)
        assert batch == other.next_batch(BATCH)
        assert batch == fresh_after(histories[0])
    history = finish(tmp_path, "default")
    found = digests(searched(history))
    assert len(found) == len(set(found)) == CONFIGS
    assert found == [config.digest for config in fresh_order(history)]


def fresh_after(history: History) -> list[Config] | None:
    """What a new search asks for that was told what the journal says, and nothing else."""
    search = search_named("default", history.study.space, count=CONFIGS, seed=history.study.seed)
    waiting: list[Config] = []
    asked = 0
    while asked < CONFIGS and len(waiting) < BATCH and (configs := search.ask(1)):
        asked += 1
        known = history.first.get(configs[0].digest)
        if known is None:
            waiting += configs
        else:
            search.tell(configs[0], known.ratio.value if known.ratio else None)
    return waiting or None


def fresh_order(history: History) -> list[Config]:
    """The order in which an undisturbed search, told the same, asks."""
    search = search_named("default", history.study.space, count=CONFIGS, seed=history.study.seed)
    found: list[Config] = []
    while len(found) < CONFIGS:
        [config] = search.ask(1)
        known = history.first[config.digest]
        search.tell(config, known.ratio.value if known.ratio else None)
        found.append(config)
    return found
