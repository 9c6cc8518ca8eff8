"""The environment variables of this process -> the settings of the product: the one place that reads them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mlmodelscope.core.errors import UsageError
from mlmodelscope.core.variables import recorded_variables

__all__ = [
    "child_environment",
    "container_engines",
    "framework_variables",
    "home",
    "mirrors",
    "pip_variables",
    "private_folders",
    "sandbox_environment",
    "worker_environment",
]

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


def mirrors() -> list[str]:
    """`MLMODELSCOPE_MIRRORS`: folders and web addresses that hold assets by digest, with commas between them."""
    return [place.strip() for place in os.environ.get("MLMODELSCOPE_MIRRORS", "").split(",") if place.strip()]


def container_engines() -> list[str]:
    """Where a Docker-compatible engine may answer, in the order to try.

    An address in `DOCKER_HOST` or `CONTAINER_HOST` is the user's choice: then no other place is looked at.
    """
    chosen = [os.environ.get(name, "").strip() for name in ("DOCKER_HOST", "CONTAINER_HOST")]
    if any(chosen):
        return list(dict.fromkeys(filter(None, chosen)))
    sockets = ["/var/run/docker.sock", "/run/podman/podman.sock"]
    runtime = os.environ.get("XDG_RUNTIME_DIR", "").strip() or f"/run/user/{os.getuid()}"
    sockets += [f"{runtime}/docker.sock", f"{runtime}/podman/podman.sock"]
    return [f"unix://{path}" for path in sockets]


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
    return {
        **os.environ,
        **dict.fromkeys(_THREAD_VARIABLES, str(threads)),
        **framework,
        "HOME": str(own_home),
        "MLMODELSCOPE_HOME": str(home),
        "PYTHONPATH": _python_path(),
    }


def framework_variables(threads: int, framework: Mapping[str, str]) -> dict[str, str]:
    """What a framework's process is started with wherever it runs: its threads, and what it must know before it starts.

    In a container nothing else of this process's environment counts.
    """
    return {**dict.fromkeys(_THREAD_VARIABLES, str(threads)), **framework}


def sandbox_environment(threads: int, framework: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """The whole environment of a worker in the sandbox: what a record may keep, and nothing else of this process's.

    LD_PRELOAD names a file that is not there. PATH names the system's folders, because no others are.
    """
    kept = {name: value for name, value in recorded_variables(os.environ).items() if name != "LD_PRELOAD"}
    return {
        **kept,
        **dict.fromkeys(_THREAD_VARIABLES, str(threads)),
        **framework,
        "HOME": str(scratch),
        "LOGNAME": "nobody",
        "PATH": os.defpath,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": _python_path(),
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
        "USER": "nobody",
    }


def private_folders(home: Path) -> list[Path]:
    """Folders that untrusted code must never see as a whole: the user's, and `home`, which holds the history."""
    try:
        return [Path("~").expanduser(), home]
    except RuntimeError:  # a user without a folder has nothing there to hide
        return [home]


def _python_path() -> str:
    package_root = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join([package_root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
