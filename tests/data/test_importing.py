"""Importing: from folders, files and archives; interrupted, repeated, concurrent, on a full disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tpugraphs as tg
from tests.kit.files import LAYOUT_NAME, layout_arrays, tile_arrays, write
from tpugraphs import files
from tpugraphs.data import import_official, importing
from tpugraphs.data.names import Place
from tpugraphs.errors import BadFile, BadRequest, Unwritable


def names_under(root: Path) -> list[str]:
    return [f"{path.parent.parent.name}/{path.name}" for path in sorted(root.glob("*/graphs/*"))]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Three graphs of two collections."""
    write(tmp_path / "tree", layout_arrays(0), name="a")
    write(tmp_path / "tree", layout_arrays(1), name="b", split="train")
    write(tmp_path / "tree", tile_arrays(0), "tile:synthetic", name="k")
    return tmp_path / "tree"


def test_a_folder_a_split_and_a_file_can_be_imported(tree: Path, tmp_path: Path) -> None:
    below = tree / "npz/layout/synthetic/random/valid"
    for source, count in ((tree, 3), (tree / "npz/layout", 2), (below, 1), (below / "a.npz", 1)):
        report = import_official(source, tmp_path / f"packs-{count}-{source.name}")
        assert len(report.imported) == count


def test_what_is_there_is_not_imported_again(tree: Path, tmp_path: Path) -> None:
    first = import_official(tree, tmp_path / "packs")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "packs").glob("*/graphs/*/*")}
    again = import_official(tree, tmp_path / "packs")
    assert (again.imported, again.present) == ([], first.imported)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "packs").glob("*/graphs/*/*")} == before


def test_a_second_import_adds_to_the_collection(tree: Path, tmp_path: Path) -> None:
    root = tmp_path / "packs"
    import_official(tree / "npz/layout/synthetic/random/train", root)
    assert tg.load(LAYOUT_NAME, root=root).names == ("b",)
    import_official(tree / "npz/layout/synthetic/random/valid", root)
    assert tg.load(LAYOUT_NAME, root=root).names == ("b", "a")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_a_tar_archive_can_be_imported(tree: Path, tmp_path: Path, mode: str) -> None:
    archive = tmp_path / f"npz_all.tar{mode[1:].replace(':', '.')}"
    with tarfile.open(archive, mode) as tar:  # pyright: ignore[reportCallIssue, reportArgumentType]
        tar.add(tree / "npz", "npz")
    report = import_official(archive, tmp_path / "packs")
    assert len(report.imported) == 3
    from_tree = tg.load(import_official(tree, tmp_path / "other").collections[0], root=tmp_path / "other")
    for graph, other in zip(tg.load(LAYOUT_NAME, root=tmp_path / "packs"), from_tree, strict=True):
        assert (graph.node_config_feat == other.node_config_feat).all()


def test_the_name_of_a_release_archive_tells_where_its_members_belong(tree: Path, tmp_path: Path) -> None:
    archive = tmp_path / "npz_layout_xla_random_valid.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(tree / "npz/layout/synthetic/random/valid/a.npz", "a.npz")
    assert import_official(archive, tmp_path / "packs").imported == [Place("layout:xla:random", "valid", "a")]


def test_paths_in_an_archive_lead_nowhere(tree: Path, tmp_path: Path) -> None:
    """A member's path only tells collection and split; nothing is unpacked to it."""
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(tree / "npz/layout/synthetic/random/valid/a.npz", "../../layout/xla/random/valid/a.npz")
        link = tarfile.TarInfo("layout/xla/random/valid/link.npz")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    root = tmp_path / "deep/packs"
    assert import_official(archive, root).imported == [Place("layout:xla:random", "valid", "a")]
    assert names_under(root) == ["layout-xla-random/a"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "evil.tar", "tree"]


def test_a_truncated_archive_is_told_off(tree: Path, tmp_path: Path) -> None:
    archive = tmp_path / "cut.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(tree / "npz", "npz")
    archive.write_bytes(archive.read_bytes()[:3000])
    with pytest.raises(BadFile, match="cut.tar"):
        import_official(archive, tmp_path / "packs")


def test_a_file_that_is_no_archive_is_told_off(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"hello" * 1000)
    with pytest.raises(BadFile, match="x.tar: archive: expected a whole tar archive"):
        import_official(tmp_path / "x.tar", tmp_path / "packs")


def test_a_file_of_unknown_place_needs_to_be_told(tree: Path, tmp_path: Path) -> None:
    lone = tmp_path / "lone.npz"
    (tree / "npz/layout/synthetic/random/valid/a.npz").rename(lone)
    with pytest.raises(BadRequest, match="does not say which collection and split.*--collection and --split"):
        import_official(lone, tmp_path / "packs")
    report = import_official(lone, tmp_path / "packs", collection="layout:mine:random", split="train")
    assert report.imported == [Place("layout:mine:random", "train", "lone")]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("nowhere", "no such file or folder"),
        ("empty", "no official file in it"),
        ("readme.txt", "neither an npz or pb file nor a tar archive"),
    ],
)
def test_sources_without_official_files(tmp_path: Path, source: str, says: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "readme.txt").write_text("hello")
    with pytest.raises(BadRequest, match=says):
        import_official(tmp_path / source, tmp_path / "packs")


def test_an_unsafe_graph_name_is_refused(tree: Path, tmp_path: Path) -> None:
    path = tree / "npz/layout/synthetic/random/valid/a.npz"
    with pytest.raises(BadRequest, match="cannot name a graph"):
        import_official(path.rename(path.with_name("a b;c.npz")), tmp_path / "packs")


