"""The control groups of a process, version 1, 2 or both -> the processors and the memory it may use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["GroupLimits", "Mount", "parse_cgroups", "parse_mounts", "read_limits"]

# Version 1 says "no limit" with the largest page-aligned number of the kernel, just under 2**63.
_UNLIMITED_BYTES = 2**62


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """`cpu_quota` in processors, `memory_bytes`; None: no limit."""

    cpu_quota: float | None
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of /proc/self/mountinfo: which folder of which file system is seen where."""

    root: str
    point: str
    filesystem: str
    options: tuple[str, ...]


def parse_mounts(text: str) -> list[Mount]:
    mounts = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if not separator or len(left) < 5 or len(right) < 3:
            continue
        mounts.append(Mount(_unescape(left[3]), _unescape(left[4]), right[0], tuple(right[2].split(","))))
    return mounts


def parse_cgroups(text: str) -> dict[str, str]:
    """/proc/self/cgroup -> controller to path; the unified hierarchy of version 2 has the name ""."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon:
            paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def read_limits(read: Callable[[str], str | None]) -> GroupLimits:
    """The tightest limits of this process and of every group above it. `read` gives a file's text, None if absent."""
    mounts = parse_mounts(read("/proc/self/mountinfo") or "")
    paths = parse_cgroups(read("/proc/self/cgroup") or "")
    quotas: list[float | None] = []
    memory: list[int | None] = []
    for folder in _folders(mounts, paths, "cgroup2", ""):
        quotas.append(_quota(read(f"{folder}/cpu.max")))
        memory.append(_memory(read(f"{folder}/memory.max")))
    for folder in _folders(mounts, paths, "cgroup", "cpu"):
        quota, period = read(f"{folder}/cpu.cfs_quota_us"), read(f"{folder}/cpu.cfs_period_us")
        quotas.append(_quota(f"{quota} {period}"))
    version_1 = _folders(mounts, paths, "cgroup", "memory")
    memory.extend(_memory(read(f"{folder}/memory.limit_in_bytes")) for folder in version_1)
    return GroupLimits(
        min((quota for quota in quotas if quota is not None), default=None),
        min((limit for limit in memory if limit is not None), default=None),
    )


def _folders(mounts: list[Mount], paths: dict[str, str], filesystem: str, controller: str) -> Iterator[str]:
    """The group's folder and its parents up to the mount point."""
    for mount in mounts:
        if mount.filesystem != filesystem or controller not in paths:
            continue
        if controller and controller not in mount.options:
            continue
        inside = _below(paths[controller], mount.root)
        while inside:
            yield mount.point + inside
            inside = inside.rpartition("/")[0]
        yield mount.point
        return


def _below(path: str, root: str) -> str:
    """`path` as seen under a mount of `root`; "" where it lies outside, as in a container that shares its names."""
    if root == "/":
        return path.rstrip("/")
    if path == root or not path.startswith(root + "/"):
        return ""
    return path[len(root) :].rstrip("/")


def _quota(text: str | None) -> float | None:
    match = re.fullmatch(r"(\d+)\s+(\d+)\s*", text or "")
    if match is None or int(match[1]) == 0 or int(match[2]) == 0:
        return None
    return int(match[1]) / int(match[2])


def _memory(text: str | None) -> int | None:
    word = (text or "").strip()
    return int(word) if word.isdecimal() and int(word) < _UNLIMITED_BYTES else None


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
