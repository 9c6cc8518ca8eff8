"""The process that started a container -> a label that says so, and from such a label whether that process still lives.

A process id alone names nobody: it is used again, counts in a namespace of its own, and an engine may serve several
machines. So the label holds all four, and a container of which anything but the process differs is not ours to judge.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["LABEL", "has_died", "owner_label"]

LABEL = "org.mlmodelscope.owner"
_START_FIELD = 19  # of what follows the name in /proc/PID/stat: field 22 of proc(5)


def owner_label(pid: int | None = None, proc: Path = Path("/proc")) -> str:
    """`BOOT/NAMESPACE/PID/START` of the process, by default this one."""
    number = os.getpid() if pid is None else pid
    return f"{_place(proc)}/{number}/{_started(number, proc)}"


def has_died(label: str, proc: Path = Path("/proc")) -> bool:
    """Whether the process of the label lived on this machine, in this namespace, and is gone."""
    place, _, process = label.rpartition("/")[0].rpartition("/")
    started = label.rpartition("/")[2]
    if place != _place(proc) or not process.isdecimal() or not started.isdecimal():
        return False
    return _started(int(process), proc) != started


def _place(proc: Path) -> str:
    boot = (proc / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
    namespace = (proc / "self" / "ns" / "pid").readlink().name
    return f"{boot}/{namespace}"


def _started(pid: int, proc: Path) -> str | None:
    """When it started, in ticks since boot; None where there is no such process."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    # a zombie has died: nobody is left who could remove what it started
    return None if fields[0] in ("Z", "X") else fields[_START_FIELD]
