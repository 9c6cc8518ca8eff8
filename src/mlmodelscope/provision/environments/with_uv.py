"""A need -> files chosen by uv; files -> an environment made by uv, which shares them with its cache by hard link."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from mlmodelscope.core.stack import StackNeed
from mlmodelscope.provision.durable import write_text
from mlmodelscope.provision.environments.interpreters import Interpreter
from mlmodelscope.provision.environments.locks import (
    LockedFile,
    check_requirements,
    format_lock,
    parse_lock,
    tag_ranks,
)
from mlmodelscope.provision.environments.uv import Uv

__all__ = ["WithUv"]


class WithUv:
    """`folder` is for files of no further use. Raises InterpreterRefused where uv cannot work with the interpreter."""

    def __init__(self, uv: Uv, folder: Path) -> None:
        self._uv = uv
        self._folder = folder
        self._options: list[str] = []

    @property
    def is_offline(self) -> bool:
        return self._uv.is_offline

    def solve(self, need: StackNeed, interpreter: Interpreter) -> list[LockedFile]:
        """The files for `need`, sorted by name.

        UnsatisfiableError has the conflict in a few lines, DownloadError says that no index answers.
        """
        check_requirements([*need.requirements, *need.bounds])
        wanted, bounds = self._folder / "requirements.in", self._folder / "constraints.txt"
        lock = self._folder / "pylock.toml"
        write_text(wanted, "\n".join(need.requirements) + "\n")
        write_text(bounds, "\n".join(need.bounds) + "\n")
        # packages that must be built are built with tools of the same time
        self._options = _published_before(need.as_of)
        self._uv.pip(
            *("compile", str(wanted), "--constraints", str(bounds), "--python", interpreter.path),
            *("--output-file", str(lock), "--format", "pylock.toml", "--no-header", "--quiet", *self._options),
            subject=f"no packages for {need.framework} on Python {interpreter.minor}",
        )
        return parse_lock(tomllib.loads(lock.read_text(encoding="utf-8")), tag_ranks(interpreter))

    def install(
        self, subject: str, files: Sequence[LockedFile], interpreter: Interpreter, venv: Path, kept: Sequence[int]
    ) -> None:
        """Makes `venv` with exactly these files. `kept` are locks that uv holds as long as it works."""
        uv = self._uv.holding(*kept)
        lock = self._folder / "lock.txt"
        write_text(lock, format_lock(file.pinned for file in files))
        uv.venv(venv, interpreter.path, subject=subject)
        hashes = ["--require-hashes"] if all(file.sha256 for file in files) else []
        uv.pip(
            *("install", "--requirements", str(lock), "--no-deps", *hashes, *self._options),
            *("--python", str(venv / "bin" / "python"), "--quiet"),
            subject=subject,
        )


def _published_before(as_of: str | None) -> list[str]:
    """uv's option; a date means its first moment, because uv would count the whole day."""
    if as_of is None:
        return []
    return ["--exclude-newer", as_of if "T" in as_of else f"{as_of}T00:00:00Z"]
