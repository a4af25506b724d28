"""Forms on the command line: what a node can be written as, and writing it so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tpugraphs.cli.main import run
from tpugraphs.program import resolve_source
from tpugraphs.target.xla import XlaTarget

NET = """
import jax
import jax.numpy as jnp
import numpy as np


def net(w, x):
    numbers = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=4)
    return jnp.tanh(y)


def net_args():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, 3, 1, 4)).astype(np.float32), rng.normal(size=(1, 8, 8, 4)).astype(np.float32)
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "nets.py"
    path.write_text(NET, encoding="utf-8")
    return f"{path}:net"


def test_what_a_node_can_be_written_as(
    net: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert run(["forms", net]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "depthwise 3x3 convolution, 1x8x8x4" in shown
    assert "shifted: shifted multiply-adds" in shown
    assert "1 of 1 nodes have other forms and take" in shown
    assert run(["forms", net, "--no-times"]) == 0
    assert "1 of 1 nodes have other forms." in capsys.readouterr().out


def test_a_program_is_written_so(net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, out = tmp_path / "config.json", tmp_path / "out.mlir"
    program = resolve_source(net)
    config.write_text(json.dumps({"program": program.digest, "config": {"node0.form": "shifted"}}))
    assert run(["forms", net, "--apply", str(config), "--save", str(out)]) == 0
    assert "written to" in capsys.readouterr().out
    assert "stablehlo.convolution" not in out.read_text(encoding="utf-8")
    assert program.arguments is not None
    target = XlaTarget("cpu")
    arguments = [target.place(value) for value in program.arguments]
    default, written = (target.build(text, {})(arguments) for text in (program.text, out.read_text(encoding="utf-8")))
    np.testing.assert_allclose(written[0], default[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"program": "0123", "config": {}}', "program: expected "),
        ('{"node0.form": "nobody"}', "node0.form: expected one of default, shifted"),
        ('{"node9.form": "shifted"}', "node9.form: no such knob in this space"),
        ("[]", "config: expected a config such as"),
        ('{"node0.form": 3}', "config: expected a config such as"),
        ("{", "config"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(
    content: str, sentence: str, net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, out = tmp_path / "config.json", tmp_path / "out.mlir"
    config.write_text(content)
    assert run(["forms", net, "--apply", str(config), "--save", str(out)]) == 2
    assert sentence in capsys.readouterr().err
    assert not out.exists()


def test_applying_needs_a_place_to_save(net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["forms", net, "--apply", str(tmp_path / "config.json")]) == 2
    assert "--apply CONFIG.json and --save OUT.mlir go together" in capsys.readouterr().err
