"""A URL -> a file on the disk: resumed where it broke off, retried where that helps, no credentials in messages."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mlmodelscope.core.asset import public_location
from mlmodelscope.core.errors import DownloadError, StorageError
from mlmodelscope.provision.durable import read_json, remove, storing, write_all, write_json
from mlmodelscope.provision.progress import NoProgress, Progress

if TYPE_CHECKING:
    import requests

__all__ = ["Downloader", "Part", "new_session"]

_Result = TypeVar("_Result")

_CHUNK = 1 << 18
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_LONGEST_PAUSE_SECONDS = 30.0


class _Retry(Exception):  # noqa: N818 - a signal between two functions here
    """This try failed in a way that a later one may not."""

    def __init__(self, reason: str, wait_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait_seconds = wait_seconds


@dataclass(frozen=True, slots=True)
class Part:
    """A transfer under way: the bytes so far, and beside them what the server said the whole is."""

    path: Path

    @property
    def note(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")

    def size_bytes(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def validator(self) -> str | None:
        """The ETag or date that lets a server say whether the rest still belongs to these bytes."""
        value = (read_json(self.note) or {}).get("validator")
        return value if isinstance(value, str) else None

    def discard(self) -> None:
        remove(self.path)
        remove(self.note)


def new_session() -> requests.Session:
    """A session that asks for the stored bytes themselves, so that digests and ranges mean the same everywhere."""
    import requests

    session = requests.Session()
    session.headers["Accept-Encoding"] = "identity"
    session.headers["User-Agent"] = "mlmodelscope"
    return session


@contextmanager
def _translating(url: str, timeout_seconds: float) -> Iterator[None]:
    """What the network library raises -> a reason in our own words; its own texts may hold credentials."""
    import requests
    import urllib3

    try:
        yield
    except requests.exceptions.SSLError:
        raise _failed(url, "the server's certificate cannot be verified") from None
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.exceptions.MissingSchema):
        raise _failed(url, "the address, or one it redirects to, is not a web address") from None
    except requests.exceptions.TooManyRedirects:
        raise _failed(url, "it redirects in a circle") from None
    except (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError, TimeoutError):
        raise _Retry(f"no answer within {timeout_seconds:g} s") from None
    except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, ConnectionError) as error:
        raise _Retry(_network_reason(error)) from None


def _network_reason(error: BaseException) -> str:
    """The operating system's word for it where there is one."""
    at: Any = error
    for _ in range(8):
        if isinstance(at, OSError) and at.strerror:
            return f"connection failed: {at.strerror.lower()}"
        inner = getattr(at, "reason", None) or next((arg for arg in at.args if isinstance(arg, BaseException)), None)
        at = inner if isinstance(inner, BaseException) else at.__cause__ or at.__context__
        if at is None:
            break
    return "the connection broke off"


def _failed(url: str, reason: str) -> DownloadError:
    location = public_location(url)
    return DownloadError(f"{location} cannot be downloaded: {reason}", location=location, reason=reason)


