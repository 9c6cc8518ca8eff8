"""A lock of PEP 751, and an interpreter -> every package pinned to the one file that will be installed; pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mlmodelscope.core.errors import ConstraintError, UnsatisfiableError
from mlmodelscope.core.stack import PinnedPackage, Stack
from mlmodelscope.provision.environments.interpreters import Interpreter

__all__ = [
    "LockedFile",
    "check_requirements",
    "check_stack",
    "format_lock",
    "parse_lock",
    "stack_of",
    "tag_ranks",
]

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_PYTHON = re.compile(r"[0-9]+\.[0-9]+(?:\.[0-9]+)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class LockedFile:
    """One package and the file that was chosen for it. `url` is for this process alone: it is stored nowhere."""

    name: str
    version: str
    sha256: str | None
    is_wheel: bool
    size_bytes: int | None = None
    url: str | None = None

    @property
    def pinned(self) -> PinnedPackage:
        return PinnedPackage(name=self.name, version=self.version, sha256=self.sha256)


def check_requirements(requirements: Iterable[str]) -> None:
    """Raises ConstraintError unless each is a package's name and a range: options and addresses cannot be recorded.

    Nor may a text hold more than one line, or a variable: package tools put in the value of `${NAME}`.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    for text in requirements:
        if not text.isprintable() or "$" in text:
            shown = (text.split() or [""])[0]
            raise ConstraintError(
                f"{shown!r} is not the beginning of a requirement: it goes on with more than a range and a marker",
                requirement=shown,
            )
        try:
            parsed = Requirement(text)
        except InvalidRequirement as error:
            reason = str(error).splitlines()[0]
            raise ConstraintError(f"{text!r} is not a requirement: {reason}", requirement=text) from error
        if parsed.url is not None:
            raise ConstraintError(
                f"the requirement of {parsed.name} names an address",
                hint="name a package of an index and its version; add the index to pip's configuration",
                requirement=parsed.name,
            )


def check_stack(stack: Stack) -> None:
    """Raises ConstraintError unless it is written as our own are: a stranger's record ends in a file that uv reads."""
    from packaging.version import InvalidVersion, Version

    problems = [] if _PYTHON.fullmatch(stack.python) else [f"Python {stack.python!r}"]
    for package in stack.packages:
        try:
            Version(package.version)
            is_version = package.version == package.version.strip()
        except InvalidVersion:
            is_version = False
        is_digest = package.sha256 is None or _SHA256.fullmatch(package.sha256) is not None
        if not (_NAME.fullmatch(package.name) and is_version and is_digest):
            problems.append(f"the package {package.name!r} {package.version!r}")
    if problems:
        raise ConstraintError(
            f"the recorded software stack is not one: {problems[0]} cannot be installed", problems=problems
        )


def parse_lock(
    values: Mapping[str, Any], ranks: Mapping[str, int], recorded: Collection[str | None] = ()
) -> list[LockedFile]:
    """The lock file of PEP 751 as one file per package: the wheel whose tag ranks first, else the source.

    One whose SHA-256 is among the `recorded` goes before all others.
    """
    chosen = [_choose(package, ranks, recorded) for package in values.get("packages", [])]
    return sorted(chosen, key=lambda file: file.name)


def _choose(package: Mapping[str, Any], ranks: Mapping[str, int], recorded: Collection[str | None]) -> LockedFile:
    name, version = str(package["name"]), package.get("version")
    wheels = package.get("wheels", [])
    if version is None or not (wheels or package.get("sdist")):
        raise UnsatisfiableError(f"{name} is not a release of a package index", package=name)
    sources = [package["sdist"]] if package.get("sdist") else []
    known = [file for file in (*wheels, *sources) if _sha256(file) and _sha256(file) in recorded]
    best = min(known or wheels or sources, key=lambda file: _rank(_filename(file), ranks))
    return LockedFile(
        name=name,
        version=str(version),
        sha256=_sha256(best),
        is_wheel=best in wheels,
        size_bytes=best.get("size") or _local_size(best.get("url")),
        url=best.get("url"),
    )


def _sha256(file: Mapping[str, Any]) -> str | None:
    found = file.get("hashes", {}).get("sha256")
    return None if found is None else str(found)


def _filename(file: Mapping[str, Any]) -> str:
    place = str(file.get("name") or file.get("path") or unquote(urlsplit(str(file.get("url", ""))).path))
    return place.rpartition("/")[2]


def _rank(filename: str, ranks: Mapping[str, int]) -> tuple[int, str]:
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        tags = parse_wheel_filename(filename)[3]
    except InvalidWheelFilename:
        return (len(ranks), filename)
    return (min((ranks.get(str(tag), len(ranks)) for tag in tags), default=len(ranks)), filename)


def _local_size(url: str | None) -> int | None:
    parts = urlsplit(url or "")
    if parts.scheme != "file":
        return None
    try:
        return Path(unquote(parts.path)).stat().st_size
    except OSError:
        return None


def tag_ranks(interpreter: Interpreter) -> dict[str, int]:
    """The tags of wheels that fit the interpreter on this machine, the best first, as installers order them."""
    from packaging.tags import compatible_tags, cpython_tags, platform_tags

    version = tuple(int(part) for part in interpreter.version.split(".")[:2])
    short = f"cp{version[0]}{version[1]}"
    platforms = list(platform_tags())
    abis = [short + interpreter.flags]
    tags = [
        *(cpython_tags(version, abis, platforms) if interpreter.implementation == "CPython" else ()),
        *compatible_tags(version, short, platforms),
    ]
    return {str(tag): rank for rank, tag in reversed(list(enumerate(tags)))}


def stack_of(interpreter: Interpreter, files: Sequence[LockedFile]) -> Stack:
    return Stack(
        python=interpreter.version,
        implementation=interpreter.implementation,
        platform=interpreter.platform,
        packages=tuple(file.pinned for file in files),
    )


def format_lock(packages: Iterable[PinnedPackage]) -> str:
    """The packages as requirements with the only file that may be installed."""
    lines = [
        f"{package.name}=={package.version}" + (f" --hash=sha256:{package.sha256}" if package.sha256 else "")
        for package in packages
    ]
    return "\n".join(lines) + "\n"
