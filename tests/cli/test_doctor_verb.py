"""`tpugraphs doctor` as its user meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tpugraphs.cli import measuring_verbs
from tpugraphs.cli.main import run

SIMULATED = "simulated:noise=0.002"


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring_verbs, "_QUICK_S", 1.0)


@pytest.mark.usefixtures("hurried")
def test_it_shows_the_machine_the_test_and_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--quick", "--target", SIMULATED]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("This machine")
    assert "main thread on" in shown
    assert "fit: two configs that differ by" in shown


@pytest.mark.usefixtures("hurried")
def test_json_has_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--quick", "--json", "--target", SIMULATED]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["facts", "self_test", "findings", "verdict"]
    assert told["facts"]["interval_s"] > 0
    assert len(told["self_test"]["processes"]) >= 2
    assert set(told["findings"][0]) == {"severity", "what", "found", "todo"}


def test_facts_alone_need_no_compiler(capsys: pytest.CaptureFixture[str]) -> None:
    statement = (
        "import sys\nfrom tpugraphs.cli.main import run\nrun(['doctor', '--no-test'])\nprint('jax' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", statement], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("This machine")
    assert "Self-test" not in ended.stdout
    assert ended.stdout.endswith("False\n")
    assert run(["doctor", "--no-test", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["self_test"], told["verdict"]) == (None, None)


def test_an_unknown_target_gets_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--target", "cuda"]) == 2
    assert "cuda: no such target" in capsys.readouterr().err


def test_ctrl_c_stops_it_and_its_worker(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tpugraphs", "doctor", "--target", SIMULATED]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    started = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob("tpugraphs-child-*/stderr")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    started.send_signal(signal.SIGINT)
    shown, complaint = started.communicate(timeout=30)
    assert started.returncode == 130
    assert shown.startswith("This machine")
    assert complaint == "stopped; what was finished is kept\n"
    assert list(tmp_path.iterdir()) == []
