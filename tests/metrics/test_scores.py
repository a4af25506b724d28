"""Score files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tpugraphs.errors import BadFile
from tpugraphs.metrics.scores import read_scores


def test_json_and_npz_hold_scores_by_graph(tmp_path: Path) -> None:
    scores = {"a.4x4": [1.5, -2, 3], "b": [0.0]}
    (tmp_path / "s.json").write_text(json.dumps(scores))
    np.savez(tmp_path / "s.npz", **{graph: np.array(values, dtype=np.float32) for graph, values in scores.items()})  # pyright: ignore[reportArgumentType]
    for name in ("s.json", "s.npz"):
        read = read_scores(tmp_path / name)
        assert {graph: values.tolist() for graph, values in read.items()} == scores


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": "fast"}', "a: expected a list of numbers, found 'fast'"),
        ('{"a": [1, [2]]}', "a: expected a list of numbers"),
        ('{"a": [1, null]}', "a: expected a list of numbers"),
        ('{"a": [1, NaN]}', "a: expected finite scores, found nan in row 1"),
        ("[1, 2]", "expected a score file: .*, found a JSON list"),
        ("{", "expected well-formed JSON"),
    ],
)
def test_broken_score_files(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(BadFile, match=says):
        read_scores(path)


def test_an_unknown_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("a,b")
    with pytest.raises(BadFile, match="found a file that ends in .csv"):
        read_scores(tmp_path / "s.csv")
