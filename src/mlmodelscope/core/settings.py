"""The environment variables of this process -> the settings of the product: the one place that reads them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mlmodelscope.core.errors import UsageError

__all__ = ["child_environment", "home", "pip_variables", "worker_environment"]

# every BLAS and OpenMP that numpy, OpenCV or a framework may bring along
_THREAD_VARIABLES = (
    "BLIS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def home(environment: Mapping[str, str] | None = None) -> Path:
    """The one writable place: `MLMODELSCOPE_HOME`, else `~/.mlmodelscope`. Nothing is created here: writers do that."""
    chosen = (os.environ if environment is None else environment).get("MLMODELSCOPE_HOME", "").strip()
    try:
        return Path(chosen or "~/.mlmodelscope").expanduser().absolute()
    except RuntimeError:
        raise UsageError(
            "the home folder of this user is not known", hint="set MLMODELSCOPE_HOME to a folder that can be written"
        ) from None


def pip_variables() -> dict[str, str]:
    """pip's options given as `PIP_*` variables, by their option name: `PIP_INDEX_URL` -> `index-url`."""
    return {name[4:].lower().replace("_", "-"): value for name, value in os.environ.items() if name.startswith("PIP_")}


def child_environment(*folders: Path) -> dict[str, str]:
    """This process's environment for a child, with `folders` first on its PATH."""
    environment = dict(os.environ)
    paths = [str(folder) for folder in folders] + [environment.get("PATH", os.defpath)]
    return environment | {"PATH": os.pathsep.join(paths)}


def worker_environment(home: Path, threads: int, framework: Mapping[str, str]) -> dict[str, str]:
    """This process's environment for a worker: the same number of threads for every library, HOME in our own folder.

    `framework` are the variables that the framework needs before its process starts (its telemetry switch, say). HOME
    points away from the user's, because some frameworks write settings there.
    """
    own_home = home / "worker-home"
    own_home.mkdir(parents=True, exist_ok=True)
    package_root = str(Path(__file__).resolve().parents[2])
    paths = [package_root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        **dict.fromkeys(_THREAD_VARIABLES, str(threads)),
        **framework,
        "HOME": str(own_home),
        "MLMODELSCOPE_HOME": str(home),
        "PYTHONPATH": os.pathsep.join(paths),
    }
