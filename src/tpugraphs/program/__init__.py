"""Where programs come from: JAX callables, files, and a zoo; and their graphs."""

from tpugraphs.program.capture import capture_callable, resolve_source
from tpugraphs.program.graphs import capture
from tpugraphs.program.types import InputSpec, Node, Program
from tpugraphs.program.zoo import PROGRAMS as programs  # noqa: N811 (a mapping, read like a module of names)
from tpugraphs.program.zoo import ZooProgram

__all__ = ["InputSpec", "Node", "Program", "ZooProgram", "capture", "capture_callable", "programs", "resolve_source"]
