"""The command line as a user meets it: outputs, one-sentence errors, exit codes, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tpugraphs as tg
from tests.kit.files import LAYOUT_NAME, TILE_NAME
from tpugraphs.cli.main import run
from tpugraphs.data.synthetic import layout_graph


def test_the_whole_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(tmp_path / "packs")
    assert run(["synth", "--into", str(tmp_path / "official"), "--graphs", "4", "--configs", "60"]) == 0
    assert run(["import", str(tmp_path / "official"), "--into", root]) == 0
    assert "8 graphs imported: layout:synthetic:random, tile:synthetic in" in capsys.readouterr().out
    assert run(["import", str(tmp_path / "official"), "--into", root]) == 0
    assert "0 graphs imported, 8 were there already" in capsys.readouterr().out
    assert run(["verify", root]) == 0
    assert capsys.readouterr().out.count("whole") == 2
    assert run(["evaluate", "feature-sum", LAYOUT_NAME, "--root", root]) == 0
    assert "tau-b" in capsys.readouterr().out
    assert run(["export", TILE_NAME, "--into", str(tmp_path / "back"), "--root", root]) == 0
    assert "4 files written to" in capsys.readouterr().out
    for path in (tmp_path / "official/npz/tile").rglob("*.npz"):
        back = tmp_path / "back" / path.relative_to(tmp_path / "official")
        assert [array.tolist() for array in np.load(back).values()] == [
            array.tolist() for array in np.load(path).values()
        ]


def test_info(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", "--root", str(root)]) == 0
    shown = capsys.readouterr().out
    assert LAYOUT_NAME in shown
    assert "synthetic" in shown
    assert run(["info", TILE_NAME, "--root", str(root), "--split", "valid"]) == 0
    assert "1 graphs · nodes 24" in capsys.readouterr().out
    assert run(["info", TILE_NAME, "synth_001", "--root", str(root)]) == 0
    assert "synth_001 · tile:synthetic" in capsys.readouterr().out
    assert run(["info", "synth_001", "--root", str(root)]) == 0
    shown = capsys.readouterr().out
    assert "synth_001 · tile:synthetic" in shown
    assert "synth_001 · layout:synthetic:random" in shown
    assert run(["info", TILE_NAME, "--json", "--root", str(root)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(tg.load(TILE_NAME, root=root).names)


@pytest.mark.parametrize("ending", [".json", ".npz"])
def test_score_files(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str) -> None:
    scores = {graph.name: graph.config_runtime for graph in tg.load(LAYOUT_NAME, "train", root=root)}
    path, saved = tmp_path / f"scores{ending}", tmp_path / "evaluation.json"
    if ending == ".json":
        path.write_text(json.dumps({graph: values.tolist() for graph, values in scores.items()}))
    else:
        np.savez(path, **scores)  # pyright: ignore[reportArgumentType]
    command = ["evaluate", str(path), LAYOUT_NAME, "--split", "train", "--root", str(root), "--save", str(saved)]
    assert run(command) == 0
    assert "1.0000" in capsys.readouterr().out
    assert json.loads(saved.read_text())["summary"]["OPA"]["value"] == 1


def test_a_noise_floor_can_be_given(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", "random", TILE_NAME, "--root", str(root), "--noise-floor", "0.25"]) == 0
    assert "25.00 %" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dance"], 'Unknown command "dance"'),
        (["import"], "requires an argument"),
        (["import", "ROOT", "--wrong"], "Unknown option"),
        (["import", "/nowhere", "--into", "ROOT"], "/nowhere: no such file or folder to import"),
        (["info", "layout:nobody:random", "--root", "ROOT"], "no such collection; there are layout-synthetic-random"),
        (["info", "nobody", "--root", "ROOT"], "neither a collection (those have a colon) nor a graph"),
        (["info", LAYOUT_NAME, "nobody", "--root", "ROOT"], "nobody: no such graph in layout:synthetic:random"),
        (["info", "--root", "/nowhere"], "/nowhere: no collection there; make one with `tpugraphs import`"),
        (["verify", "/nowhere"], "/nowhere: no collection to verify there"),
        (["export", LAYOUT_NAME, "--root", "ROOT"], "--into"),
        (
            ["evaluate", "nothing.json", LAYOUT_NAME, "--root", "ROOT"],
            "nothing.json: no such file; expected a score file",
        ),
        (["evaluate", "random", LAYOUT_NAME, "--root", "ROOT", "--split", "x"], "'x' is not a split"),
        (["evaluate", "random", LAYOUT_NAME, "--root", "ROOT", "--split", "test"], "run times are withheld"),
        (
            ["evaluate", "random", LAYOUT_NAME, "--root", "ROOT", "--noise-floor", "much"],
            'unable to convert "much" into float',
        ),
        (["evaluate", "random", LAYOUT_NAME, "--root", "ROOT", "--rows", "/nowhere"], "expected a file, found nothing"),
        (["evaluate", "random", LAYOUT_NAME, "--root", "ROOT", "--save", "/dev/full/x"], "could not be written"),
        (["synth", "--into", "ROOT", "--graphs", "1"], "expected at least 3 graphs"),
        (["tune", "nobody"], "nobody: not a program; expected MODULE.py:FUNCTION, a file (StableHLO text"),
        (["tune", "/nowhere/model.py:infer"], "/nowhere/model.py: no such file"),
        (["tune", "transformer", "--budget", "soon"], "budget 'soon': expected a duration such as 90s, 2m or 1h"),
        (["tune", "transformer", "--target", "cuda"], "cuda: no such target; expected xla:cpu"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_bad_input_gets_one_sentence_and_exit_code_2(
    root: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert run([str(root) if word == "ROOT" else word for word in arguments]) == 2
    complaint = capsys.readouterr().err
    assert says in complaint
    assert complaint.startswith("tpugraphs: ")
    assert complaint.count("\n") == 1


def test_bad_files_that_were_passed_over_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "layout/synthetic/random/train"
    place.mkdir(parents=True)
    layout_graph(0, nodes=60, layers=3, configs=20).save(place / "good.npz")
    (place / "bad.npz").write_bytes(b"hello")
    assert run(["import", str(tmp_path), "--into", str(tmp_path / "packs"), "--keep-going"]) == 2
    told = capsys.readouterr()
    assert "1 graphs imported" in told.out
    assert told.err.startswith(f"passed over: {place / 'bad.npz'}: npz: expected a whole zip archive")


def test_verify_lists_every_problem(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["export", TILE_NAME, "--into", str(tmp_path), "--root", str(root)])
    run(["import", str(tmp_path), "--into", str(tmp_path / "packs")])
    capsys.readouterr()
    for number in (1, 2):
        path = tmp_path / f"packs/tile-synthetic/graphs/synth_00{number}/codes.npy"
        path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    assert run(["verify", str(tmp_path / "packs")]) == 2
    told = capsys.readouterr()
    assert "2 problems" in told.out
    assert re.findall(r"synth_00(\d)/codes.npy: checksum", told.err) == [
        "2",
        "1",
    ]  # the train split comes before the valid one


def test_tuning_a_users_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a file to a saved outcome; the program is too small for anything to win or lose reliably."""
    path = tmp_path / "my_model.py"
    path.write_text("import jax.numpy as jnp\ndef infer(x): return jnp.tanh(x @ x.T)\n")
    assert run(["tune", f"{path}:infer", "--arg", "f32[32,8]", "--budget", "20s", "--save", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("infer on xla:cpu: ")
    assert re.search(r"\d+ of \d+ configs", shown)
    x = np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32)
    assert np.allclose(tg.Outcome.load(tmp_path / "out")(x), np.tanh(x @ x.T), atol=1e-5)


def test_a_users_module_that_fails_is_told_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my_model.py"
    path.write_text("def infer(x): return x.nothing\n")
    assert run(["tune", f"{path}:infer", "--arg", "f32[4]"]) == 2
    assert re.search(r"infer: .*AttributeError.*nothing", capsys.readouterr().err)
    path.write_text("import no_such_module_anywhere\n")
    assert run(["tune", f"{path}:infer", "--arg", "f32[4]"]) == 2
    assert "my_model.py: could not be imported: ModuleNotFoundError" in capsys.readouterr().err


def start(*arguments: str, **keywords: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tpugraphs", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **keywords)  # pyright: ignore


def test_ctrl_c_in_the_middle_keeps_what_was_done(tmp_path: Path) -> None:
    official, root = tmp_path / "official", tmp_path / "packs"
    graph = layout_graph(0, nodes=900, layers=50, configs=3000)
    for number in range(12):
        graph.save(official / f"npz/layout/synthetic/random/train/g{number:02d}.npz")
    process = start("import", str(official), "--into", str(root))
    done = root / "layout-synthetic-random/graphs/g00"
    deadline = time.monotonic() + 60
    while not done.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    complaint = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert complaint == "stopped; what was finished is kept\n"
    assert not list(root.rglob(".aside-*"))
    ended = start("import", str(official), "--into", str(root))
    shown = ended.communicate(timeout=120)[0]
    assert re.search(r"(\d+) graphs imported, (\d+) were there already", shown)
    assert [item.problems for item in tg.verify_root(root)] == [()]
    assert len(tg.load(LAYOUT_NAME, root=root)) == 12


def test_a_reader_that_has_seen_enough_is_no_error(root: Path) -> None:
    with start("info", LAYOUT_NAME, "--json", "--root", str(root)) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == 0


def test_a_terminal_without_unicode_still_gets_its_table(root: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "120"}
    shown, complaint = start("info", LAYOUT_NAME, "--root", str(root), env=environment).communicate(timeout=60)
    assert complaint == ""
    assert "synth_001" in shown


def test_both_ways_to_start_are_the_same() -> None:
    script = Path(sys.executable).with_name("tpugraphs")
    for arguments in (["--help"], ["--version"], ["evaluate", "--help"], ["dance"]):
        one = subprocess.run([script, *arguments], capture_output=True, text=True, check=False)
        other = subprocess.run(
            [sys.executable, "-m", "tpugraphs", *arguments], capture_output=True, text=True, check=False
        )
        assert (one.returncode, one.stdout, one.stderr) == (other.returncode, other.stdout, other.stderr)
