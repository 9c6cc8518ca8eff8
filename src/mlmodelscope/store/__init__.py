"""Turns records into history: a database of what was evaluated, and the files that belong to it by their content."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from mlmodelscope.core.errors import UsageError
from mlmodelscope.core.plugins import Registry
from mlmodelscope.core.store import OpenStore, Store

__all__ = ["STORE_GROUP", "open_store"]

STORE_GROUP = "mlmodelscope.stores"


def open_store(home: Path, url: str | None = None) -> Store:
    """The store under `home`, or the database that `url` names with its artifacts under `home`.

    The scheme of the URL (`sqlite:///...`, `postgresql+driver://...`) is the name of the plug-in. No database library
    is imported before this is called.
    """
    if url is not None and "://" not in url:
        raise UsageError(f"{url!r} is not the URL of a database", hint="write it like sqlite:////data/evaluations.db")
    name = "sqlite" if url is None else url.partition("://")[0].partition("+")[0]
    opening = cast("OpenStore", Registry(STORE_GROUP, kind="store").get(name))
    return opening(home, url)
