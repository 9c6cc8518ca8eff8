"""Draws progress on standard error: rich bars on a terminal, one plain line per change in a pipe."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

from mlmodelscope.core.events import EvaluationEvent

if TYPE_CHECKING:
    from rich.progress import Progress as Bars, TaskID

__all__ = ["Display", "open_display"]

_REDRAW_SECONDS = 0.1
_WORDS = {
    "provision": "fetching files",
    "start": "starting the worker",
    "load": "loading the model",
    "prepare": "preparing samples",
    "warmup": "warming up",
    "measure": "measuring",
    "trace": "tracing",
    "accuracy": "running every sample",
    "unload": "unloading",
    "store": "storing",
}


class Display(Protocol):
    """Shows downloads (start, advance, done) and the stages of an evaluation (on_event)."""

    def start(self, total: int | None, label: str) -> None: ...

    def advance(self, n: int) -> None: ...

    def done(self) -> None: ...

    def on_event(self, event: EvaluationEvent) -> None: ...


@contextmanager
def open_display(stream: TextIO) -> Iterator[Display]:
    if not stream.isatty():
        yield _Lines(stream)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    # a name may hold square brackets, which rich would read as its own markup
    description, amount = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[amount]}"))
    columns = (description, BarColumn(), amount, TimeElapsedColumn())
    # no refresh thread: while a worker measures, this process must sleep but for one look a second
    with Progress(*columns, console=Console(file=stream), transient=True, auto_refresh=False) as bars:
        yield _Bars(bars)


def _describe(event: EvaluationEvent) -> str:
    words = _WORDS.get(event.stage, event.stage)
    launch = f" launch {event.launch + 1}/{event.launches}" if event.launch is not None else ""
    return f"{event.model}{launch}: {words}"


class _Lines:
    """For pipes and logs: says each new thing once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = ""

    def start(self, total: int | None, label: str) -> None:
        size = f" ({total / 1e6:.1f} MB)" if total else ""
        self._say(f"fetching {label}{size}")

    def advance(self, n: int) -> None:
        return

    def done(self) -> None:
        return

    def on_event(self, event: EvaluationEvent) -> None:
        if event.stage in ("measure", "trace", "accuracy", "provision", "load") or ":" in event.stage:
            self._say(_describe(event))

    def _say(self, text: str) -> None:
        if text != self._last:
            self._last = text
            self._stream.write(text + "\n")
            self._stream.flush()


class _Bars:
    """For terminals: one bar for the transfer under way, one for the evaluation."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._transfer: TaskID | None = None
        self._stage: TaskID | None = None
        self._described = ""
        self._bytes = 0
        self._drawn_at = 0.0

    def start(self, total: int | None, label: str) -> None:
        self.done()
        self._bytes = 0
        self._transfer = self._bars.add_task(f"fetching {label}", total=total, amount="")

    def advance(self, n: int) -> None:
        if self._transfer is not None:
            self._bytes += n
            now = time.monotonic()
            refresh = now - self._drawn_at >= _REDRAW_SECONDS
            self._drawn_at = now if refresh else self._drawn_at
            self._bars.update(self._transfer, advance=n, amount=f"{self._bytes / 1e6:.1f} MB", refresh=refresh)

    def done(self) -> None:
        if self._transfer is not None:
            self._bars.remove_task(self._transfer)
            self._transfer = None

    def on_event(self, event: EvaluationEvent) -> None:
        text = _describe(event)
        if self._stage is None or text != self._described:
            if self._stage is not None:
                self._bars.remove_task(self._stage)
            self._described = text
            self._stage = self._bars.add_task(text, total=event.total, amount="")
        amount = f"{event.done} queries" if event.done else ""
        self._bars.update(self._stage, completed=event.done, total=event.total, amount=amount, refresh=True)
