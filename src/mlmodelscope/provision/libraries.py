"""The system's Open MPI -> a folder of links under the names that CNTK was built against, and a variable that names it.

CNTK 2.7 asks for libmpi.so.12 and libmpi_cxx.so.1; Open MPI 4 calls its libraries .so.40, and CNTK runs with them as
long as it does not train on several machines. Links are made in a folder of ours; the system's are left alone.
"""

from __future__ import annotations

import platform
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from mlmodelscope.core.errors import EnvironmentMissingError
from mlmodelscope.provision.durable import storing

__all__ = ["library_variables", "openmpi_compat", "parse_ldconfig"]

_LINKS = {"libmpi.so.12": "libmpi.so.40", "libmpi_cxx.so.1": "libmpi_cxx.so.40"}
_LDCONFIG = ("/sbin/ldconfig", "/usr/sbin/ldconfig")
_SECONDS = 20
# how ldconfig marks the libraries of a processor; those of others may lie beside them
_MARKS = {"x86_64": "x86-64", "aarch64": "AArch64", "ppc64le": "64bit"}


def library_variables(framework: str, home: Path) -> dict[str, str]:
    """What the framework's process must be told to find its shared libraries; nothing for most."""
    return openmpi_compat(home / "libraries" / "openmpi") if framework == "cntk" else {}


def openmpi_compat(folder: Path) -> dict[str, str]:
    """Makes the links in `folder` unless they are there, each in one step, and answers with the variables to set.

    EnvironmentMissingError: Open MPI is not installed. StorageError: the folder cannot be written.
    """
    found = _system_libraries()
    missing = sorted(name for name in _LINKS.values() if name not in found)
    if missing:
        raise EnvironmentMissingError(
            f"CNTK needs Open MPI, and this system has no {' and no '.join(missing)}",
            hint="apt-get install libopenmpi3",
            missing=missing,
        )
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, wanted in _LINKS.items():
            _link(folder / name, found[wanted])
    return {"LD_LIBRARY_PATH": str(folder)}


def parse_ldconfig(text: str, machine: str) -> dict[str, str]:
    """Paths of shared libraries by name, from what `ldconfig -p` prints; those for `machine` where several are."""
    found: dict[str, str] = {}
    mark = _MARKS.get(machine, machine)
    for line in text.splitlines():
        described, arrow, path = line.strip().partition(" => ")
        name, _, kind = described.partition(" ")
        if arrow and (name not in found or mark in kind):
            found[name] = path
    return found


def _system_libraries() -> Mapping[str, str]:
    for program in _LDCONFIG:
        try:
            answer = subprocess.run(
                [program, "-p"], capture_output=True, stdin=subprocess.DEVNULL, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        return parse_ldconfig(answer.stdout.decode("utf-8", "replace"), platform.machine())
    return {}


def _link(link: Path, target: str) -> None:
    if link.is_symlink() and str(link.readlink()) == target:
        return
    fresh = link.with_name(f".{link.name}-{uuid.uuid4().hex}")
    fresh.symlink_to(target)
    try:
        fresh.replace(link)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
