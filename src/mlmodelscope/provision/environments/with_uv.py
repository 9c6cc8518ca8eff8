"""A need -> files chosen by uv; files -> an environment made by uv, which shares them with its cache by hard link."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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

    def __init__(self, uv: Uv, folder: Path, *, may_build: bool = True) -> None:
        """`may_build`: packages without a wheel are built, which runs code of theirs on this machine, as this user."""
        self._uv = uv
        self._folder = folder
        self._options = [] if may_build else ["--no-build"]

    @property
    def is_offline(self) -> bool:
        return self._uv.is_offline

    def solve(self, need: StackNeed, interpreter: Interpreter) -> list[LockedFile]:
        """The files for `need`, sorted by name.

        UnsatisfiableError has the conflict in a few lines, DownloadError says that no index answers. Raises
        DatesUnknown where the need has a date and the index does not say when its files were published.
        """
        check_requirements([*need.requirements, *need.bounds])
        bounds = self._folder / "constraints.txt"
        write_text(bounds, _lines(need.bounds))
        dated = [*self._options, *_published_before(need.as_of)]
        options = ["--constraints", str(bounds), "--python", interpreter.path, *dated]
        subject = f"no packages for {need.framework} on Python {interpreter.minor}"
        values = self._compile(_lines(need.requirements), options, subject)
        # packages that must be built are built with tools of the same time
        self._options = dated
        return parse_lock(values, tag_ranks(interpreter))

    def foresee(self, need: StackNeed, interpreter: Interpreter) -> list[LockedFile]:
        """About the files that another tool would choose for an interpreter that uv refuses; nothing is started."""
        check_requirements([*need.requirements, *need.bounds])
        subject = f"no packages for {need.framework} on Python {interpreter.minor}"
        options = ["--no-build", *_without_starting(interpreter)]
        return parse_lock(self._compile(_lines(need.requirements), options, subject), tag_ranks(interpreter))

    def locate(self, files: Sequence[LockedFile], interpreter: Interpreter) -> list[LockedFile]:
        """The same files with what the index tells of them: their sizes, and which are wheels. Raises as `solve` does.

        Works for interpreters that uv refuses too, because none is started.
        """
        options = ["--no-deps", *self._options, *_without_starting(interpreter)]
        wanted = format_lock(replace(file, sha256=None).pinned for file in files)
        values = self._compile(wanted, options, "the recorded packages cannot be found")
        offered = parse_lock(values, tag_ranks(interpreter), {file.sha256 for file in files})
        found = {(file.name, file.version): file for file in offered}
        located = [(file, found.get((file.name, file.version), file)) for file in files]
        return [replace(new, sha256=old.sha256) if old.sha256 in (None, new.sha256) else old for old, new in located]

    def _compile(self, requirements: str, options: Sequence[str], subject: str) -> dict[str, Any]:
        wanted, lock = self._folder / "requirements.in", self._folder / "pylock.toml"
        write_text(wanted, requirements)
        form = ("--output-file", str(lock), "--format", "pylock.toml", "--no-header")
        self._uv.pip("compile", str(wanted), *form, *options, subject=subject)
        return tomllib.loads(lock.read_text(encoding="utf-8"))

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
            # compiling would start the environment's Python, and with it what packages have it run at its start
            *("install", "--requirements", str(lock), "--no-deps", "--no-compile-bytecode", *hashes, *self._options),
            *("--python", str(venv / "bin" / "python"), "--quiet"),
            subject=subject,
        )


def _lines(requirements: Sequence[str]) -> str:
    return "\n".join(requirements) + "\n"


def _without_starting(interpreter: Interpreter) -> list[str]:
    return ["--python", sys.executable, "--python-version", interpreter.minor]


def _published_before(as_of: str | None) -> list[str]:
    """uv's option; a date means its first moment, because uv would count the whole day."""
    if as_of is None:
        return []
    return ["--exclude-newer", as_of if "T" in as_of else f"{as_of}T00:00:00Z"]
