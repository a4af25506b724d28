"""A progress bar on standard error, for a person who waits; nothing where nobody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from tpugraphs.data.names import Place

if TYPE_CHECKING:
    from tpugraphs.tuning import Progress as TuneProgress


class Bar:
    """Implements `tpugraphs.data.importing.Progress`."""

    def __init__(self, doing: str) -> None:
        console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[place]}"),
        )
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task(doing, total=None, place="")

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def begin(self, total_bytes: int) -> None:
        self._bar.update(self._task, total=total_bytes)

    def graph(self, place: Place) -> None:
        self._bar.update(self._task, place=str(place))

    def advance(self, done_bytes: float) -> None:
        self._bar.advance(self._task, done_bytes)


@contextmanager
def watched() -> Iterator[Callable[[TuneProgress], None]]:
    """A line on standard error that follows a tuning run; nothing where nobody watches."""
    from tpugraphs.report.tuning import watching

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield lambda progress: live.update(watching(progress), refresh=True)
