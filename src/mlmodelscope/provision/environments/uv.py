"""A uv command -> done, or an error of ours that says why in a few lines and names no registry."""

from __future__ import annotations

import errno
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from mlmodelscope.core.errors import (
    DigestError,
    DownloadError,
    EnvironmentMissingError,
    MLModelScopeError,
    UnsatisfiableError,
)
from mlmodelscope.provision.durable import storage_error

__all__ = ["TRUST_HINT", "DatesUnknown", "InterpreterRefused", "Uv", "clean", "find_uv", "tool_error"]

_ADDRESS = re.compile(r"\b(?:git\+)?(?:https?|ftp|ssh)://[^\s`'\")>,]+")
_HOST = re.compile(r"host='[^']*'")
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_STORAGE = {errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.EPERM, errno.EROFS}
_UNREACHABLE = (
    *("error sending request", "dns error", "failed to fetch", "failed to download", "request failed"),
    *(
        "connection broken",
        "max retries exceeded",
        "operation timed out",
        "could not connect",
        "http status",
        "network was disabled",
        "not found in the cache",
    ),
)
_REFUSED = re.compile(r"failed to inspect python interpreter|python <\S+ is not supported", re.IGNORECASE)
_WHEELS_ONLY = re.compile(r"Wheels are required for `([^`]+)`")
_NOISE = ("warning:", "using python", "url 'file:")
# pip lists every version there is, and where the requirement was written
_ASIDE = re.compile(r" \(from (?:versions:|-r )[^()]*(?:\([^()]*\)[^()]*)?\)")
_MARK = re.compile(r"^(?:error|cause|hint|[×╰├│]+[─▶]*)[:\s]+", re.IGNORECASE)
_CONFLICT = ("no solution found", "no matching distribution", "resolutionimpossible", "conflicting dependencies")
# uv's advice on its own options and on its ways is of no use to a user of ours
_USEFUL_HINT = re.compile(r"ABI tag|platform tag|Python (?:version|implementation) tag|no wheels", re.IGNORECASE)
TRUST_HINT = (
    "if you trust it, evaluate it without --untrusted, or import the record with --trust; "
    "otherwise ask for versions that are published as wheels"
)
_LOOSEN = "loosen the requirements, or ask for other versions"
_DATED = "this stack is held at a date: ask for packages that are older, or for a newer version of the framework"
_MOST_LINES = 8
_MOST_CHARACTERS = 1200


class DatesUnknown(Exception):  # noqa: N818 - not a failure: a stack has bounds besides its date
    """The index does not say when its files were published, so that a date leaves none of them."""


class InterpreterRefused(Exception):  # noqa: N818 - not a failure: the interpreter's own pip takes over
    """uv does not work with this interpreter."""


def find_uv() -> str:
    """uv's program: beside this interpreter, as the installed package knows it, or on the PATH."""
    beside = Path(sys.executable).parent / "uv"
    if os.access(beside, os.X_OK):
        return str(beside)
    try:
        return str(importlib.import_module("uv").find_uv_bin())
    except (ImportError, AttributeError, FileNotFoundError):
        pass
    if (found := shutil.which("uv")) is not None:
        return found
    raise EnvironmentMissingError(
        "uv, which makes the frameworks' environments, is not installed",
        hint="pip install 'mlmodelscope[environments]'",
        program="uv",
    )


