"""What takes up space in a home, and the choice of what to remove; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from mlmodelscope.core.errors import UsageError

__all__ = [
    "HISTORY",
    "LEAST_AGE_SECONDS",
    "PRUNED",
    "STORAGE_KINDS",
    "StorageItem",
    "StorageKind",
    "choose_items",
    "parse_age",
    "parse_bytes",
]

# database and artifacts: the history itself; orphans: artifacts that no record names; assets: originals that were
# fetched; archives: the packages they were taken from; converted and prepared: made from assets, and made again where
# they are missing; environments and packages: what frameworks run in, made and fetched again where missing;
# unfinished and runs: what processes that died have left
StorageKind = Literal[
    "database",
    "artifacts",
    "orphans",
    "assets",
    "archives",
    "converted",
    "prepared",
    "environments",
    "packages",
    "unfinished",
    "runs",
]
STORAGE_KINDS: tuple[StorageKind, ...] = get_args(StorageKind)
# what no record needs, neither to be shown nor to be repeated
PRUNED: tuple[StorageKind, ...] = ("orphans", "archives", "unfinished", "runs")
HISTORY: tuple[StorageKind, ...] = ("database", "artifacts")

# an evaluation under way may still want what it touched less than this ago
LEAST_AGE_SECONDS = 3600.0

_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZES |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


@dataclass(frozen=True, slots=True)
class StorageItem:
    """One thing that takes up space. `key` finds it again, `name` tells people what it is; `used_at` in Unix seconds.

    `is_needed`: a stored record names it; None where that was not asked.
    """

    kind: StorageKind
    key: str
    name: str
    size_bytes: int
    used_at: float
    is_needed: bool | None = None


def choose_items(
    items: Iterable[StorageItem],
    kinds: Sequence[StorageKind],
    *,
    now: float,
    older_than_seconds: float,
    max_bytes: int | None = None,
    also_needed: bool = False,
) -> list[StorageItem]:
    """What to remove: of `kinds`, not used for that long, and not needed by a record, the longest unused first.

    With `max_bytes`, only as much as brings all of these kinds down to that size.
    """
    if refused := [kind for kind in kinds if kind in HISTORY]:
        raise UsageError(f"{refused[0]} is the history itself, which is not pruned")
    of_kinds = [item for item in items if item.kind in kinds]
    oldest = now - max(older_than_seconds, LEAST_AGE_SECONDS)
    free = [item for item in of_kinds if item.used_at <= oldest and (also_needed or not item.is_needed)]
    free.sort(key=lambda item: (item.used_at, item.kind, item.key))
    if max_bytes is None:
        return free
    total, chosen = sum(item.size_bytes for item in of_kinds), []
    for item in free:
        if total <= max_bytes:
            break
        chosen.append(item)
        total -= item.size_bytes
    return chosen


def parse_age(text: str) -> float:
    """Seconds of `30d`, `12h`, `45m`, `2w` or `0`."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhdw])", text.strip().lower())
    if found is None and text.strip() != "0":
        raise UsageError(f"{text!r} is not an age", hint="write it like 30d, 12h or 2w")
    return float(found[1]) * _AGES[found[2]] if found else 0.0


def parse_bytes(text: str) -> int:
    """Bytes of `5GB`, `512MiB` or `0`."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([A-Z]*)", text.strip().upper())
    if found is None or found[2] not in _SIZES:
        raise UsageError(f"{text!r} is not a size", hint="write it like 5GB or 512MiB")
    return round(float(found[1]) * _SIZES[found[2]])
