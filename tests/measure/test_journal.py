"""The journal: on the disk before it counts, readable whatever tore it, clear about what it cannot read or write."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.studies import measured, small_captured, small_space, small_study
from tpugraphs import files
from tpugraphs.errors import BadFile, BadRequest, Unwritable
from tpugraphs.measure import journal as journals
from tpugraphs.measure.journal import (
    AGAIN,
    BEGIN,
    END,
    FAILED,
    FINALIST,
    JOURNAL,
    MEASURED,
    MODULE,
    PROGRAM,
    REPEAT,
    SEARCH,
    STUDIES,
    STUDY,
    Study,
    journal,
    journal_files,
    merge_runs,
    read_records,
    read_runs,
    read_study,
)
from tpugraphs.measure.measurement import CRASH, Measurement

CONFIGS = [config for config, _ in zip(small_space().enumerate(), range(9), strict=False)][1:]


def write(folder: Path, measurements: Sequence[Measurement], study: Study | None = None, purpose: str = SEARCH) -> None:
    """A collect that writes these, one record an append."""
    study = study or small_study()
    with journal(folder, study.fingerprint, {}) as writer:
        writer.add_study(study, small_captured()[0].text, small_captured()[1])
        for one in measurements:
            writer.append(MEASURED, study.id, [{"purpose": purpose, "measurement": one.to_json()}])


def some(count: int, start: int = 0) -> list[Measurement]:
    return [measured(CONFIGS[index], 1 + index / 10) for index in range(start, start + count)]


def told(folder: Path, study: Study | None = None) -> list[Measurement]:
    history = read_runs(folder).get((study or small_study()).id)
    return [] if history is None else [record.measurement for record in history.measured if record.measurement]


@contextmanager
def files_no_longer_than(limit_bytes: int) -> Iterator[None]:
    """As a disk that fills up: what does not fit is cut off, and the system says so."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    study = small_study()
    whole = Measurement(
        CONFIGS[0], "ok", measured(CONFIGS[0], 0.7).ratio, (1.5, 2.5), (3.0, 4.0), 0.25, "said", "abc", "def",
        {"tpugraphs.node0": 5.0}, 0.75, drifted=True,
    )  # fmt: skip
    failure = measured(CONFIGS[1], None, CRASH, message="it is gone")
    with journal(tmp_path, study.fingerprint, {"about": "a test"}) as writer:
        writer.add_study(study, "text", b"module")
        writer.append(BEGIN, study.id, [{"default_ns": 5.5}])
        for purpose in (SEARCH, REPEAT, AGAIN, FINALIST):
            values = [{"purpose": purpose, "measurement": one.to_json()} for one in (whole, failure)]
            writer.append(MEASURED, study.id, values)
        writer.append(END, study.id, [{"configs": 2}])
        writer.append(FAILED, study.id, [{"message": "so it is"}])
    [(found, history)] = read_runs(tmp_path).items()
    assert found == study.id
    assert history.study == study
    assert [record.measurement for record in history.measured] == [whole, failure] * 4
    assert [record.purpose for record in history.measured[::2]] == [SEARCH, REPEAT, AGAIN, FINALIST]
    assert history.begun[0].value["default_ns"] == 5.5
    assert history.ended[0].value["configs"] == 2
    assert history.failed[0].value["message"] == "so it is"
    assert history.repeats == history.finalists == [whole, failure]
    assert history.asked == {one.config.digest: one for one in (whole, failure)}
    [path] = journal_files(tmp_path)
    assert next(read_records(path)).value["about"] == "a test"


def test_of_a_config_measured_again_the_later_counts_but_the_search_was_told_the_first(tmp_path: Path) -> None:
    first, again = measured(CONFIGS[0], 0.5, drifted=True), measured(CONFIGS[0], 0.9)
    write(tmp_path, [first])
    write(tmp_path, [again], purpose=AGAIN)
    [history] = read_runs(tmp_path).values()
    assert history.asked == {CONFIGS[0].digest: again}
    assert history.first == {CONFIGS[0].digest: first}