class Uv:
    """Runs uv. `kept` are file descriptors (locks) that uv holds too: a lock of ours lives as long as uv works."""

    def __init__(self, environment: Mapping[str, str], *, has_index: bool, kept: Sequence[int] = ()) -> None:
        self._program = find_uv()
        self._environment = environment
        self._options = () if has_index else ("--no-index",)
        self._kept = tuple(kept)
        self.is_offline = False

    def holding(self, *kept: int) -> Uv:
        """The same uv for work under a lock."""
        other = Uv(self._environment, has_index=not self._options, kept=kept)
        other.is_offline = self.is_offline
        return other

    def pip(self, *arguments: str, subject: str) -> None:
        """`uv pip ...`; where no index answers, once more from uv's cache alone. `subject` begins an error's text."""
        said = self._run("pip", *arguments, *self._options, *(("--offline",) if self.is_offline else ()))
        if said is not None and not self.is_offline and _is_unreachable(said):
            if self._run("pip", *arguments, *self._options, "--offline") is None:
                self.is_offline = True
                return
            raise _unreachable(subject, said)
        if said is not None:
            _refuse(subject, said)

    def venv(self, folder: Path, python: str, *, subject: str) -> None:
        said = self._run("venv", "--quiet", "--no-project", "--relocatable", "--python", python, str(folder))
        if said is not None:
            _refuse(subject, said)

    def clear_cache(self) -> None:
        said = self._run("cache", "clean", "--quiet")
        if said is not None:
            _refuse("the package cache cannot be emptied", said)

    def _run(self, *arguments: str) -> str | None:
        """None where it went well, else what uv said."""
        try:
            # from the root no project's settings are found
            answer = subprocess.run(
                [self._program, *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                cwd="/",
                env=dict(self._environment),
                stdin=subprocess.DEVNULL,
                check=False,
                pass_fds=self._kept,
            )
        except OSError as error:
            raise EnvironmentMissingError(
                f"uv cannot be started: {error.strerror or error}", hint="pip install 'mlmodelscope[environments]'"
            ) from error
        return None if answer.returncode == 0 else (answer.stderr or answer.stdout or f"exit {answer.returncode}")


def clean(text: str) -> str:
    """What a package tool said, as a few lines without addresses, advice on its own options and marks."""
    kept: list[str] = []
    is_hint = False
    for line in _HOST.sub("host", _ADDRESS.sub("[address]", text)).splitlines():
        plain = line.strip()
        if not plain or plain.lower().startswith(_NOISE):
            is_hint = False
            continue
        if plain.startswith("hint:"):
            is_hint = not _USEFUL_HINT.search(plain)
        elif not line.startswith(" "):
            is_hint = False
        if is_hint:
            continue
        kept.append(_ASIDE.sub("", _MARK.sub("", plain)))
    shown = "\n".join(kept[:_MOST_LINES])
    return shown if len(shown) <= _MOST_CHARACTERS else shown[:_MOST_CHARACTERS].rsplit(" ", 1)[0] + " ..."


def _is_unreachable(said: str) -> bool:
    lowered = said.lower()
    if "hash mismatch" in lowered or _storage_number(said) is not None:
        return False
    return any(mark in lowered for mark in _UNREACHABLE)


def _storage_number(said: str) -> int | None:
    return next((number for text in _OS_ERROR.findall(said) if (number := int(text)) in _STORAGE), None)


def _unreachable(subject: str, said: str) -> DownloadError:
    reason = (clean(said).splitlines() or ["no answer"])[-1]
    return DownloadError(
        f"{subject}: the package index cannot be reached, and the cache does not hold what is needed ({reason})",
        hint="check the network and the indexes (pip config list); what was installed once is made again without them",
        reason=reason,
    )


def _refuse(subject: str, said: str) -> NoReturn:
    if _REFUSED.search(said):
        raise InterpreterRefused(clean(said))
    if "is missing an upload date" in said:
        raise DatesUnknown
    raise tool_error(subject, said)


def tool_error(subject: str, said: str) -> MLModelScopeError:
    """What uv or pip said, as an error of ours."""
    number = _storage_number(said)
    if number is not None:
        return storage_error(OSError(number, os.strerror(number)), Path(_first_path(said) or "the environment"))
    reason = clean(said)
    lowered = said.lower()
    if "hash mismatch" in lowered or ("hashes" in lowered and "require" in lowered):
        return DigestError(
            f"{subject}: a package is not the file that its checksum says",
            hint="the index serves another file under this version than it did",
            reason=reason,
        )
    if _is_unreachable(said):
        return _unreachable(subject, said)
    unbuilt = sorted(set(_WHEELS_ONLY.findall(said)))
    if unbuilt:
        return UnsatisfiableError(
            f"{subject}: {' and '.join(unbuilt)} would have to be built here, which runs code of a package that an "
            "untrusted manifest or record asks for",
            hint=TRUST_HINT,
            packages=unbuilt,
        )
    if any(mark in lowered for mark in _CONFLICT):
        explanation = reason.removeprefix("No solution found when resolving dependencies").strip(":\n ")
        is_dated = "`exclude-newer`" in said
        return UnsatisfiableError(
            f"{subject}: {explanation}", hint=_DATED if is_dated else _LOOSEN, conflict=explanation
        )
    if "failed to build" in lowered or "build backend" in lowered:
        return EnvironmentMissingError(
            f"{subject}: a package has no file for this machine and could not be built: {reason}",
            hint="install a compiler and the libraries it names, or ask for another version",
            reason=reason,
        )
    return EnvironmentMissingError(f"{subject}: {reason}", reason=reason)


def _first_path(said: str) -> str | None:
    found = re.search(r"`(/[^`]+)`", said)
    return found[1] if found else None
