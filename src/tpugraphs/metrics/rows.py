"""The rows the official layout evaluation uses, read from the release's own `eval_indices` files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tpugraphs.errors import BadFile, BadRequest
from tpugraphs.files import read_json

FOLDER = "eval_indices"


def find_official_rows(collection: str, root: Path) -> Path:
    """`eval_indices/xla_random.json` under the root, for layout:xla:random."""
    space, *rest = collection.split(":")
    path = root / FOLDER / f"{'_'.join(rest)}.json"
    if space != "layout" or len(rest) != 2:
        raise BadRequest(f"{collection}: the release lists evaluation rows for its layout collections only")
    if not path.exists():
        raise BadRequest(
            f"{path}: no such file; copy the release's {FOLDER} folder there, or give the path of the file itself"
        )
    return path


def read_official_rows(path: Path) -> dict[str, NDArray[np.intp]]:
    """Row numbers by graph name; a row may stand in the list more than once, as in the release."""
    value = read_json(path, "evaluation rows")
    if not isinstance(value, dict):
        raise BadFile(path, "evaluation rows", expected="an object of lists by graph", found=type(value).__name__)
    rows: dict[str, NDArray[np.intp]] = {}
    for graph, numbers in value.items():
        whole = isinstance(numbers, list) and all(type(number) is int and 0 <= number < 2**62 for number in numbers)
        if not whole or not numbers:
            raise BadFile(path, graph, expected="a list of row numbers", found=f"{numbers!r}"[:60])
        rows[graph] = np.array(numbers, dtype=np.intp)
    return rows
