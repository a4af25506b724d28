"""Measuring: a worker process that may die, seeded inputs, checks of results, paired timing."""

from tpugraphs.measure.timing import Ratio, paired_ratio
from tpugraphs.measure.worker import Worker

__all__ = ["Ratio", "Worker", "paired_ratio"]
