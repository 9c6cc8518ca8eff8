"""Versions of Python that will do -> an interpreter installed on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlmodelscope.core import settings
from mlmodelscope.core.errors import EnvironmentMissingError, StorageError
from mlmodelscope.provision.durable import read_json, write_json

__all__ = ["Interpreter", "Interpreters"]

_PROBE = """
import json, sys, sysconfig, platform
try:
    import ensurepip, venv
    has_pip = True
except ImportError:
    has_pip = False
print(json.dumps({
    "version": ".".join(str(part) for part in sys.version_info[:3]),
    "implementation": platform.python_implementation(),
    "platform": sysconfig.get_platform(),
    "flags": getattr(sys, "abiflags", ""),
    "has_pip": has_pip,
}))
"""
_PROBE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Interpreter:
    """`version` to the patch (`3.11.7`); `flags` of its binary interface (`m`); `has_pip`: it can make environments."""

    path: str
    version: str
    implementation: str
    platform: str
    flags: str
    has_pip: bool

    @property
    def minor(self) -> str:
        return _minor(self.version)

    def is_version(self, wanted: str) -> bool:
        """Whether `wanted` (`3.11`, or `3.11.7`) names this version."""
        return f"{self.version}.".startswith(f"{wanted}.")


class Interpreters:
    """Finds interpreters where they are usually installed. Each is asked what it is; `cache` keeps what lasts."""

    def __init__(
        self, cache: Path, environment: Mapping[str, str] | None = None, system: Sequence[Path] | None = None
    ) -> None:
        """`system` are the folders besides those that the environment's variables name; tests give their own."""
        self._cache = cache
        self._environment = settings.child_environment() if environment is None else environment
        self._system = list(_system_folders()) if system is None else system

    def find(self, versions: Sequence[str]) -> Interpreter:
        """The first found of the first version that has one. EnvironmentMissingError where there is none."""
        for version in versions:
            for found in self._known(self._candidates(version)):
                if found.is_version(version):
                    return found
        first = versions[0]
        raise EnvironmentMissingError(
            f"no Python {' or '.join(versions)} was found on this machine",
            hint=f"install one: pyenv install {first}, or uv python install {first}, or the package python{first}",
            python=list(versions),
        )

    def _candidates(self, version: str) -> list[Path]:
        name = f"python{_minor(version)}"
        # this interpreter's own folder first: which one is found must not depend on how the PATH is set today
        folders = [*self._system[:1], *_named_folders(self._environment), *self._system[1:]]
        # an environment's python is a link to its base, and only that can be the root of another environment
        found = ((folder / name).resolve() for folder in folders if os.access(folder / name, os.X_OK))
        return list(dict.fromkeys(found))

    def _known(self, paths: list[Path]) -> list[Interpreter]:
        answers = read_json(self._cache) or {}
        keys = [f"{path} {path.stat().st_mtime_ns}" for path in paths]
        missing = [(key, path) for key, path in zip(keys, paths, strict=True) if not _lasts(answers.get(key))]
        if missing:
            with ThreadPoolExecutor(max_workers=4) as pool:
                asked = pool.map(lambda pair: _ask(pair[1]), missing)
                answers |= dict(zip([key for key, _ in missing], asked, strict=True))
            # where nothing can be written they are asked again next time
            with suppress(StorageError):
                write_json(self._cache, {key: answer for key, answer in answers.items() if _lasts(answer)})
        found = (_interpreter(path, answers[key]) for key, path in zip(keys, paths, strict=True))
        return [interpreter for interpreter in found if interpreter is not None]


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _ask(path: Path) -> Any:
    try:
        answer = subprocess.run(
            [str(path), "-I", "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return json.loads(answer.stdout) if answer.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def _lasts(answer: Any) -> bool:
    """Whether the answer is true as long as the program is the same: pip may be installed beside it any time, and one
    that did not answer may only have been slow."""
    found = _interpreter(Path(), answer)
    return found is not None and found.has_pip


def _interpreter(path: Path, answer: Any) -> Interpreter | None:
    try:
        return Interpreter(path=str(path), **answer)
    except TypeError:  # one that does not start, or an answer of another release of ours
        return None


def _named_folders(environment: Mapping[str, str]) -> Iterator[Path]:
    """Folders with interpreters that the environment's variables lead to."""
    path = [Path(text) for text in environment.get("PATH", "").split(os.pathsep) if text]
    roots = [folder.parent for folder in path if folder.name == "shims"]
    home = environment.get("HOME")
    data = [Path(home, ".local", "share")] if home else []
    for name, into in (("PYENV_ROOT", roots), ("XDG_DATA_HOME", data)):
        if environment.get(name):
            into.insert(0, Path(environment[name]))
    if home:
        roots.append(Path(home, ".pyenv"))
    managed = [folder / "uv" / "python" for folder in data]
    if environment.get("UV_PYTHON_INSTALL_DIR"):
        managed.insert(0, Path(environment["UV_PYTHON_INSTALL_DIR"]))
    # a shim starts a shell to find out which version it stands for; the versions themselves lie beside it
    yield from (folder for folder in path if folder.name != "shims")
    for root in roots:
        yield from _newest_first((root / "versions").glob("*/bin"))
    for folder in managed:
        yield from _newest_first(folder.glob("*/bin"))


def _system_folders() -> Iterator[Path]:
    """Where this interpreter lies, what lies beside it (another HOME must still find pyenv's), and the usual places."""
    base = Path(sys.base_prefix)
    yield base / "bin"
    yield from _newest_first(base.parent.glob("*/bin"))
    yield Path("/usr/local/bin")
    yield Path("/usr/bin")
    for pattern in ("*/bin", "python/*/bin"):
        yield from _newest_first(Path("/opt").glob(pattern))


def _newest_first(folders: Iterator[Path]) -> list[Path]:
    def version(folder: Path) -> list[int]:
        return [int(part) for part in "".join(c if c.isdigit() else " " for c in folder.parent.name).split()]

    return sorted(folders, key=version, reverse=True)
