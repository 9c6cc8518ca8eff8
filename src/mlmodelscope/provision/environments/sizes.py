"""The files of a lock -> how much an environment of them will take, as far as that can be known beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from mlmodelscope.core.errors import StorageError
from mlmodelscope.provision.durable import read_json, write_json
from mlmodelscope.provision.environments.locks import LockedFile

__all__ = ["UNPACKED", "download_sizes", "expected_size", "format_size"]

# about how much larger a wheel is when it is unpacked
UNPACKED = 3
_SECONDS = 10
# what a forecast may be beside the truth
_TOLERANCE = 2


def format_size(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{max(1, round(size / 1e6))} MB"


def expected_size(stated: int | None, forecast: int | None) -> int | None:
    """What will be taken on disk. `stated` was measured once; where the files at hand are of another size, they count.

    The same version may come with libraries of gigabytes from one index, and without from another.
    """
    if stated is None or forecast is None:
        return forecast if stated is None else stated
    return forecast if forecast > _TOLERANCE * stated else stated


def download_sizes(files: Sequence[LockedFile], *, is_offline: bool, cache: Path) -> list[int]:
    """The sizes that are known, or that a server tells; those nobody tells are left out.

    `cache` keeps what servers told, by the digests of the files, which are of one size for ever.
    """
    told = {key: size for key, size in (read_json(cache) or {}).items() if isinstance(size, int)}
    sizes = [told.get(file.sha256 or "") if file.size_bytes is None else file.size_bytes for file in files]
    known = [size for size in sizes if size is not None]
    asked = [file for file, size in zip(files, sizes, strict=True) if size is None and _is_remote(file)]
    if is_offline or not asked:
        return known
    with ThreadPoolExecutor(max_workers=8) as pool:
        answers = [(file, size) for file, size in zip(asked, pool.map(_ask, asked), strict=True) if size is not None]
    # where nothing can be written they are asked again next time
    with suppress(StorageError):
        write_json(cache, told | {file.sha256: size for file, size in answers if file.sha256})
    return known + [size for _, size in answers]


def _is_remote(file: LockedFile) -> bool:
    return (file.url or "").startswith("http")


def _ask(file: LockedFile) -> int | None:
    import requests

    from mlmodelscope.provision.download import new_session

    try:
        with new_session() as session:
            answer = session.head(str(file.url), timeout=_SECONDS, allow_redirects=True)
            return int(answer.headers["Content-Length"]) if answer.ok else None
    except (requests.RequestException, KeyError, ValueError):
        return None
