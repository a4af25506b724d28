"""What holds for the house as a whole: public names, light imports, nothing that runs foreign code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tpugraphs as tg

SOURCES = sorted(Path(tg.__file__).parent.rglob("*.py"))


def modules_after(statement: str, **environment: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return set(ended.stdout.split())


def test_public_names_are_there_and_documented() -> None:
    for name in tg.__all__:
        assert getattr(tg, name).__doc__, name
        assert name in dir(tg)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = tg.nothing  # pyright: ignore[reportAttributeAccessIssue]


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert not modules_after("import tpugraphs") & {"numpy", "jax", "torch", "rich", "scipy", "cyclopts"}


def test_reading_a_pack_and_evaluating_import_numpy_alone(root: Path) -> None:
    statement = (
        "import tpugraphs as tg; g = tg.load('layout:synthetic:random', 'train')[0]; g.config_features([0]);"
        "tg.Evaluator('layout:synthetic:random', split='train').evaluate({g.name: g.config_runtime})"
    )
    loaded = modules_after(statement, TPUGRAPHS_ROOT=str(root))
    assert "numpy" in loaded
    assert not loaded & {"jax", "torch", "rich", "scipy", "cyclopts"}


def test_help_imports_nothing_heavy() -> None:
    statement = "from tpugraphs.cli.main import run\nrun(['--help'])\nrun(['import', '--help'])\nprint()"
    loaded = modules_after(statement)
    assert "cyclopts" in loaded
    assert not loaded & {"numpy", "jax", "torch", "scipy"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(SOURCES[0].parent)))
def test_no_source_runs_foreign_code(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\bpickle\.|\beval\(|\bexec\(|allow_pickle=True|import (urllib|http|socket|requests)", text)
    assert text.startswith('"""'), "the first line says what the file is for"
