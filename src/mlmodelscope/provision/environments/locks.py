"""A lock of PEP 751, and an interpreter -> every package pinned to the one file that will be installed; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mlmodelscope.core.errors import ConstraintError, UnsatisfiableError
from mlmodelscope.core.stack import PinnedPackage, Stack
from mlmodelscope.provision.environments.interpreters import Interpreter

__all__ = ["LockedFile", "check_requirements", "format_lock", "parse_lock", "stack_of", "tag_ranks"]


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
    """Raises ConstraintError unless each is a package's name and a range: options and addresses cannot be recorded."""
    from packaging.requirements import InvalidRequirement, Requirement

    for text in requirements:
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


def parse_lock(values: Mapping[str, Any], ranks: Mapping[str, int]) -> list[LockedFile]:
    """The lock file of PEP 751 as one file per package: the wheel whose tag ranks first, else the source."""
    chosen = [_choose(package, ranks) for package in values.get("packages", [])]
    return sorted(chosen, key=lambda file: file.name)


def _choose(package: Mapping[str, Any], ranks: Mapping[str, int]) -> LockedFile:
    name, version = str(package["name"]), package.get("version")
    wheels = package.get("wheels", [])
    if version is None or not (wheels or package.get("sdist")):
        raise UnsatisfiableError(f"{name} is not a release of a package index", package=name)
    best = min(wheels, key=lambda wheel: _rank(_filename(wheel), ranks)) if wheels else package["sdist"]
    return LockedFile(
        name=name,
        version=str(version),
        sha256=best.get("hashes", {}).get("sha256"),
        is_wheel=bool(wheels),
        size_bytes=best.get("size") or _local_size(best.get("url")),
        url=best.get("url"),
    )


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
