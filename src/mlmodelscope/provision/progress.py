"""Bytes as they arrive -> whoever wants to watch; nobody, unless asked."""

from __future__ import annotations

from typing import Protocol

__all__ = ["NoProgress", "Progress", "Renamed"]


class Progress(Protocol):
    """Watches one transfer at a time: `start`, then `advance` in bytes, then `done`, also after a failure.

    A transfer that starts again calls `start` again. Called from the thread that fetches.
    """

    def start(self, total: int | None, label: str) -> None:
        """`total` in bytes, None where the server does not say; `label` has no credentials."""

    def advance(self, n: int) -> None: ...

    def done(self) -> None: ...


class NoProgress:
    def start(self, total: int | None, label: str) -> None:
        pass

    def advance(self, n: int) -> None:
        pass

    def done(self) -> None:
        pass


class Renamed:
    """Watches a transfer under another name: of a package's file, people know the package, not the index's URL."""

    def __init__(self, watcher: Progress, label: str) -> None:
        self._label = label
        self._watcher = watcher
        self.advance = watcher.advance
        self.done = watcher.done

    def start(self, total: int | None, label: str) -> None:
        self._watcher.start(total, self._label)
