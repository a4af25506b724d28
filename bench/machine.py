"""What machine a figure comes from, and where figures are kept."""

from __future__ import annotations

import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).with_name("RESULTS.md")


def fingerprint() -> str:
    """The machine in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{_cpu_model()}, {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}, numpy {np.__version__}"
    )


def save(title: str, command: str, body: str) -> None:
    """Puts a section into RESULTS.md, in the place of the section of the same title."""
    today = datetime.now(UTC).date().isoformat()
    section = f"## {title}\n\n{today} · {fingerprint()} · `{command}`\n\n{body.strip()}\n"
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else "# Benchmark results\n\n"
    pattern = re.compile(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    text = pattern.sub(lambda _: section + "\n", text) if pattern.search(text) else text + section + "\n"
    RESULTS.write_text(text.rstrip() + "\n", encoding="utf-8")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown processor"
