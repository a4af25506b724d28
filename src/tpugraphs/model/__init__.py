"""Rankers: from a graph and configs to scores, lower is faster."""

from tpugraphs.model.trivial import TRIVIAL_RANKERS, Ranker

__all__ = ["TRIVIAL_RANKERS", "Ranker"]
