"""Compilers on devices: they build a module and run it."""

from tpugraphs.target.xla import Executable, build

__all__ = ["Executable", "build"]