def test_twins_follow_the_config_that_was_measured_again(tmp_path: Path) -> None:
    first, again = measured(CONFIGS[0], 0.5, drifted=True), measured(CONFIGS[0], 0.9)
    twin = measured(CONFIGS[1], 0.5, same_as=CONFIGS[0].digest, identity="its own")
    write(tmp_path, [first, twin])
    write(tmp_path, [again], purpose=AGAIN)
    [history] = read_runs(tmp_path).values()
    assert history.asked[CONFIGS[1].digest] == replace(twin, ratio=again.ratio)
    assert history.first[CONFIGS[1].digest] == twin


def test_files_are_read_in_the_order_they_were_written(tmp_path: Path) -> None:
    """However quickly one collect follows another."""
    for one in some(8):
        write(tmp_path, [one])
    assert told(tmp_path) == some(8)
    assert len(journal_files(tmp_path)) == 8


def test_a_study_comes_back(tmp_path: Path) -> None:
    study = small_study()
    write(tmp_path, some(1))
    assert read_study(tmp_path, study.id) == study
    assert read_study(tmp_path, study.id).id == study.id
    folder = tmp_path / STUDIES / study.id
    assert (folder / PROGRAM).read_text() == small_captured()[0].text
    assert (folder / MODULE).read_bytes() == small_captured()[1]


def test_what_makes_studies_different() -> None:
    ids = {
        small_study().id,
        small_study(machine="two").id,
        small_study(search="default").id,
        small_study(seed=1).id,
        small_study(target="simulated:noise=0.1").id,
    }
    assert len(ids) == 5
    assert small_study().id == small_study().id


def test_another_process_gives_a_study_the_same_id(tmp_path: Path) -> None:
    write(tmp_path, some(1))
    code = (
        "import sys; from pathlib import Path; from tpugraphs.measure.journal import read_runs; "
        f"print(*(history.study.id for history in read_runs(Path({str(tmp_path)!r})).values())); "
        "assert 'jax' not in sys.modules"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == [small_study().id]


def test_machines_are_kept_apart(tmp_path: Path) -> None:
    one, two = small_study(machine="one"), small_study(machine="two")
    write(tmp_path, some(2), one)
    write(tmp_path, some(3), two)
    assert told(tmp_path, one) == some(2)
    assert told(tmp_path, two) == some(3)
    assert read_runs(tmp_path, study=two.id).keys() == {two.id}


def test_every_append_is_synced_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk: dict[int, int] = {}
    sync = os.fsync

    def counting(descriptor: int) -> None:
        sync(descriptor)
        on_disk[os.fstat(descriptor).st_ino] = os.fstat(descriptor).st_size

    monkeypatch.setattr(os, "fsync", counting)
    study = small_study()
    with journal(tmp_path, study.fingerprint, {}) as writer:
        writer.add_study(study, "text", b"module")
        for name in (STUDY, PROGRAM, MODULE):
            info = (tmp_path / STUDIES / study.id / name).stat()
            assert on_disk[info.st_ino] == info.st_size
        for one in some(4):
            writer.append(MEASURED, study.id, [{"purpose": SEARCH, "measurement": one.to_json()}])
            [path] = journal_files(tmp_path)
            assert on_disk[path.stat().st_ino] == path.stat().st_size
            assert told(tmp_path)[-1] == one, "a reader sees it while the writer goes on"
        assert (tmp_path / JOURNAL).stat().st_ino in on_disk, "so is its name"


@settings(max_examples=25)
@given(data=st.data())
def test_a_torn_last_line_does_not_count(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("torn")
    write(folder, some(3))
    [path] = journal_files(folder)
    whole = path.read_bytes()
    last = len(whole.splitlines(keepends=True)[-1])
    path.write_bytes(whole[: len(whole) - data.draw(st.integers(1, last))])
    assert told(folder) == some(2)
    write(folder, some(1, start=2))
    assert len(told(folder)) == 3, "the next writer goes on in a file of its own"


@settings(max_examples=25)
@given(data=st.data())
def test_damage_anywhere_names_file_and_line(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    write(folder, some(3))
    [path] = journal_files(folder)
    lines = path.read_bytes().splitlines(keepends=True)
    number = data.draw(st.integers(1, len(lines)))
    line = bytearray(lines[number - 1])
    at = data.draw(st.integers(0, len(line) - 2))
    line[at] ^= data.draw(st.integers(1, 255).filter(lambda bits: line[at] ^ bits not in b"\n"))
    path.write_bytes(b"".join([*lines[: number - 1], bytes(line), *lines[number:]]))
    with pytest.raises(BadFile, match=f"line {number}: .*expected the line as it was written.*set this file aside"):
        read_runs(folder)


def test_a_line_that_is_missing_its_end_in_the_middle_is_damage(tmp_path: Path) -> None:
    write(tmp_path, some(3))
    [path] = journal_files(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1][:40], *lines[2:]]))
    with pytest.raises(BadFile, match=rf"{path.name}: line 2"):
        read_runs(tmp_path)


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    write(tmp_path, some(2))
    (tmp_path / JOURNAL / "20990101T000000000000-00000000.jsonl").write_bytes(b"")
    assert told(tmp_path) == some(2)


