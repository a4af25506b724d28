"""`Evaluator(name).evaluate({graph: scores})`: official metrics, noise-aware ones, and intervals over graphs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tpugraphs import files
from tpugraphs.data.collection import Collection, load
from tpugraphs.data.packed import PackedGraph
from tpugraphs.errors import BadRequest
from tpugraphs.metrics.pairs import PairCounts, count_pairs
from tpugraphs.metrics.ranking import tau_b, top_k_error
from tpugraphs.metrics.rows import find_official_rows, read_official_rows

RESAMPLES = 10_000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class GraphScore:
    """How a ranking of one graph's configs did."""

    graph: str
    configs: int
    noise_floor: float | None
    undefined: str
    """Why nothing can be ranked here; empty where it can. Undefined graphs are in no mean."""
    top_k: dict[int, float]
    tau: float
    """Tau-b; 0 where all scores are equal, which orders nothing."""
    pairs: PairCounts
    """Over all pairs of unequal run times."""
    pairs_beyond_noise: PairCounts | None
    """Over the pairs that differ by more than the noise floor; None where the floor is unknown."""
    constant_scores: bool

    @property
    def opa(self) -> float:
        return self.pairs.accuracy

    @property
    def opa_beyond_noise(self) -> float | None:
        beyond = self.pairs_beyond_noise
        return beyond.accuracy if beyond and beyond.comparable else None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure over graphs with its 95 % bootstrap interval; no interval from a single graph."""

    value: float
    low: float | None
    high: float | None
    graphs: int

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{self.low:.4f}, {self.high:.4f}]"
        return f"{self.value:.4f}{interval} over {self.graphs} graph{'s' if self.graphs != 1 else ''}"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What `evaluate` returns; it prints itself."""

    collection: str
    split: str
    rows: str
    """Which configs were ranked: all, or those of a file."""
    graphs: tuple[GraphScore, ...]
    missing: tuple[str, ...]
    """Graphs of the split that nobody scored."""
    summary: dict[str, Estimate]
    """By metric: top-K errors, OPA (weighted by pairs, as the official one is), tau, OPA and tau beyond noise."""

    @property
    def undefined(self) -> dict[str, str]:
        return {graph.graph: graph.undefined for graph in self.graphs if graph.undefined}

    def to_dict(self) -> dict[str, Any]:
        """Plain values; what is not a number becomes None."""
        return _plain({"schema_version": 1, **asdict(self)})

    def save(self, path: str | os.PathLike[str]) -> None:
        files.write_json(Path(path), self.to_dict())

    def __str__(self) -> str:
        lines = [f"{self.collection} ({self.split}), {self.rows}: {len(self.graphs)} graphs"]
        lines += [f"  {metric:17} {estimate}" for metric, estimate in self.summary.items()]
        lines += [f"  not ranked: {graph} ({why})" for graph, why in self.undefined.items()]
        lines += [f"  not scored: {', '.join(self.missing)}"] if self.missing else []
        return "\n".join(lines)


