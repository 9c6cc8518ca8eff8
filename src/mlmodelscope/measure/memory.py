"""Process ids -> the memory they hold now, and held at most, in bytes.

The peak is the kernel's VmHWM. `getrusage`'s ru_maxrss is not used: it survives exec, so a small worker would inherit
the peak of the large process that started it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["group_resident_bytes", "parse_status", "peak_resident_bytes", "resident_bytes"]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def parse_status(text: str) -> dict[str, int]:
    """The memory lines of /proc/PID/status in bytes (VmHWM, VmRSS, ...); a kernel thread's text has none."""
    return {match[1]: int(match[2]) * 1024 for match in re.finditer(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}


def peak_resident_bytes(pid: int | None = None) -> int | None:
    """The most resident memory the process (None: this one) has held since its program started; None: it is gone."""
    return _status(pid).get("VmHWM")


def resident_bytes(pid: int | None = None) -> int | None:
    """The resident memory of the process (None: this one) now; None: it is gone."""
    return _status(pid).get("VmRSS")


def group_resident_bytes(pgid: int) -> int:
    """The resident memory of all processes of a group, and of the session of the same number; 0 when all are gone.

    A worker that leads a session keeps its number while children of its own change their group, so both are asked.
    Pages shared between the members count once for each: the sum is an upper bound. Of other processes only the group
    is asked, which takes no file; cheap enough for a few calls a second.
    """
    total = 0
    with os.scandir("/proc") as entries:
        for entry in entries:
            if not entry.name.isdecimal():
                continue
            pid = int(entry.name)
            try:
                if pgid not in (os.getpgid(pid), os.getsid(pid)):
                    continue
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
            except (OSError, IndexError):  # it ended between two looks
                continue
    return total


def _status(pid: int | None) -> dict[str, int]:
    try:
        return parse_status(Path(f"/proc/{'self' if pid is None else pid}/status").read_text())
    except OSError:
        return {}
