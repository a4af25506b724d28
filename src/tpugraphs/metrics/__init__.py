"""Official and noise-aware ranking metrics."""

from tpugraphs.metrics.evaluator import Estimate, Evaluation, Evaluator, GraphScore
from tpugraphs.metrics.ranking import concordance, kendall_tau, noise_aware_tau, opa, top_k_error

__all__ = [
    "Estimate",
    "Evaluation",
    "Evaluator",
    "GraphScore",
    "concordance",
    "kendall_tau",
    "noise_aware_tau",
    "opa",
    "top_k_error",
]
