"""A home -> what takes up space in it, and the same home without what nobody needs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from mlmodelscope.core.errors import StoreError
from mlmodelscope.core.storage import PRUNED, StorageItem, StorageKind, choose_items
from mlmodelscope.core.store import Store, Upkeep
from mlmodelscope.provision import Assets
from mlmodelscope.provision.durable import remove
from mlmodelscope.provision.environments.upkeep import discard_environments, environment_items
from mlmodelscope.provision.upkeep import discard, folder_item, storage_items
from mlmodelscope.worker.folder import remove_abandoned

__all__ = ["list_storage", "prune_storage"]

# folders beside the prepared samples that belong to the packages
_PACKAGES = ("uv", "bytecode")


def list_storage(home: Path, store: Store, assets: Assets, *, asks_records: bool = False) -> list[StorageItem]:
    """Everything under `home`, piece by piece. `asks_records`: also which assets records name, by reading all."""
    upkeep = _upkeep(store)
    needed = upkeep.named_digests() if asks_records else None
    folders: tuple[tuple[StorageKind, str], ...] = (("prepared", "cache"), ("prepared", "portable"), ("runs", "runs"))
    paths = [(kind, path) for kind, name in folders for path in sorted((home / name).glob("*"))]
    found = [folder_item(kind, path) for kind, path in paths if path not in (home / "cache" / n for n in _PACKAGES)]
    return [
        *upkeep.storage(),
        *storage_items(assets.cache, needed),
        *environment_items(home),
        *(item for item in found if item is not None),
    ]


def prune_storage(
    home: Path,
    store: Store,
    assets: Assets,
    *,
    kinds: Sequence[StorageKind] = PRUNED,
    older_than_seconds: float = 0.0,
    max_bytes: int | None = None,
    also_needed: bool = False,
    is_dry: bool = False,
) -> list[StorageItem]:
    """What was removed; what would be, if `is_dry`. The rules are those of `choose_items`.

    An asset that a stored record names is only removed if `also_needed`; nothing that a record names in the store is.
    """
    # which assets are needed costs a walk through all records, so it is asked only where the answer counts
    items = list_storage(home, store, assets, asks_records="assets" in kinds and not also_needed)
    chosen = choose_items(
        items,
        kinds,
        now=time.time(),
        older_than_seconds=older_than_seconds,
        max_bytes=max_bytes,
        also_needed=also_needed,
    )
    if is_dry:
        return chosen
    is_stores = [item.kind == "orphans" or item.key.startswith("artifact:") for item in chosen]
    own = [item for item, is_store in zip(chosen, is_stores, strict=True) if is_store]
    others = [item for item, is_store in zip(chosen, is_stores, strict=True) if not is_store]
    folders = [item for item in others if item.kind in ("prepared", "runs")]
    frameworks = [item for item in others if item.kind in ("environments", "packages")]
    return [
        *(_upkeep(store).discard(own) if own else []),
        *discard(assets.cache, [item for item in others if item not in folders and item not in frameworks]),
        *discard_environments(home, frameworks),
        *(item for item in folders if _removed(item)),
    ]


def _removed(item: StorageItem) -> bool:
    if item.kind == "runs":
        return remove_abandoned(Path(item.key))
    remove(Path(item.key))
    return True


def _upkeep(store: Store) -> Upkeep:
    if not isinstance(store, Upkeep):
        raise StoreError("this store cannot say what it holds")
    return store