class Evaluator:
    """Judges rankings of one split of a collection.

    With `rows="official"` only the configs that the release's evaluation lists are ranked, read from
    `eval_indices/` under the root; a path names such a file elsewhere. `noise_floor` replaces the graphs' own.
    """

    def __init__(
        self,
        name: str,
        *,
        split: str = "valid",
        root: str | os.PathLike[str] | None = None,
        rows: str | os.PathLike[str] | None = None,
        noise_floor: float | None = None,
    ) -> None:
        self.collection: Collection = load(name, split, root=root)
        self.split = split
        self._noise_floor = noise_floor
        self._rows_label, self._rows = "all configs", None
        if rows is not None:
            base = self.collection.folder.parent
            path = find_official_rows(self.collection.name, base) if rows == "official" else Path(rows)
            self._rows_label, self._rows = f"rows of {path.name}", read_official_rows(path)

    @property
    def expected_input(self) -> str:
        """In words and figures, what `evaluate` takes."""
        lines = [f"a dict with a list of scores per graph of {self.collection}, lower is faster:"]
        lines += [f"  {row.name!r}: {len(self.rows(row.name))} scores" for row in self.collection.table()]
        return "\n".join(lines)

    def rows(self, graph: str) -> NDArray[np.intp]:
        """The configs to score, in the order in which scores are expected."""
        configs = self.collection[graph].summary.configs
        if self._rows is None:
            return np.arange(configs)
        if graph not in self._rows:
            raise BadRequest(f"{graph}: the {self._rows_label} do not list it; they list {', '.join(self._rows)}")
        rows = self._rows[graph]
        if rows.max() >= configs:
            raise BadRequest(f"{graph}: row {rows.max()} is listed for evaluation, but it has {configs} configs")
        return rows

    def evaluate(self, scores: Mapping[str, ArrayLike]) -> Evaluation:
        """Judges scores by graph; graphs of the split without scores are named in the result."""
        if not scores:
            raise BadRequest(f"no scores were given; expected {self.expected_input}")
        judged = tuple(self._judge(self.collection[name], scores[name]) for name in self._in_order(scores))
        return Evaluation(
            collection=self.collection.name,
            split=self.split,
            rows=self._rows_label,
            graphs=judged,
            missing=tuple(name for name in self.collection.names if name not in scores),
            summary=_summarise([graph for graph in judged if not graph.undefined]),
        )

    def _in_order(self, scores: Mapping[str, ArrayLike]) -> list[str]:
        for name in scores:
            if name not in self.collection:
                raise BadRequest(f"{name}: scored, but not a graph of {self.collection}")
        return [name for name in self.collection.names if name in scores]

    def _judge(self, graph: PackedGraph, given: ArrayLike) -> GraphScore:
        if not graph.summary.labelled:
            raise BadRequest(f"{graph.name}: its run times are withheld (zeros), so nothing can be evaluated on it")
        rows = self.rows(graph.name)
        scores = np.asarray(given, dtype=np.float64)
        if scores.shape != rows.shape:
            raise BadRequest(f"{graph.name}: expected {len(rows)} scores ({self._rows_label}), found {scores.shape}")
        if not np.isfinite(scores).all():
            raise BadRequest(f"{graph.name}: expected finite scores, found {scores[~np.isfinite(scores)][0]}")
        runtime = graph.relative_runtime[rows]
        floor = graph.summary.noise_floor if self._noise_floor is None else self._noise_floor
        exact = count_pairs(runtime, scores)
        beyond = None if floor is None else count_pairs(runtime, scores, noise_floor=floor)
        constant = bool((scores == scores[0]).all())
        tau = 0.0 if constant and exact.comparable else tau_b(exact, scores)
        return GraphScore(
            graph=graph.name,
            configs=len(rows),
            noise_floor=floor,
            undefined=_why_undefined(graph.config_identity[rows], exact.comparable),
            top_k={k: top_k_error(runtime, scores, k) for k in self.collection.schema.top_k},
            tau=tau,
            pairs=exact,
            pairs_beyond_noise=beyond,
            constant_scores=constant,
        )


def _why_undefined(identity: NDArray[np.intp], comparable: int) -> str:
    if (identity == identity[0]).all():
        return "one unique config"
    return "" if comparable else "all run times are equal"


def _summarise(graphs: list[GraphScore]) -> dict[str, Estimate]:
    if not graphs:
        return {}
    ones = [1] * len(graphs)
    pairs = [graph.pairs for graph in graphs]
    beyond = [graph.pairs_beyond_noise for graph in graphs]
    beyond = [counts for counts in beyond if counts is not None and counts.comparable]
    summary = {f"top-{k}": _estimate([graph.top_k[k] for graph in graphs], ones) for k in graphs[0].top_k}
    summary["OPA"] = _estimate([counts.concordant for counts in pairs], [counts.comparable for counts in pairs])
    summary["tau-b"] = _estimate([graph.tau for graph in graphs], ones)
    if beyond:
        comparable = [counts.comparable for counts in beyond]
        summary["OPA beyond noise"] = _estimate([counts.concordant for counts in beyond], comparable)
        summary["tau beyond noise"] = _estimate([c.concordant - c.discordant for c in beyond], comparable)
    return summary


def _estimate(parts: list[float] | list[int], wholes: list[int]) -> Estimate:
    """The ratio of sums over graphs, with a bootstrap interval from graphs drawn with replacement (seeded)."""
    part, whole = np.array(parts, dtype=np.float64), np.array(wholes, dtype=np.float64)
    value = float(part.sum() / whole.sum())
    if len(part) < 2:
        return Estimate(value, None, None, len(part))
    drawn = np.random.default_rng(0).multinomial(len(part), np.full(len(part), 1 / len(part)), size=RESAMPLES)
    ratios = (drawn @ part) / (drawn @ whole)
    low, high = np.quantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(value, float(low), float(high), len(part))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
