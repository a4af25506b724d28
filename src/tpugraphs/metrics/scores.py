"""Score files: what a ranker thinks of each config, lower is faster, by graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tpugraphs.data.npz import NpzReader
from tpugraphs.errors import BadFile
from tpugraphs.files import read_json

EXPECTED = "a score file: .json with {graph: [score, ...]} or .npz with one array of scores per graph"


def read_scores(path: Path) -> dict[str, NDArray[np.float64]]:
    """Scores by graph, finite and one-dimensional."""
    if path.suffix == ".npz":
        with NpzReader(path) as reader:
            return {graph: _checked(path, graph, reader.read(graph)) for graph in reader.keys}
    if path.suffix == ".json":
        value = read_json(path, "scores")
        if not isinstance(value, dict):
            raise BadFile(path, "scores", expected=EXPECTED, found=f"a JSON {type(value).__name__}")
        return {graph: _checked(path, graph, numbers) for graph, numbers in value.items()}
    raise BadFile(path, "scores", expected=EXPECTED, found=f"a file that ends in {path.suffix or 'nothing'}")


def _checked(path: Path, graph: str, numbers: object) -> NDArray[np.float64]:
    try:
        scores = np.asarray(numbers)
    except ValueError:
        scores = np.empty(0, dtype=object)
    if scores.ndim != 1 or scores.dtype.kind not in "iuf":
        raise BadFile(path, graph, expected="a list of numbers", found=f"{numbers!r}"[:60])
    scores = scores.astype(np.float64)
    if not np.isfinite(scores).all():
        row = int(np.argmin(np.isfinite(scores)))
        raise BadFile(path, graph, expected="finite scores", found=f"{scores[row]} in row {row}")
    return scores
