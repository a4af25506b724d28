"""Runs one command and turns every failure into one sentence and an exit code: 2 bad input, 130 interrupted."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from tpugraphs.cli.shared import BAD_INPUT, INTERRUPTED


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point of `tpugraphs` and `python -m tpugraphs`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without a character shows a question mark
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Carries out one command line; returns its exit code."""
    from cyclopts import CycloptsError

    from tpugraphs.cli.app import app
    from tpugraphs.errors import TpuGraphsError, unwritable

    try:
        result = app(list(arguments), exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except CycloptsError as error:
        return _say(f"{' '.join(str(error).split())} `tpugraphs --help` shows how to ask.")
    except TpuGraphsError as error:
        return _say(str(error))
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _say(str(unwritable(error.filename or "output", error)))
    except MemoryError:
        return _say("the machine ran out of memory; close other programs or use a larger machine")
    except KeyboardInterrupt:
        print("stopped; what was finished is kept", file=sys.stderr)
        return INTERRUPTED


def _say(sentence: str) -> int:
    print(f"tpugraphs: {sentence}", file=sys.stderr)
    return BAD_INPUT
