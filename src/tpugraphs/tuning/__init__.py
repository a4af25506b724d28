"""From a program to a faster one, with a proof."""

from tpugraphs.tuning.loop import Progress, tune, tune_program
from tpugraphs.tuning.outcome import Outcome, Proof

__all__ = ["Outcome", "Progress", "Proof", "tune", "tune_program"]
