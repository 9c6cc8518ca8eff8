"""Runs inside an image, under any Python from 2.7 on: this interpreter -> one line of JSON on the standard output.

The text of this file is handed to the interpreters of an image with `-c`, so it stands alone, and its syntax is that of
the oldest which it may meet: types are comments.
"""

import json
import os
import platform
import re
import sys

__all__ = ["MARK", "describe"]

# keeps our line apart from what an interpreter or an image prints on its own
MARK = "mlmodelscope-probe:"


def describe():
    # type: () -> dict[str, object]
    """This interpreter in plain values."""
    version, problem, blas = _numpy()
    return {
        "path": sys.executable,
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "numpy": version,
        "numpy_problem": problem,
        "packages": _packages(),
        "libraries": _libraries(blas),
    }


def _packages():
    # type: () -> dict[str, str]
    """The installed distributions by their normal name; the first on the path is the one that is imported."""
    found = {}  # type: dict[str, str]
    for name, version in _distributions():
        # a folder that is left over from an uninstalled package has neither
        if name and version:
            found.setdefault(re.sub("[-_.]+", "-", name).lower(), version)
    return found


def _distributions():
    # type: () -> list[tuple[str, str]]
    try:
        from importlib import metadata
    except ImportError:  # before 3.8: the names of their folders say the same
        names = [name for folder in sys.path if os.path.isdir(folder) for name in sorted(os.listdir(folder))]
        matches = [re.match(r"(.+?)-([^-]+)(-py[^-]+)?\.(dist|egg)-info$", name) for name in names]
        return [(match.group(1), match.group(2)) for match in matches if match]
    return [(item.metadata["Name"], item.version) for item in metadata.distributions()]


def _numpy():
    # type: () -> tuple[str | None, str | None, str | None]
    """Its version, why it cannot be imported, and its BLAS."""
    try:
        import numpy
    except Exception as error:  # a broken extension module may raise anything
        return None, _reason(error), None
    try:
        told = numpy.__config__.CONFIG["Build Dependencies"]["blas"]
        blas = " ".join(str(told[key]) for key in ("name", "version") if told.get(key))  # type: str | None
    except (AttributeError, KeyError, TypeError):
        blas = _mapped_blas()
    return numpy.__version__, None, blas


def _reason(error):
    # type: (BaseException) -> str
    """The first line of what went wrong first: numpy puts pages of advice round a library that is missing."""
    cause = error  # type: BaseException | None
    while cause is not None:
        error, cause = cause, getattr(cause, "__cause__", None)
    return "{}: {}".format(type(error).__name__, str(error).strip().split("\n")[0])


def _mapped_blas():
    # type: () -> str | None
    """Before numpy 1.25: the file name of the library that came into this process with it."""
    try:
        with open("/proc/self/maps") as file:
            names = [os.path.basename(line.split()[-1]) for line in file if ".so" in line]
    except OSError:
        return None
    return next((name for name in names if re.match("lib(openblas|mkl_|blis|.*blas|atlas)", name)), None)


def _libraries(blas):
    # type: (str | None) -> dict[str, str]
    found = {}
    try:
        found["glibc"] = str(os.confstr("CS_GNU_LIBC_VERSION")).split()[-1]
    except (AttributeError, OSError, ValueError):
        pass  # another C library
    if blas:
        found["blas"] = blas
    return found


if __name__ == "__main__":
    sys.stdout.write("\n" + MARK + json.dumps(describe()) + "\n")
