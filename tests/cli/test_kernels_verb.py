"""Kernels on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpugraphs.cli.main import run
from tpugraphs.target import iree

NET = """
import jax.numpy as jnp
import numpy as np


def net(w, x):
    return jnp.tanh(x @ w)


def net_args():
    rng = np.random.default_rng(0)
    return rng.normal(size=(96, 96)).astype(np.float32), rng.normal(size=(64, 96)).astype(np.float32)
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "nets.py"
    path.write_text(NET, encoding="utf-8")
    return f"{path}:net"


def test_a_program_as_kernels(net: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert run(["kernels", net]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "net on iree:llvm-cpu" in shown
    assert "64×96×96r" in shown
    assert "1 are tiled, which take 100% of the time" in shown


def test_where_kernels_are_not_told(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kernels", net, "--target", "xla:cpu"]) == 2
    assert (
        "net: could not be profiled: xla:cpu does not tell its kernels; iree:llvm-cpu does" in capsys.readouterr().err
    )


def test_without_the_extra(net: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(iree, "find_spec", lambda name: None)
    assert run(["kernels", net]) == 2
    assert "IREE is not installed; install it with: pip install 'tpugraphs[iree]'" in capsys.readouterr().err


def test_a_program_that_iree_does_not_compile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "call.mlir"
    path.write_text(
        "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n  %0 = stablehlo.custom_call @nobody(%a) : "
        "(tensor<4xf32>) -> tensor<4xf32>\n  return %0 : tensor<4xf32>\n}\n"
    )
    assert run(["kernels", str(path)]) == 2
    assert "call: the default itself fails: " in capsys.readouterr().err
