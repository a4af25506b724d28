"""Progress on standard error, for a person who waits; nothing where nobody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from tpugraphs.data.names import Place

T = TypeVar("T")


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
def live(render: Callable[[T], RenderableType]) -> Iterator[Callable[[T], None]]:
    """A view on standard error that follows what it is told; nothing where nobody watches."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with Live(console=console, transient=True, auto_refresh=False) as view:
        yield lambda progress: view.update(render(progress), refresh=True)


@contextmanager
def status(doing: str) -> Iterator[Callable[[str, float], None]]:
    """A line on standard error, told what is being done and which share is done; nothing where nobody watches."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _what, _share: None
        return
    with console.status(doing) as line:
        yield lambda what, share: line.update(f"{doing} · {what} · {min(share, 0.99):.0%}")