@dataclass(frozen=True)
class Downloader:
    """Downloads one URL at a time. `pause` is how it waits between tries; each gain of bytes renews the tries."""

    timeout_seconds: float = 60.0
    tries: int = 4
    pause: Callable[[float], None] = time.sleep
    session: Callable[[], requests.Session] = field(default=new_session)

    def download(self, url: str, part: Part, progress: Progress | None = None, *, is_pinned: bool = False) -> bool:
        """Completes `part`; whether it was put together from several answers. DownloadError where it cannot be done.

        `is_pinned` says that a checksum decides about the result, so that bytes may also be continued where the server
        gives nothing to compare them by.
        """
        watcher = progress or NoProgress()
        if part.size_bytes() and part.validator() is None and not is_pinned:
            part.discard()
        with storing(part.path):
            part.path.parent.mkdir(parents=True, exist_ok=True)
        with self.session() as session:
            return self._repeat(url, lambda: self._try(session, url, part, watcher), part.size_bytes)

    def get(self, url: str, headers: dict[str, str]) -> requests.Response | None:
        """A small page, whole; None where the server has none at this address."""
        with self.session() as session:
            return self._repeat(url, lambda: self._try_page(session, url, headers), lambda: 0)

    def _repeat(self, url: str, attempt: Callable[[], _Result], gained: Callable[[], int]) -> _Result:
        failures = 0
        while True:
            before = gained()
            try:
                return attempt()
            except _Retry as retry:
                failures = 1 if gained() > before else failures + 1
                if failures >= self.tries:
                    raise _failed(url, f"{retry.reason} ({self.tries} tries)") from None
                wait = 0.5 * 2.0 ** (failures - 1) if retry.wait_seconds is None else retry.wait_seconds
                self.pause(min(wait, _LONGEST_PAUSE_SECONDS))

    def _try_page(self, session: requests.Session, url: str, headers: dict[str, str]) -> requests.Response | None:
        with _translating(url, self.timeout_seconds):
            response = session.get(url, headers=headers, timeout=self.timeout_seconds)
        if response.status_code in (404, 410):
            return None
        self._check_status(response, url)
        return response

    def _check_status(self, response: requests.Response, url: str) -> None:
        reason = f"HTTP {response.status_code} {response.reason or ''}".strip()
        if response.status_code in _RETRIED:
            raise _Retry(reason, _retry_after(response))
        if response.status_code != 200:
            raise _failed(url, reason)

    def _try(self, session: requests.Session, url: str, part: Part, watcher: Progress) -> bool:
        offset, validator = part.size_bytes(), part.validator()
        headers = {}
        if offset:
            headers["Range"] = f"bytes={offset}-"
            if validator is not None:
                headers["If-Range"] = validator
        limits = (min(20.0, self.timeout_seconds), self.timeout_seconds)
        with (
            _translating(url, self.timeout_seconds),
            session.get(url, headers=headers, stream=True, timeout=limits) as response,
        ):
            start = self._accepted(response, url, part, offset)
            if start is None:
                return True
            self._receive(response, url, part, start, watcher)
            return start > 0

    def _accepted(self, response: requests.Response, url: str, part: Part, offset: int) -> int | None:
        """Where the answer's bytes begin in the file; None where the file is already whole."""
        status = response.status_code
        said = re.match(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)$", response.headers.get("Content-Range", ""))
        if status == 206 and offset and said and said[1] == str(offset):
            return offset
        if status == 416 and offset and said and said[2] == str(offset):
            return None
        if status in (206, 416):
            part.discard()
            raise _Retry("the server does not continue where the transfer broke off", wait_seconds=0)
        self._check_status(response, url)
        part.discard()
        validator = response.headers.get("ETag")
        if validator is None or validator.startswith("W/"):
            validator = response.headers.get("Last-Modified")
        if validator is not None:
            write_json(part.note, {"schema": 1, "validator": validator})
        return 0

    def _receive(self, response: requests.Response, url: str, part: Part, start: int, watcher: Progress) -> None:
        length = response.headers.get("Content-Length", "")
        watcher.start(start + int(length) if length.isdigit() else None, public_location(url))
        watcher.advance(start)
        with storing(part.path):
            file = part.path.open("ab" if start else "wb", buffering=0)
        try:
            with file:
                for chunk in response.raw.stream(_CHUNK, decode_content=False):
                    self._store(file, chunk, part)
                    watcher.advance(len(chunk))
                with storing(part.path):
                    os.fsync(file.fileno())
        finally:
            watcher.done()

    def _store(self, file: RawIOBase, chunk: bytes, part: Part) -> None:
        try:
            with storing(part.path):
                write_all(file, chunk)
        except StorageError:
            # a full disk is not helped by half a file
            part.discard()
            raise


def _retry_after(response: requests.Response) -> float | None:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdigit() else None