def test_one_graph_cannot_be_in_two_splits(tree: Path, tmp_path: Path) -> None:
    write(tree, layout_arrays(0), name="a", split="test")
    with pytest.raises(BadRequest, match="a is already in the test split of layout:synthetic:random"):
        import_official(tree, tmp_path / "packs")


def test_another_file_under_the_same_name_is_refused(tree: Path, tmp_path: Path) -> None:
    import_official(tree, tmp_path / "packs")
    write(tree, layout_arrays(7), name="a")
    with pytest.raises(BadRequest, match="already packed from a file of other content"):
        import_official(tree, tmp_path / "packs")


def test_a_bad_file_stops_the_import_and_the_next_run_goes_on(tree: Path, tmp_path: Path) -> None:
    root, bad = tmp_path / "packs", tree / "npz/layout/synthetic/random/valid/a.npz"
    whole = bad.read_bytes()
    bad.write_bytes(whole[:500])
    with pytest.raises(BadFile, match="a.npz: npz: expected a whole zip archive"):
        import_official(tree, root)
    with pytest.raises(BadFile, match="half-finished"):
        tg.load(LAYOUT_NAME, root=root)
    bad.write_bytes(whole)
    report = import_official(tree, root)
    assert (len(report.imported), [place.graph for place in report.present]) == (2, ["b"])
    assert len(tg.load(LAYOUT_NAME, root=root)) == 2


def test_bad_files_can_be_passed_over(tree: Path, tmp_path: Path) -> None:
    bad = tree / "npz/layout/synthetic/random/valid/a.npz"
    bad.write_bytes(b"hello")
    report = import_official(tree, tmp_path / "packs", keep_going=True)
    assert len(report.imported) == 2
    [sentence] = report.failed
    assert sentence.startswith(str(bad))
    assert tg.load(LAYOUT_NAME, root=tmp_path / "packs").names == ("b",)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("step", ["sync", "replace", "rename"])
def test_a_disk_that_fails_leaves_nothing_half_written(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    """Whichever step fails first, or the tenth time: no name but whole packs, and the next run finishes."""
    root = tmp_path / "packs"
    for failing_call in (1, 4, 7):
        calls = 0
        where, real = (files, files.sync) if step == "sync" else (os, getattr(os, step))

        def fail(*arguments: Path, real: Callable[..., object] = real, limit: int = failing_call) -> None:
            nonlocal calls
            calls += 1
            if calls >= limit:
                raise OSError(number, os.strerror(number), str(arguments[0]))
            real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(where, step, fail)
            try:
                import_official(tree, root)
            except Unwritable as error:
                assert "could not be written" in str(error)
            else:
                assert calls < failing_call
        assert not list(root.rglob(f"{files.ASIDE}*"))
    import_official(tree, root)
    assert [item.problems for item in tg.verify_root(root)] == [(), ()]


def test_a_full_disk_for_real(tree: Path, tmp_path: Path) -> None:
    """A process that may write no more than 1 kB a file ends with one sentence and leaves no pack."""
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"
        "from tpugraphs.cli import main; main(sys.argv[1:])"
    )
    root = tmp_path / "packs"
    command = [sys.executable, "-c", code, "import", str(tree), "--into", str(root)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("tpugraphs: ")
    assert "could not be written" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert names_under(root) == []


def test_a_killed_import_goes_on(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after kill -9: the folder that was being written aside stays behind, and the next run takes its place."""
    root = tmp_path / "packs"
    with monkeypatch.context() as patch:
        patch.setattr(importing, "write_collection", lambda *_: None)
        import_official(tree, root)
    half = root / "layout-synthetic-random/graphs" / f"{files.ASIDE}a"
    half.mkdir()
    (half / "codes.npy").write_bytes(b"half")
    with pytest.raises(BadFile, match="half-finished"):
        tg.load(LAYOUT_NAME, root=root)
    report = import_official(tree, root)
    assert len(report.present) == 3
    assert not half.exists()
    assert [item.problems for item in tg.verify_root(root)] == [(), ()]


def test_two_imports_into_one_collection_do_not_mix(tree: Path, tmp_path: Path) -> None:
    root = tmp_path / "packs"
    with (
        files.sole_writer(root / "layout-synthetic-random"),
        pytest.raises(BadRequest, match="another process is writing"),
    ):
        import_official(tree, root)
    import_official(tree, root)


def test_progress_adds_up_to_the_source(tree: Path, tmp_path: Path) -> None:
    class Heard(importing.Silent):
        total, done, places = 0, 0.0, 0

        def begin(self, total_bytes: int) -> None:
            self.total = total_bytes

        def graph(self, place: Place) -> None:
            self.places += 1

        def advance(self, done_bytes: float) -> None:
            self.done += done_bytes

    for _ in range(2):  # fresh, then all present
        heard = Heard()
        import_official(tree, tmp_path / "packs", progress=heard)
        assert heard.total == sum(path.stat().st_size for path in tree.rglob("*.npz"))
        assert np.isclose(heard.done, heard.total)
        assert heard.places == 3


def test_an_export_refuses_to_overwrite_another_file(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "npz/tile/synthetic/test/synth_000.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"precious")
    with pytest.raises(BadRequest, match="exists and differs from what would be written"):
        tg.export_official(tg.load("tile:synthetic", "test", root=root), tmp_path)
    assert path.read_bytes() == b"precious"
