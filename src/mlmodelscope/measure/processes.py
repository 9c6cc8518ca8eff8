"""A process id -> how many tasks live below it and the memory they hold, however they changed their group or session.

A process may leave its group and its session, but not its ancestors: an orphan goes to the nearest reaper, and whoever
was started in a process namespace of its own stays below the first process of that namespace.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Tree", "children_of", "read_tree"]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Tree:
    """A process and all below it at one moment. `tasks` counts threads; in `resident_bytes` a shared page counts for
    each process that holds it, so it is an upper bound."""

    pids: tuple[int, ...]
    tasks: int
    resident_bytes: int

    def held_bytes(self) -> int:
        """The memory they hold together, a shared page counted once; takes milliseconds per process."""
        return sum(_proportional(pid) for pid in self.pids)


def read_tree(pid: int, most_tasks: int | None = None) -> Tree:
    """The tree from `pid` down. With `most_tasks` the look ends once more than that are found: a crowd is not counted
    to its end."""
    tasks, resident = 0, 0
    waiting, found = [pid], []
    while waiting and (most_tasks is None or tasks <= most_tasks):
        parent = waiting.pop()
        threads = _threads(parent)
        found.append(parent)
        tasks += len(threads)
        resident += _resident(parent)
        waiting.extend(_children(parent, threads))
    return Tree(tuple(found), tasks, resident)


def children_of(pid: int) -> list[int]:
    return _children(pid, _threads(pid))


def _threads(pid: int) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(f"/proc/{pid}/task")]
    except OSError:  # it ended between two looks
        return []


def _children(pid: int, threads: list[str]) -> list[int]:
    """Each thread lists the children it started; a kernel built without these lists is asked for every parent."""
    found: list[int] = []
    for thread in threads:
        try:
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
        except FileNotFoundError:
            if not Path("/proc/thread-self/children").exists():
                return [child for child, parent in _parents() if parent == pid]
        except OSError:
            continue
    return found


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                # the name in brackets may hold anything, brackets too
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                yield int(entry.name), int(fields[1])
            except (OSError, IndexError):
                continue


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    """Of a shared page each process counts its part."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return _resident(pid)
    found = re.search(r"^Pss:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else _resident(pid)
