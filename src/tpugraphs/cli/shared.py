"""What verbs share: options that several of them take, and printing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from rich.console import RenderableType

Root = Annotated[Path | None, Parameter(name="--root", help="Where collections are kept.")]
Split = Annotated[str, Parameter(name="--split", help="train, valid or test.")]
BAD_INPUT, INTERRUPTED = 2, 130
"""Exit codes."""
_WIDTH_IN_PIPES = 160


def show(what: RenderableType) -> None:
    """Prints what a verb found on standard output."""
    from rich.console import Console

    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH_IN_PIPES
    Console(width=wide).print(what, soft_wrap=isinstance(what, str), highlight=False, markup=False)
