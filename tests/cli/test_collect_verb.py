"""Collecting on the command line: what is shown, what is told off, Ctrl-C, and the way to a collection."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tpugraphs as tg
from tpugraphs.cli.main import run

NET = """
import jax.numpy as jnp
import numpy as np


def net(w, x):
    return jnp.tanh(x @ w).reshape(4, 2, 16).sum(axis=1) @ w


def net_args():
    rng = np.random.default_rng(0)
    return rng.normal(size=(16, 16)).astype(np.float32), rng.normal(size=(8, 16)).astype(np.float32)


def other(w, x):
    return jnp.cos(x @ w)


other_args = net_args


def fixed(x):
    return x + 1


def fixed_args():
    return (np.ones(3, np.float32),)


def nowhere(x):
    return jnp.log(-jnp.square(x) - 1)


nowhere_args = fixed_args
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "nets.py"
    path.write_text(NET, encoding="utf-8")
    return f"{path}:net"


def collect(into: Path, *programs: str, space: str = "layout,flags", target: str = "simulated", **more: object) -> int:
    options = [word for key, value in more.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    return run(["collect", space, "--programs", *programs, "--target", target, "--into", str(into), *options])


def test_from_collecting_to_a_collection(net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, packs, other = tmp_path / "runs", tmp_path / "packs", net.replace(":net", ":other")
    assert collect(runs, net, other, configs=20) == 0
    shown = capsys.readouterr().out
    assert "40 configs measured, 40 in all" in shown
    assert collect(runs, net, other, configs=20) == 0
    captured = capsys.readouterr()
    assert "0 configs measured, 40 in all" in captured.out
    assert "all of it was measured before" in captured.err
    assert run(["runs", str(runs)]) == 0
    assert "layout+flags:simulated:random on " in capsys.readouterr().out
    assert run(["runs", str(runs), "--json"]) == 0
    assert [one["configs"] for one in json.loads(capsys.readouterr().out)] == [20, 20]
    assert run(["merge", str(runs), "--into", str(tmp_path / "all")]) == 0
    assert "1 journal files came" in capsys.readouterr().out
    assert run(["pack", str(tmp_path / "all"), "--into", str(packs)]) == 0
    assert "layout+flags:simulated:random: 2 graphs" in capsys.readouterr().out
    assert run(["verify", str(packs)]) == 0
    collection = tg.load(packs)
    assert set(collection.names) == {"net", "other"}
    assert all(graph.configs >= 20 for graph in collection.table())


def test_real_programs_on_xla(net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert collect(tmp_path / "runs", net, space="layout", target="xla:cpu", configs=4) == 0
    assert "4 configs measured" in capsys.readouterr().out


def test_a_dry_run_writes_nothing(net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fixed = net.replace(":net", ":fixed")
    words = [
        "collect",
        "layout",
        "--programs",
        net,
        fixed,
        "--target",
        "simulated",
        "--configs",
        "1000000",
        "--dry-run",
    ]
    assert run(words) == 0
    shown = capsys.readouterr().out
    assert "layout" in shown
    assert "nothing to vary" in shown
    assert "configs of 2 programs, about" in shown
    assert not list(tmp_path.glob("runs*"))


def test_what_cannot_be_measured_is_told_and_the_others_are(
    net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = net.replace(":net", ":nowhere")
    assert collect(tmp_path / "runs", net, nowhere, space="flags", target="xla:cpu", configs=1) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "nowhere: failed: nowhere: its outputs are not finite, so no result could be checked" in shown
    assert collect(tmp_path / "none", nowhere, space="flags", target="xla:cpu", configs=1) == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["collect", "tiles", "--programs", "resnet50"], "tiles: no such space; expected layout, form, flags, joint"),
        (["collect", "flags", "--programs", "resnet50"], "--into: expected the folder that the journal goes to"),
        (["collect", "flags", "--programs", "nonsense*"], "nonsense*: no program of the zoo is like this"),
        (["collect", "flags", "--programs", "tier:giant"], "tier:giant: no such tier; expected tier:small"),
        (["collect", "flags", "--programs", "no.py:net"], "no.py"),
        (["collect", "flags", "--programs", "resnet50", "--search", "best"], "best: no such search; expected random"),
        (["collect", "flags", "--programs", "resnet50", "--target", "xla"], "xla: no such target; expected xla:cpu"),
        (["collect", "flags", "--programs", "resnet50", "--configs", "0"], "--configs 0: expected at least 1"),
        (["collect", "flags", "--programs", "resnet50", "--budget", "soon"], "budget 'soon': expected a duration"),
        (["collect", "flags"], "--programs"),
        (["collect", "flags", "--programs", "x.mlir", "--target", "simulated:sound=1"], "no such setting sound"),
        (["runs", "nowhere"], "nowhere: no journal there; expected a folder that `tpugraphs collect --into` made"),
        (["pack", "nowhere", "--into", "packs"], "nowhere: no journal there"),
        (["merge", "nowhere", "--into", "all"], "nowhere: no journal there"),
    ],
)
def test_bad_requests_get_a_sentence(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1
    assert not any(path.name != ".lock" for path in tmp_path.rglob("*") if path.is_file()), "nothing half-written"


def test_ctrl_c_keeps_what_was_measured(net: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tpugraphs", "collect", "layout,flags", "--programs", net]
    command += ["--target", "simulated:compile_s=0.05", "--configs", "200", "--into", str(tmp_path / "runs")]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ)
    until = time.monotonic() + 60
    while not _records(tmp_path / "runs") and time.monotonic() < until:
        time.sleep(0.05)
    driver.send_signal(signal.SIGINT)
    out, err = driver.communicate(timeout=60)
    assert driver.returncode == 130
    assert "stopped; what was measured is kept, and the same command goes on" in err
    assert "net: interrupted" in out
    kept = _records(tmp_path / "runs")
    assert 0 < kept < 200
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    assert _records(tmp_path / "runs") == 200


def _records(runs: Path) -> int:
    """How many configs of the search stand in the journal."""
    lines = [line for path in runs.glob("journal/*.jsonl") for line in path.read_text().splitlines()]
    return sum('"purpose":"search"' in line for line in lines)
