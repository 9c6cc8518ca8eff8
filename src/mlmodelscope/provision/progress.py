"""Bytes as they arrive -> whoever wants to watch; nobody, unless asked."""

from __future__ import annotations

from typing import Protocol

__all__ = ["NoProgress", "Progress"]


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
