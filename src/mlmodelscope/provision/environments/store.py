"""The folder of environments: addresses, locks, what is there, what is used, what may go.

environments/<id>/venv          the environment itself, nothing of ours in it
environments/<id>/stack.json    what it holds; written last, so an entry with it is whole
environments/<id>/used          its time stamp is the last use
environments/.solutions/        need and index configuration -> digest of a stack
environments/.locks/            one pair per id: `make` for its maker, `use` for its users
environments/.making-<id>-*     under way while the maker's lock is held, left behind otherwise
environments/.gone-*            being removed
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mlmodelscope.core.errors import EnvironmentMissingError, StorageError, UnknownNameError, UsageError
from mlmodelscope.core.stack import BuiltEnvironment, Stack
from mlmodelscope.provision.durable import read_json, storing, write_json

__all__ = ["EnvironmentFacts", "EnvironmentStore", "address_of", "folder_sizes", "has_files_of"]

_SCHEMA = 1
_LETTERS = 16
_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class EnvironmentFacts:
    """One environment. `own_bytes` are in files that nothing else links to: what its removal frees.

    `shared_bytes` are in files that the package cache or another environment holds too. `used_at` and `made_at` are
    Unix seconds. `frameworks` are those that it was asked for.
    """

    id: str
    digest: str
    frameworks: tuple[str, ...]
    python: str
    package_count: int
    own_bytes: int
    shared_bytes: int
    made_at: float
    used_at: float
    is_in_use: bool

    @property
    def size_bytes(self) -> int:
        return self.own_bytes + self.shared_bytes


def address_of(digest: str) -> str:
    return digest[:_LETTERS]


class EnvironmentStore:
    """Finds, places and removes environments; safe among processes."""

    def __init__(self, home: Path) -> None:
        self.root = home / "environments"

    def load(self, digest: str) -> BuiltEnvironment | None:
        """The environment if it is there and whole."""
        return self._load(self.root / address_of(digest))

    def _load(self, entry: Path) -> BuiltEnvironment | None:
        values = read_json(entry / "stack.json")
        python = entry / "venv" / "bin" / "python"
        # a link to an interpreter that was uninstalled leads nowhere
        if values is None or values.get("schema") != _SCHEMA or not python.exists():
            return None
        try:
            stack = Stack.model_validate(values.get("stack"))
        except ValidationError:
            return None
        if address_of(stack.digest) != entry.name:
            return None
        return BuiltEnvironment(digest=stack.digest, folder=str(entry / "venv"), python=str(python), stack=stack)

    def touch(self, digest: str) -> None:
        # a home that cannot be written still holds environments that can be used
        with suppress(OSError):
            (self.root / address_of(digest) / "used").touch()

    def solution(self, key: str) -> str | None:
        values = read_json(self._solution_path(key)) or {}
        digest = values.get("digest")
        return digest if isinstance(digest, str) else None

    def keep_solution(self, key: str, digest: str, framework: str) -> None:
        write_json(self._solution_path(key), {"digest": digest, "framework": framework})

    def _solution_path(self, key: str) -> Path:
        return self.root / ".solutions" / f"{key}.json"

    @contextmanager
    def making(self, digest: str, on_wait: Callable[[], None]) -> Iterator[int]:
        """The lock of the maker of this address; the descriptor may be handed to programs that work under it."""
        handle = self._open_lock(digest, "make")
        try:
            with storing(self.root):
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    on_wait()
                    fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)

    @contextmanager
    def new_entry(self, digest: str) -> Iterator[Path]:
        """A folder beside the final one, gone afterwards unless it was placed. The maker's lock must be held."""
        with storing(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(dir=self.root, prefix=f".making-{address_of(digest)}-"))
            folder.chmod(0o755)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def place(self, folder: Path, stack: Stack) -> BuiltEnvironment:
        """Makes the entry whole and puts it at its address in one step, in place of one that is not whole."""
        entry = self.root / address_of(stack.digest)
        values = {"schema": _SCHEMA, "made_at": time.time(), "stack": stack.model_dump(mode="json")}
        write_json(folder / "stack.json", values)
        with storing(entry):
            (folder / "used").touch()
            if entry.exists():
                self._discard(entry)
            folder.rename(entry)
        made = self._load(entry)
        if made is None:
            raise StorageError(f"the environment {entry.name} cannot be read back", path=str(entry))
        return made

    @contextmanager
    def in_use(self, digest: str) -> Iterator[None]:
        """While this is held, nobody removes the environment. EnvironmentMissingError if somebody just did."""
        handle = self._open_lock(digest, "use")
        try:
            with storing(self.root):
                fcntl.flock(handle, fcntl.LOCK_SH)
            if not (self.root / address_of(digest)).is_dir():
                raise EnvironmentMissingError(f"the environment {address_of(digest)} is gone", hint="run it again")
            self.touch(digest)
            yield
        finally:
            os.close(handle)

    def facts(self) -> list[EnvironmentFacts]:
        """Every whole environment, the last used first."""
        frameworks = self._frameworks()
        found: list[EnvironmentFacts] = []
        for entry, built in self._whole():
            with suppress(FileNotFoundError):  # removed meanwhile
                found.append(self._facts(entry, built, frameworks))
        return sorted(found, key=lambda facts: facts.used_at, reverse=True)

    def facts_of(self, prefix: str) -> EnvironmentFacts:
        built = self.find(prefix)
        return self._facts(self.root / address_of(built.digest), built, self._frameworks())

    def _frameworks(self) -> dict[str, set[str]]:
        """Which frameworks each digest was the answer for."""
        found: dict[str, set[str]] = {}
        for path in (self.root / ".solutions").glob("*.json"):
            values = read_json(path) or {}
            found.setdefault(str(values.get("digest")), set()).add(str(values.get("framework")))
        return found

    def _whole(self) -> list[tuple[Path, BuiltEnvironment]]:
        return [(entry, built) for entry in self._entries() if (built := self._load(entry)) is not None]

    def _facts(self, entry: Path, built: BuiltEnvironment, frameworks: Mapping[str, set[str]]) -> EnvironmentFacts:
        own, shared = folder_sizes(entry)
        values: dict[str, Any] = read_json(entry / "stack.json") or {}
        return EnvironmentFacts(
            id=entry.name,
            digest=built.digest,
            frameworks=tuple(sorted(frameworks.get(built.digest, ()))),
            python=built.stack.python,
            package_count=len(built.stack.packages),
            own_bytes=own,
            shared_bytes=shared,
            made_at=float(values.get("made_at", 0)),
            used_at=_used_at(entry),
            is_in_use=self._is_locked(built.digest, "use"),
        )

    def _entries(self) -> list[Path]:
        if not self.root.is_dir():
            return []
        return sorted(path for path in self.root.iterdir() if path.is_dir() and not path.name.startswith("."))

    def find(self, prefix: str) -> BuiltEnvironment:
        """The environment whose id begins with `prefix`. UnknownNameError, or UsageError where several do."""
        whole = {entry.name: built for entry, built in self._whole()}
        matching = [name for name in whole if prefix and (name.startswith(prefix) or whole[name].digest == prefix)]
        if len(matching) > 1:
            raise UsageError(f"{prefix!r} begins {len(matching)} ids: {', '.join(matching)}", hint="write more of it")
        if not matching:
            raise UnknownNameError("environment", prefix, whole)
        return whole[matching[0]]

    def remove(self, prefix: str) -> EnvironmentFacts:
        """Removes the environment and says what it was. UsageError while a worker uses it."""
        facts = self.facts_of(prefix)
        if not self._remove(self.root / facts.id, facts.digest):
            raise UsageError(
                f"the environment {facts.id} is in use", hint="wait until the evaluation has ended", id=facts.id
            )
        return facts

    def _remove(self, entry: Path, digest: str) -> bool:
        handle = self._open_lock(digest, "use")
        try:
            with storing(entry):
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return False
                self._discard(entry)
            return True
        finally:
            os.close(handle)

    def prune(self, unused_days: float | None) -> list[EnvironmentFacts]:
        """Removes what nobody used for so many days (None: none of the whole ones), and all that is half-made."""
        self.sweep()
        for name in self.broken():
            self._remove_broken(self.root / name)
        if unused_days is None:
            return []
        chosen = self.unused(unused_days)
        removed = [facts for facts in chosen if self._remove(self.root / facts.id, facts.digest)]
        left = {built.digest for _, built in self._whole()}
        for path in (self.root / ".solutions").glob("*.json"):
            if (read_json(path) or {}).get("digest") not in left:
                path.unlink(missing_ok=True)
        return removed

    def broken(self) -> list[str]:
        """The ids of those that cannot be used, because their interpreter is gone for example."""
        return [
            entry.name
            for entry in self._entries()
            if self._load(entry) is None and not self._is_locked(entry.name, "make")
        ]

    def _remove_broken(self, entry: Path) -> None:
        handle = self._open_lock(entry.name, "make")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # another process may have made it whole meanwhile
            if self._load(entry) is None:
                self._remove(entry, entry.name)
        except BlockingIOError:
            return
        finally:
            os.close(handle)

    def unused(self, days: float) -> list[EnvironmentFacts]:
        """Those that nobody used for so many days and no worker uses now."""
        oldest = time.time() - days * _DAY_SECONDS
        return [facts for facts in self.facts() if facts.used_at <= oldest and not facts.is_in_use]

    def sweep(self, held: str = "") -> None:
        """Removes what processes that died have left. `held` is the digest whose maker's lock the caller holds."""
        if not self.root.is_dir():
            return
        for path in self.root.glob(".gone-*"):
            shutil.rmtree(path, ignore_errors=True)
        for path in self.root.glob(".making-*"):
            address = path.name.split("-")[1]
            if address == address_of(held) or not self._is_locked(address, "make"):
                shutil.rmtree(path, ignore_errors=True)

    def _discard(self, entry: Path) -> None:
        gone = Path(tempfile.mkdtemp(dir=self.root, prefix=".gone-"))
        # in place of the empty folder, not into it: another process may sweep that away; or have removed the entry
        with suppress(FileNotFoundError):
            entry.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _open_lock(self, digest: str, kind: str) -> int:
        path = self.root / ".locks" / f"{address_of(digest)}.{kind}"
        with storing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _is_locked(self, digest: str, kind: str) -> bool:
        if not (self.root / ".locks" / f"{address_of(digest)}.{kind}").exists():
            return False
        handle = self._open_lock(digest, kind)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(handle)


def has_files_of(here: Stack, wanted: Stack) -> bool:
    """Whether what is here was made from the files that `wanted` names; of a file without a digest any will do."""
    known = {package.name: package.sha256 for package in here.packages}
    return all(package.sha256 in (None, known.get(package.name)) for package in wanted.packages)


def _used_at(entry: Path) -> float:
    try:
        return (entry / "used").stat().st_mtime
    except OSError:
        return entry.stat().st_mtime


def folder_sizes(entry: Path) -> tuple[int, int]:
    own = shared = 0
    for root, _, names in os.walk(entry):
        for name in names:
            with suppress(OSError):
                status = os.lstat(os.path.join(root, name))  # noqa: PTH118 - thousands of files
                if status.st_nlink > 1:
                    shared += status.st_size
                else:
                    own += status.st_size
    return own, shared
