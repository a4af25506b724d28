"""Writing so that a reader never sees half a file: aside, synced, renamed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tpugraphs.errors import BadFile, BadRequest, unwritable

ASIDE = ".aside-"
"""What is being written carries this prefix until it is whole; readers never look at such names."""

_BLOCK = 1 << 20


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what the system says about a failed write into one sentence."""
    try:
        yield
    except OSError as error:
        raise unwritable(error.filename or path, error) from error


@contextmanager
def file_aside(path: Path) -> Iterator[Path]:
    """Yields a path to write to; on success it is synced and takes the place of `path`, else it is removed."""
    aside = path.with_name(f"{ASIDE}{path.name}")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield aside
            sync(aside)
            os.replace(aside, path)
            sync(path.parent)
        finally:
            aside.unlink(missing_ok=True)


@contextmanager
def folder_aside(folder: Path) -> Iterator[Path]:
    """The same for a folder, which must not exist yet under its final name."""
    aside = folder.with_name(f"{ASIDE}{folder.name}")
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        try:
            yield aside
            for file in aside.iterdir():
                sync(file)
            sync(aside)
            os.rename(aside, folder)
            sync(folder.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def sync(path: Path) -> None:
    """Returns once the file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    with file_aside(path) as aside:
        aside.write_bytes(data)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


_SEAL = ',\n "seal": "'


def write_sealed_json(path: Path, value: dict[str, Any]) -> None:
    """JSON whose last field is the sha256 of all before it."""
    body = json.dumps(value, indent=1, allow_nan=False).removesuffix("\n}")
    write_text(path, f'{body}{_SEAL}{hashlib.sha256(body.encode()).hexdigest()}"\n}}\n')


def read_sealed_json(path: Path, what: str, todo: str = "") -> Any:
    text = read_bytes(path, what, todo)
    body, _, seal = text.rpartition(_SEAL.encode())
    if seal != f'{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode():
        raise BadFile(path, "seal", expected="the text as it was written", found="a change", todo=todo)
    return parse_json(text, path, what)


def read_bytes(path: Path, what: str, todo: str = "") -> bytes:
    """The whole file, or one sentence about why not."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise BadFile(path, what, expected="a file", found="nothing", todo=todo) from error
    except OSError as error:
        raise BadFile(path, what, expected="a readable file", found=error.strerror or str(error), todo=todo) from error


def parse_json(text: bytes, path: Path, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        found = f"{str(error) or type(error).__name__}"
        raise BadFile(path, what, expected="well-formed JSON", found=found) from error


def read_json(path: Path, what: str, todo: str = "") -> Any:
    return parse_json(read_bytes(path, what, todo), path, what)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return sha256_of(file)


def sha256_of(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Holds a folder against a second writer; the lock goes with the process, however it ends."""
    import fcntl

    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadRequest(f"{folder}: another process is writing into this folder; wait for it to end") from None
        yield
