"""A need -> files chosen by the interpreter's own pip; files -> an environment made by its own venv.

For interpreters that uv does not work with. pip's own configuration applies. Nothing is shared by hard link, and a
date (`as_of`) means nothing to a pip of that age: stacks for such interpreters pin what matters.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlmodelscope.core.errors import EnvironmentMissingError, UnsatisfiableError
from mlmodelscope.core.stack import StackNeed
from mlmodelscope.provision.digests import hash_file
from mlmodelscope.provision.durable import storing, write_text
from mlmodelscope.provision.environments.interpreters import Interpreter
from mlmodelscope.provision.environments.locks import LockedFile, check_requirements, format_lock
from mlmodelscope.provision.environments.uv import TRUST_HINT, tool_error

__all__ = ["WithPip"]

# a shell script whose first command is Python text too: there it is a string that nobody reads
_START = b"""#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")/python" "$0" "$@"
' '''
"""


class WithPip:
    """`folder` holds the tools and the fetched files until the environment is made."""

    is_offline = False

    def __init__(self, environment: Mapping[str, str], folder: Path, *, may_build: bool = True) -> None:
        """`may_build`: packages without a wheel are built, which runs code of theirs on this machine, as this user."""
        self._environment = {**environment, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
        self._tools = folder / "tools"
        self._files = folder / "files"
        self._folder = folder
        self._options = () if may_build else ("--only-binary", ":all:")

    def solve(self, need: StackNeed, interpreter: Interpreter) -> list[LockedFile]:
        """The files for `need`, sorted by name; they are fetched then. Raises UnsatisfiableError, DownloadError."""
        if self._options:
            # a package may need one at an address, and that is built whatever the option says
            raise UnsatisfiableError(
                f"packages for Python {interpreter.minor} cannot be chosen for {need.framework} without running "
                "code of theirs, and the manifest is not trusted",
                hint=TRUST_HINT,
                python=interpreter.version,
            )
        check_requirements([*need.requirements, *need.bounds])
        wanted, bounds = self._folder / "requirements.in", self._folder / "constraints.txt"
        write_text(wanted, "\n".join(need.requirements) + "\n")
        write_text(bounds, "\n".join(need.bounds) + "\n")
        subject = f"no packages for {need.framework} on Python {interpreter.minor}"
        self._prepare(interpreter)
        self._pip("download", "--dest", str(self._files), "-r", str(wanted), "-c", str(bounds), subject=subject)
        return sorted((_locked(path) for path in self._files.iterdir()), key=lambda file: file.name)

    def install(
        self, subject: str, files: Sequence[LockedFile], interpreter: Interpreter, venv: Path, kept: Sequence[int]
    ) -> None:
        """Makes `venv` with exactly these files, fetched before or now."""
        self._prepare(interpreter)
        lock = self._folder / "lock.txt"
        write_text(lock, format_lock(file.pinned for file in files))
        if not self._files.is_dir():
            self._fetch(lock, subject)
        _run([interpreter.path, "-m", "venv", "--without-pip", str(venv)], self._environment, subject, kept)
        self._pip(
            *("install", "--no-index", "--find-links", str(self._files), "--no-deps", "--ignore-installed"),
            *("--prefix", str(venv), "-r", str(lock), *self._options),
            subject=subject,
            kept=kept,
        )
        with storing(venv):
            _untie(venv / "bin")

    def _fetch(self, lock: Path, subject: str) -> None:
        where = ("--dest", str(self._files), "-r", str(lock))
        try:
            self._pip("download", "--no-deps", *self._options, *where, subject=subject)
        except UnsatisfiableError as error:
            if not self._options:
                raise
            raise UnsatisfiableError(f"{error.message}, as a wheel", hint=TRUST_HINT, **error.fields) from error

    def _prepare(self, interpreter: Interpreter) -> None:
        """A pip of its own, so that the environment holds none, as new as the interpreter takes."""
        if self._tools.is_dir():
            return
        if not interpreter.has_pip:
            raise EnvironmentMissingError(
                f"the Python at {interpreter.path} has no venv and ensurepip",
                hint=f"install Debian's package python{interpreter.minor}-venv, or a Python of pyenv",
                python=interpreter.path,
            )
        subject = f"Python {interpreter.version} cannot make an environment"
        _run([interpreter.path, "-m", "venv", str(self._tools)], self._environment, subject, ())
        # the one that comes along may know no wheels of today; without network it must do. Named, because an index
        # that does not say what a release needs offers one that does not start.
        newest = "pip<22" if interpreter.minor == "3.6" else "pip"
        _attempt([*self._program(), "install", "--quiet", "--upgrade", newest], self._environment, ())

    def _program(self) -> list[str]:
        return [str(self._tools / "bin" / "python"), "-m", "pip"]

    def _pip(self, *arguments: str, subject: str, kept: Sequence[int] = ()) -> None:
        _run([*self._program(), *arguments, "--quiet"], self._environment, subject, kept)


def _run(command: Sequence[str], environment: Mapping[str, str], subject: str, kept: Sequence[int]) -> None:
    said = _attempt(command, environment, kept)
    if said is not None:
        raise tool_error(subject, said)


def _attempt(command: Sequence[str], environment: Mapping[str, str], kept: Sequence[int]) -> str | None:
    """None where it went well, else what was said."""
    answer = subprocess.run(
        list(command),
        capture_output=True,
        text=True,
        errors="replace",
        cwd="/",
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        check=False,
        pass_fds=tuple(kept),
    )
    return None if answer.returncode == 0 else (answer.stderr or answer.stdout or f"exit {answer.returncode}")


def _locked(path: Path) -> LockedFile:
    from packaging.utils import parse_sdist_filename, parse_wheel_filename

    is_wheel = path.suffix == ".whl"
    name, version = parse_wheel_filename(path.name)[:2] if is_wheel else parse_sdist_filename(path.name)
    found = hash_file(path)
    return LockedFile(name, str(version), found.sha256, is_wheel, size_bytes=path.stat().st_size)


def _untie(folder: Path) -> None:
    """Lets the scripts start the Python beside them, wherever the environment will lie."""
    for path in folder.iterdir():
        if path.is_symlink() or not path.is_file():
            continue
        first, _, rest = path.read_bytes().partition(b"\n")
        if first.startswith(b"#!") and b"python" in first:
            path.write_bytes(_START + rest)
