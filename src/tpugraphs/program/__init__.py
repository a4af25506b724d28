"""Where programs come from: JAX callables, StableHLO files, and a zoo."""

from tpugraphs.program.capture import capture_callable, resolve_source
from tpugraphs.program.types import InputSpec, Node, Program

__all__ = ["InputSpec", "Node", "Program", "capture_callable", "resolve_source"]
