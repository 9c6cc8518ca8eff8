"""The files of a lock -> how much will be fetched, as far as that can be known beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from mlmodelscope.provision.environments.locks import LockedFile

__all__ = ["download_sizes", "format_size"]

_SECONDS = 10


def format_size(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{max(1, round(size / 1e6))} MB"


def download_sizes(files: Sequence[LockedFile], *, is_offline: bool) -> list[int]:
    """The sizes that are known, or that a server tells; those nobody tells are left out."""
    known = [file.size_bytes for file in files if file.size_bytes is not None]
    asked = [file.url for file in files if file.size_bytes is None and (file.url or "").startswith("http")]
    if is_offline or not asked:
        return known
    with ThreadPoolExecutor(max_workers=8) as pool:
        return known + [size for size in pool.map(_ask, asked) if size is not None]


def _ask(url: str | None) -> int | None:
    import requests

    from mlmodelscope.provision.download import new_session

    try:
        with new_session() as session:
            answer = session.head(str(url), timeout=_SECONDS, allow_redirects=True)
            return int(answer.headers["Content-Length"]) if answer.ok else None
    except (requests.RequestException, KeyError, ValueError):
        return None
