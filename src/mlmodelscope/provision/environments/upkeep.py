"""The environments of a home, and the packages behind them <-> what takes up space, piece by piece.

An environment counts with the files that it shares with nothing: what its removal frees. Those that it shares with the
package cache count there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from mlmodelscope.core.errors import UnknownNameError, UsageError
from mlmodelscope.core.storage import StorageItem
from mlmodelscope.provision.environments.making import Environments
from mlmodelscope.provision.environments.store import folder_sizes

__all__ = ["discard_environments", "environment_items"]


def environment_items(home: Path) -> list[StorageItem]:
    """A package cache that the user has for all of uv's work (UV_CACHE_DIR) is not this home's."""
    environments = Environments(home)
    known, folder = environments.list(), home / "cache" / "uv"
    items = [
        StorageItem("environments", facts.digest, _name(facts.id, facts.frameworks), facts.own_bytes, facts.used_at)
        for facts in known
    ]
    cache = environments.package_cache()
    if cache.folder == str(folder) and folder.is_dir():
        size = cache.unused_bytes + cache.shared_bytes + sum(folder_sizes(home / "cache" / "bytecode"))
        used_at = max([folder.stat().st_mtime, *(facts.used_at for facts in known)])
        items.append(StorageItem("packages", str(folder), "packages of all environments", size, used_at))
    return items


def _name(address: str, frameworks: Sequence[str]) -> str:
    return f"{address} ({', '.join(frameworks)})" if frameworks else address


def discard_environments(home: Path, items: Iterable[StorageItem]) -> list[StorageItem]:
    """Removes them, the environments first; those that were removed. One that a worker uses stays."""
    chosen, environments = list(items), Environments(home)
    removed = [item for item in chosen if item.kind == "environments" and _removed(environments, item.key)]
    packages = [item for item in chosen if item.kind == "packages"]
    if packages:
        environments.clear_packages()
        environments.prune(None)
    return removed + packages


def _removed(environments: Environments, digest: str) -> bool:
    try:
        environments.remove(digest)
    except (UnknownNameError, UsageError):  # another process was quicker, or a worker is in it
        return False
    return True
