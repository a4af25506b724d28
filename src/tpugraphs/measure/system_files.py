"""Reads the small files in which a system tells about itself; what cannot be read or understood is None."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path


def read_text(path: Path) -> str | None:
    """What the file says, unpacked if it is a .gz; None if it cannot be read."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode(errors="replace")
    except (OSError, EOFError, zlib.error, ValueError):
        return None


def paths_like(folder: Path, pattern: str) -> list[Path]:
    """Sorted; none if the folder cannot be read."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def as_number(text: str) -> float | None:
    """None for what is no number, or not finite."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def switch(text: str | None) -> bool | None:
    """Whether a file with 0 or 1 says 1."""
    value = as_number(text or "")
    return None if value is None else value != 0
