"""What machine a figure comes from, and where figures are kept."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from tpugraphs.measure.fingerprint import fingerprint

RESULTS = Path(__file__).with_name("RESULTS.md")


def save(title: str, command: str, body: str) -> None:
    """Puts a section into RESULTS.md, in the place of the section of the same title and processor."""
    found = fingerprint()
    machine = ", ".join(f"{key} {value}" for key, value in found.items())
    title = f"{title}, on {found['processor']}"
    today = datetime.now(UTC).date().isoformat()
    section = f"## {title}\n\n{today} · {machine} · `{command}`\n\n{body.strip()}\n"
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else "# Benchmark results\n\n"
    pattern = re.compile(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    text = pattern.sub(lambda _: section + "\n", text) if pattern.search(text) else f"{text.rstrip()}\n\n{section}"
    RESULTS.write_text(text.rstrip() + "\n", encoding="utf-8")
