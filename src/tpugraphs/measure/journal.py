"""The journal of measuring: append-only JSON lines, on the disk before they count; resuming is replaying them.

RUNS/studies/ID/study.json   what is measured: program, space, encoding, search, target, machine
RUNS/studies/ID/program.mlir, module.pb
RUNS/journal/*.jsonl         what happened, a file for each writer; its first line says who wrote it and where

Every line ends with a checksum of itself. A last line that was torn off in the middle is passed over, since its
writer died before the record counted; any other damage is an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from tpugraphs import files
from tpugraphs.errors import BadFile, BadRequest
from tpugraphs.measure.fingerprint import loose, strict
from tpugraphs.measure.measurement import Measurement
from tpugraphs.space.encoding import Encoding
from tpugraphs.space.knobs import JOINT, SPACES, Knob, Space, content_hash

SCHEMA_VERSION = 1
JOURNAL, STUDIES, STUDY, PROGRAM, MODULE = "journal", "studies", "study.json", "program.mlir", "module.pb"
_SUM = ',"crc32":"'

RUN, BEGIN, MEASURED, END, FAILED = "run", "begin", "measured", "end", "failed"
SEARCH, REPEAT, AGAIN, FINALIST = "search", "repeat", "again", "finalist"
"""Why a config was measured: the search asked for it, it is the default beside a batch, the machine had changed when
it was measured first, or it was one of the best at the end."""


@dataclass(frozen=True)
class Study:
    """What is measured together: configs of one space of one program, for one target on one machine."""

    program: str
    family: str
    spaces: tuple[str, ...]
    search: str
    seed: int
    target: str
    space: Space
    encoding: Encoding
    text_sha256: str
    """Of the program's StableHLO."""
    fingerprint: Mapping[str, str]
    parameters: int | None = None

    @cached_property
    def id(self) -> str:
        """A content hash of all that makes measurements comparable; another machine's have another."""
        return content_hash(
            [
                self.text_sha256,
                self.space.digest,
                self.search,
                self.seed,
                self.target,
                strict(self.fingerprint),
                self.program,
            ]
        )

    @property
    def collection(self) -> str:
        """The name that the collection of such studies has."""
        source = "simulated" if self.simulated else self.target.replace(":", "-")
        space = JOINT if self.spaces == SPACES else "+".join(self.spaces)
        return f"{space}:{source}:{self.search}"

    @property
    def simulated(self) -> bool:
        """Whether its run times come from a formula."""
        return self.target.startswith("simulated")

    def to_json(self) -> dict[str, Any]:
        value = {
            key: getattr(self, key)
            for key in ("program", "family", "spaces", "search", "seed", "target", "text_sha256", "parameters")
        }
        return {
            "schema_version": SCHEMA_VERSION,
            "id": self.id,
            **value,
            "space": [asdict(knob) for knob in self.space.knobs],
            "encoding": self.encoding.to_json(),
            "fingerprint": dict(self.fingerprint),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Study:
        return Study(
            program=value["program"],
            family=value["family"],
            spaces=tuple(value["spaces"]),
            search=value["search"],
            seed=value["seed"],
            target=value["target"],
            space=Space(tuple(Knob(**{**knob, "choices": tuple(knob["choices"])}) for knob in value["space"])),
            encoding=Encoding.from_json(value["encoding"]),
            text_sha256=value["text_sha256"],
            fingerprint=value["fingerprint"],
            parameters=value["parameters"],
        )


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a journal."""

    kind: str
    study: str
    value: Mapping[str, Any]
    measurement: Measurement | None = None

    @property
    def purpose(self) -> str:
        return self.value.get("purpose", "")


@dataclass
class History:
    """What a journal says of one study."""

    study: Study
    measured: list[Record] = field(default_factory=list)
    begun: list[Record] = field(default_factory=list)
    ended: list[Record] = field(default_factory=list)
    failed: list[Record] = field(default_factory=list)

    @property
    def asked(self) -> dict[str, Measurement]:
        """What the search asked for, by config; where one was measured again, the later, also for its twins."""
        found, again = {}, {}
        for record in self.measured:
            if record.measurement is not None and record.purpose in (SEARCH, AGAIN):
                found[record.measurement.config.digest] = record.measurement
                if record.purpose == AGAIN:
                    again[record.measurement.config.digest] = record.measurement
        for digest, one in found.items():
            if (twin := again.get(one.same_as)) is not None:
                told = {"status": twin.status, "ratio": twin.ratio, "message": twin.message, "drifted": twin.drifted}
                found[digest] = replace(one, **told)
        return found

    @property
    def first(self) -> dict[str, Measurement]:
        """What the search was told: of each config the first measurement, whatever came of measuring it again."""
        found = {}
        for record in self.measured:
            if record.measurement is not None and record.purpose == SEARCH:
                found.setdefault(record.measurement.config.digest, record.measurement)
        return found

    @property
    def repeats(self) -> list[Measurement]:
        """The default, measured like any other config."""
        return [record.measurement for record in self.measured if record.measurement and record.purpose == REPEAT]

    @property
    def finalists(self) -> list[Measurement]:
        return [record.measurement for record in self.measured if record.measurement and record.purpose == FINALIST]


class JournalWriter:
    """Appends records; `append` returns once they are on the disk."""

    def __init__(self, folder: Path, fingerprint: Mapping[str, str], about: Mapping[str, Any]) -> None:
        self.folder, self._fingerprint, self._about = folder, fingerprint, about
        self._file: IO[bytes] | None = None

    def append(self, kind: str, study: str, values: Iterable[Mapping[str, Any]]) -> None:
        """A record for each value, and one sync for all of them."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        lines = [_line({"kind": kind, "study": study, "at": now, **value}) for value in values]
        with files.writing(self.folder / JOURNAL):
            file = self._file or self._open(now)
            file.write(b"".join(lines))
            file.flush()
            os.fsync(file.fileno())

    def add_study(self, study: Study, text: str, module: bytes) -> None:
        """Writes down what is going to be measured, unless it is there."""
        target = self.folder / STUDIES / study.id
        if (target / STUDY).exists():
            return
        with files.writing(target):
            target.mkdir(parents=True, exist_ok=True)
        files.write_text(target / PROGRAM, text)
        files.write_bytes(target / MODULE, module)
        files.write_sealed_json(target / STUDY, study.to_json())

    def _open(self, now: str) -> IO[bytes]:
        folder = self.folder / JOURNAL
        folder.mkdir(parents=True, exist_ok=True)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")  # files are read in the order of their names
        path = folder / f"{stamp}-{secrets.token_hex(4)}.jsonl"
        self._file = path.open("xb")
        told = {"fingerprint": dict(self._fingerprint), "strict": strict(self._fingerprint)}
        told |= {"loose": loose(self._fingerprint), "schema_version": SCHEMA_VERSION, **self._about}
        self._file.write(_line({"kind": RUN, "at": now, **told}))
        files.sync(folder)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # what a full disk did not take was told of, and does not count
                self._file.close()


@contextmanager
def journal(folder: Path, fingerprint: Mapping[str, str], about: Mapping[str, Any]) -> Iterator[JournalWriter]:
    """Holds the folder against a second writer."""
    with files.sole_writer(folder):
        writer = JournalWriter(folder, fingerprint, about)
        try:
            yield writer
        finally:
            writer.close()


def _line(value: Mapping[str, Any]) -> bytes:
    body = json.dumps(value, separators=(",", ":"), allow_nan=False)[:-1]
    return f'{body}{_SUM}{zlib.crc32(body.encode()):08x}"}}\n'.encode()


def read_records(path: Path) -> Iterator[Record]:
    """The records of one file, checked; the first is its `run`."""
    with _reading(path):
        file = path.open("rb")
    with file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return  # torn: it did not count
            yield _record(line, path, number)


def _record(line: bytes, path: Path, number: int) -> Record:
    body, _, given = line.rstrip(b"\n").rpartition(_SUM.encode())
    if given != f'{zlib.crc32(body):08x}"}}'.encode():
        found, todo = "another", "set this file aside, or take it from a copy"
        raise BadFile(path, f"line {number}: crc32", expected="the line as it was written", found=found, todo=todo)
    value = files.parse_json(body + b"}", path, f"line {number}")
    if number == 1:
        version = value.get("schema_version")
        if value.get("kind") != RUN or version != SCHEMA_VERSION:
            todo = "read it with the tpugraphs that wrote it"
            found = f"{version}" if value.get("kind") == RUN else f"a record of kind {value.get('kind')}"
            raise BadFile(path, "schema_version", expected=str(SCHEMA_VERSION), found=found, todo=todo)
    told = value.get("measurement")
    try:
        measurement = None if told is None else Measurement.from_json(told)
        return Record(value["kind"], value.get("study", ""), value, measurement)
    except (KeyError, TypeError) as error:
        raise BadFile(path, f"line {number}", expected="a whole record", found=f"none with {error}") from error


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadFile(path, "journal", expected="a readable file", found=error.strerror or str(error)) from error


def journal_files(folder: Path) -> list[Path]:
    return sorted((folder / JOURNAL).glob("*.jsonl"))


def read_runs(folder: Path, *, study: str | None = None) -> dict[str, History]:
    """What a folder's journals say, by study; of one study alone if it is named."""
    if not (folder / JOURNAL).is_dir():
        raise BadRequest(f"{folder}: no journal there; expected a folder that `tpugraphs collect --into` made")
    histories: dict[str, History] = {}
    for path in journal_files(folder):
        for record in read_records(path):
            if not record.study or study not in (None, record.study):
                continue
            if record.study not in histories:
                histories[record.study] = History(read_study(folder, record.study))
            history = histories[record.study]
            kept = {MEASURED: history.measured, BEGIN: history.begun, END: history.ended, FAILED: history.failed}
            if record.kind not in kept:
                expected, found = ", ".join(kept), record.kind
                raise BadFile(path, "kind", expected=expected, found=found, todo="read it with what wrote it")
            kept[record.kind].append(record)
    return histories


def read_study(folder: Path, study: str) -> Study:
    path = folder / STUDIES / study / STUDY
    value = files.read_sealed_json(path, "study", "take the folder from a copy")
    version = value.get("schema_version")
    if version != SCHEMA_VERSION:
        todo = "read it with the tpugraphs that wrote it"
        raise BadFile(path, "schema_version", expected=str(SCHEMA_VERSION), found=str(version), todo=todo)
    return Study.from_json(value)


def merge_runs(sources: Sequence[Path], into: Path) -> dict[str, int]:
    """Puts the studies and journals of several folders into one; returns how many files of each came.

    A journal that is there already, or begins like one that is, is one that grew: the longer is kept.
    """
    for source in sources:
        read_runs(source)  # what is damaged does not get in
    came: dict[str, int] = {}
    with files.sole_writer(into):
        for source in sources:
            for path in journal_files(source):
                came[str(source)] = came.get(str(source), 0) + _merge_file(path, into / JOURNAL / path.name)
            for study in sorted(one for one in (source / STUDIES).iterdir() if (one / STUDY).exists()):
                if (into / STUDIES / study.name / STUDY).exists():
                    continue  # it has the same content that counts; that of a machine may differ in what does not
                for path in (study / PROGRAM, study / MODULE, study / STUDY):
                    _merge_file(path, into / STUDIES / study.name / path.name)
    return came


def _merge_file(path: Path, target: Path) -> bool:
    new = files.read_bytes(path, "journal")
    if target.exists():
        old = target.read_bytes()
        if old.startswith(new):
            return False
        if not new.startswith(old):
            raise BadRequest(f"{path}: {target} is another file of that name; set one of them aside")
    files.write_bytes(target, new)
    return True
