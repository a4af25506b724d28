"""The examples in README and docs are run, and print what the page says they print.

In a page, ```console blocks hold commands after `$ ` with their output below, and ```pycon blocks are doctests.
Each page runs in a folder of its own that holds `official/` and `packs/` as `synth` and `import` make them.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
from pathlib import Path

import pytest

from tpugraphs.cli.main import run
from tpugraphs.data import import_official
from tpugraphs.data.synthetic import write_synthetic

REPOSITORY = Path(__file__).parents[1]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(console|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VERBS = tuple(
    "tune graph forms kernels programs collect runs pack merge doctor import export info verify evaluate synth".split()
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    write_synthetic(folder / "official")
    import_official(folder / "official", folder / "packs")
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_examples_do_what_the_page_says(
    page: Path, demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("official", "packs"):
        (tmp_path / name).symlink_to(demo / name)
    monkeypatch.setenv("TPUGRAPHS_ROOT", "packs")
    monkeypatch.setenv("COLUMNS", "100")
    names: dict[str, object] = {}
    for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "pycon":
            examples = doctest.DocTestParser().get_doctest(text, names, page.name, str(page), 0)
            report = io.StringIO()
            failed = doctest.DocTestRunner(verbose=False).run(examples, out=report.write, clear_globs=False)
            assert not failed.failed, report.getvalue()
            names = examples.globs
        else:
            check_commands(text)


def check_commands(text: str) -> None:
    for block in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = block.partition("\n")
        program, *arguments = shlex.split(command)
        assert program == "tpugraphs", f"examples start with tpugraphs: {command}"
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            run(arguments)
        assert lines(printed.getvalue()) == lines(expected), command


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_its_page_and_its_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    options = set(re.findall(r"^│ (?:\*  )?(?:[A-Z]+ )?(--[a-z-]+)", capsys.readouterr().out, flags=re.MULTILINE))
    page = (REPOSITORY / f"docs/verbs/{verb}.md").read_text(encoding="utf-8")
    assert not [option for option in sorted(options) if option not in page]


def test_no_verb_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert sorted(re.findall(r"^│ ([a-z]+) ", shown, flags=re.MULTILINE)) == sorted(VERBS)


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page}: {target}"
