"""Names of shared libraries -> nothing, or an error that says which the system lacks and which package brings it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from mlmodelscope.core.errors import EnvironmentMissingError

__all__ = ["check_libraries"]

# Debian's packages, by the beginning of the library's file name
_PACKAGES = {
    "libgl.so": "libgl1",
    "libglib-2.0": "libglib2.0-0",
    "libgomp": "libgomp1",
    "libmpi": "libopenmpi3",
    "libnvinfer": "libnvinfer10",
    "libopenblas": "libopenblas0",
    "libomp": "libomp5",
    "libopencl": "ocl-icd-libopencl1",
    "libvulkan": "libvulkan1",
}


def check_libraries(framework: str, libraries: Sequence[str]) -> None:
    """Raises EnvironmentMissingError unless the dynamic linker finds each (`libmpi.so.40`, or `mpi`)."""
    missing = [name for name in libraries if not _is_there(name)]
    if not missing:
        return
    packages = sorted({package for name in missing if (package := _package(name)) is not None})
    raise EnvironmentMissingError(
        f"{framework} needs {' and '.join(missing)}, which this system lacks",
        hint=f"on Debian: apt-get install {' '.join(packages)}" if packages else "install what brings them",
        libraries=missing,
        packages=packages,
    )


def _is_there(name: str) -> bool:
    from ctypes.util import find_library

    if ".so" not in name:
        return find_library(name) is not None
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _package(name: str) -> str | None:
    file = name.lower() if name.startswith("lib") else f"lib{name.lower()}"
    return next((package for start, package in _PACKAGES.items() if file.startswith(start)), None)
