"""One error root; every message is one sentence that a user can act on."""

from __future__ import annotations

import errno
from pathlib import Path


class TpuGraphsError(Exception):
    """The root of all errors this project raises on purpose."""


class BadFile(TpuGraphsError):
    """A file is not what it should be: says which file and key, what was expected and what was found."""

    def __init__(self, path: str | Path, what: str, *, expected: str, found: str, todo: str = "") -> None:
        self.path, self.what, self.expected, self.found = str(path), what, expected, found
        advice = f"; {todo}" if todo else ""
        super().__init__(f"{path}: {what}: expected {expected}, found {found}{advice}")


class BadRequest(TpuGraphsError):
    """The user asked for something that is not there or cannot be done."""


class Unwritable(TpuGraphsError):
    """The disk did not take what was to be written: full, read-only, or not ours."""


_DISK_TROUBLE = {
    errno.ENOSPC: "the disk is full; free some space and run the same command again",
    errno.EDQUOT: "the disk quota is used up; free some space and run the same command again",
    errno.EFBIG: "the file would be larger than this system allows; choose another disk",
    errno.EROFS: "the disk is read-only; choose another folder",
    errno.EACCES: "this user may not write there; choose another folder",
    errno.EPERM: "this user may not write there; choose another folder",
}


def unwritable(path: str | Path, error: OSError) -> Unwritable:
    """The sentence for a failed write."""
    number = error.errno if error.errno is not None else 0
    reason = _DISK_TROUBLE.get(number, f"the system said: {error.strerror or error}")
    return Unwritable(f"{path}: could not be written: {reason}")