def test_a_journal_of_another_release_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = journals.SCHEMA_VERSION
    monkeypatch.setattr(journals, "SCHEMA_VERSION", known + 1)
    write(tmp_path, some(1))
    monkeypatch.undo()
    says = f"schema_version: expected {known}, found {known + 1}; read it with the tpugraphs that wrote it"
    with pytest.raises(BadFile, match=says):
        read_runs(tmp_path)
    with pytest.raises(BadFile, match=f"{STUDY}: {says}"):
        read_study(tmp_path, small_study().id)


def test_a_file_that_does_not_begin_as_a_journal_is_refused(tmp_path: Path) -> None:
    write(tmp_path, some(2))
    [path] = journal_files(tmp_path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(BadFile, match=r"expected 1, found a record of kind measured"):
        read_runs(tmp_path)


def test_a_changed_study_is_refused(tmp_path: Path) -> None:
    write(tmp_path, some(1))
    path = tmp_path / STUDIES / small_study().id / STUDY
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(BadFile, match=r"seal: expected the text as it was written.*take the folder from a copy"):
        read_runs(tmp_path)
    shutil.rmtree(path.parent)
    with pytest.raises(BadFile, match=r"study: expected a file, found nothing; take the folder from a copy"):
        read_runs(tmp_path)


def test_where_there_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no journal there; expected a folder that `tpugraphs collect --into` made"):
        read_runs(tmp_path)


def test_a_second_writer_is_told_off(tmp_path: Path) -> None:
    with journal(tmp_path, {}, {}), pytest.raises(BadRequest, match="another process is writing into this folder"):
        write(tmp_path, some(1))
    write(tmp_path, some(1))
    assert told(tmp_path) == some(1)


def test_a_writer_in_another_process_holds_the_folder_until_it_dies(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tpugraphs.measure.journal import journal\n"
        f"with journal(Path({str(tmp_path)!r}), {{}}, {{}}): print('holding', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"holding\n"
        with pytest.raises(BadRequest, match=f"{tmp_path}: another process is writing"):
            write(tmp_path, some(1))
        other.kill()
    write(tmp_path, some(1))


@pytest.mark.parametrize("failing", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_what_could_not_be_synced_is_told_in_a_sentence(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, some(1))

    def full(descriptor: int) -> None:
        raise OSError(failing, os.strerror(failing))

    study = small_study()
    with journal(tmp_path, study.fingerprint, {}) as writer:
        writer.append(MEASURED, study.id, [{"purpose": SEARCH, "measurement": some(2)[1].to_json()}])
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(Unwritable, match=f"{JOURNAL}: could not be written: ") as caught:
            writer.append(END, study.id, [{"configs": 1}])
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    assert told(tmp_path) == some(2)


def test_a_full_disk_leaves_what_was_there_and_nothing_half_counted(tmp_path: Path) -> None:
    study = small_study()
    write(tmp_path, some(1))
    with journal(tmp_path, study.fingerprint, {}) as writer:
        writer.append(MEASURED, study.id, [{"purpose": SEARCH, "measurement": some(2)[1].to_json()}])
        path = journal_files(tmp_path)[-1]
        with files_no_longer_than(path.stat().st_size + 100), pytest.raises(Unwritable, match="could not be written"):
            writer.append(MEASURED, study.id, [{"purpose": SEARCH, "measurement": some(3)[2].to_json()}])
    assert told(tmp_path)[:2] == some(2)
    write(tmp_path, some(1, start=3))
    assert told(tmp_path)[-1].config == CONFIGS[3]


def test_a_disk_that_stays_full_ends_in_one_sentence(tmp_path: Path) -> None:
    """Closing the file must not try again and fail in its own way."""
    study = small_study()
    write(tmp_path, some(2))
    with (
        files_no_longer_than(50),
        pytest.raises(Unwritable, match="could not be written"),
        journal(tmp_path, study.fingerprint, {}) as writer,
    ):
        writer.append(MEASURED, study.id, [{"purpose": SEARCH, "measurement": some(3)[2].to_json()}])
    assert told(tmp_path) == some(2)


def test_a_study_that_does_not_fit_is_not_there(tmp_path: Path) -> None:
    study = small_study()
    with (
        files_no_longer_than(5000),
        pytest.raises(Unwritable, match="could not be written"),
        journal(tmp_path, {}, {}) as writer,
    ):
        writer.add_study(study, small_captured()[0].text, small_captured()[1])
    assert not (tmp_path / STUDIES / study.id / STUDY).exists()
    assert not list(tmp_path.rglob(f"{files.ASIDE}*"))
    write(tmp_path, some(1))
    assert told(tmp_path) == some(1)


def test_a_folder_that_cannot_be_written_is_told_in_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o500)
    if os.access(folder, os.W_OK):  # root may write anywhere but there
        folder = Path("/sys/kernel")
    with pytest.raises(Unwritable, match="could not be written: ") as caught:
        write(folder / "runs", some(1))
    assert "choose another folder" in str(caught.value)


def test_merging_is_the_union(tmp_path: Path) -> None:
    one, two = small_study(machine="one"), small_study(machine="two")
    a, b, both = (tmp_path / name for name in ("a", "b", "both"))
    write(a, some(2), one)
    write(b, some(3), two)
    write(b, some(1, start=3), one)
    assert merge_runs([a, b], both) == {str(a): 1, str(b): 2}
    assert told(both, one) == [*some(2), *some(1, start=3)]
    assert told(both, two) == some(3)
    assert read_study(both, two.id) == two
    assert merge_runs([b, a], both) == {str(a): 0, str(b): 0}, "once more changes nothing"
    assert (both / STUDIES / one.id / MODULE).read_bytes() == small_captured()[1]


def test_the_longer_copy_of_a_file_is_kept(tmp_path: Path) -> None:
    a, b, both = (tmp_path / name for name in ("a", "b", "both"))
    write(a, some(4))
    shutil.copytree(a, b)
    [path] = journal_files(b)
    path.write_bytes(path.read_bytes()[:-50])
    merge_runs([b], both)
    assert told(both) == some(3)
    assert merge_runs([a], both) == {str(a): 1}
    assert told(both) == some(4)
    assert merge_runs([b], both) == {str(b): 0}
    assert told(both) == some(4)


def test_another_file_of_the_same_name_is_refused(tmp_path: Path) -> None:
    a, b, both = (tmp_path / name for name in ("a", "b", "both"))
    write(a, some(2))
    write(b, some(3)[1:])
    [path] = journal_files(b)
    path.rename(path.with_name(journal_files(a)[0].name))
    merge_runs([a], both)
    with pytest.raises(BadRequest, match=r"is another file of that name; set one of them aside"):
        merge_runs([b], both)
    assert told(both) == some(2)


def test_what_is_damaged_does_not_get_in(tmp_path: Path) -> None:
    a, both = tmp_path / "a", tmp_path / "both"
    write(a, some(2))
    [path] = journal_files(a)
    path.write_bytes(path.read_bytes().replace(b"measured", b"measurex", 1))
    with pytest.raises(BadFile, match="line 2"):
        merge_runs([a], both)
    assert not journal_files(both)


def test_a_machine_that_changed_in_what_does_not_count_can_be_merged(tmp_path: Path) -> None:
    """A new kernel between two collects leaves the study the same."""
    a, b, both = (tmp_path / name for name in ("a", "b", "both"))
    for number, (folder, system) in enumerate(((a, "Linux 6.1"), (b, "Linux 6.2"))):
        study = small_study()
        study = replace(study, fingerprint={**study.fingerprint, "system": system})
        assert study.id == small_study().id
        write(folder, some(1, start=number), study)
    merge_runs([a, b], both)
    assert told(both) == some(2)
