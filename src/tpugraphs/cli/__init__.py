"""The command line: parse, call, print."""

from tpugraphs.cli.main import main

__all__ = ["main"]
