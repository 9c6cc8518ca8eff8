"""The user's package indexes -> the environment of uv, and one digest that changes whenever they do.

pip's configuration counts, with uv's own variables over it. Addresses travel in the environment and never on a command
line, where every user of the machine could read the passwords in them.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from mlmodelscope.core.value import digest_of
from mlmodelscope.provision.pip_settings import PipSettings

__all__ = ["configuration_digest", "tool_environment", "uv_environment"]

# variables that change which packages are chosen; the others (caches, time limits) do not change a stack
_COUNTING = frozenset(
    {"PIP_CONFIG_FILE", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_NO_INDEX"}
    | {"UV_BUILD_CONSTRAINT", "UV_CONFIG_FILE", "UV_CONSTRAINT", "UV_DEFAULT_INDEX", "UV_EXCLUDE", "UV_EXCLUDE_NEWER"}
    | {"UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_INDEX", "UV_INDEX_STRATEGY", "UV_INDEX_URL", "UV_NO_BINARY"}
    | {"UV_NO_BUILD", "UV_NO_CONFIG", "UV_OVERRIDE", "UV_PRERELEASE", "UV_RESOLUTION", "UV_TORCH_BACKEND"}
)
# they would point a tool at another interpreter, environment or project than the one we name
_MISLEADING = (
    *("CONDA_PREFIX", "PIP_PREFIX", "PIP_TARGET", "PIP_USER", "PYTHONHOME", "PYTHONPATH", "UV_MANAGED_PYTHON"),
    *(
        "UV_COMPILE_BYTECODE",
        "UV_PROJECT",
        "UV_PROJECT_ENVIRONMENT",
        "UV_PYTHON",
        "UV_SYSTEM_PYTHON",
        "UV_WORKING_DIR",
        "VIRTUAL_ENV",
    ),
)


def configuration_digest(environment: Mapping[str, str]) -> str:
    """Of everything that decides where packages come from, without starting pip or uv."""
    variables = {name: environment[name] for name in sorted(_COUNTING & set(environment))}
    files = {str(path): _digest(path) for path in _files(environment)}
    return digest_of([variables, {path: digest for path, digest in files.items() if digest}])


def _files(environment: Mapping[str, str]) -> Iterator[Path]:
    home = environment.get("HOME", "")
    user = Path(environment.get("XDG_CONFIG_HOME") or Path(home, ".config"))
    for folder in (environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep):
        yield Path(folder, "pip", "pip.conf")
        yield Path(folder, "uv", "uv.toml")
    yield from (Path("/etc/pip.conf"), Path("/etc/uv/uv.toml"), Path(sys.prefix, "pip.conf"))
    yield from (Path(home, ".pip", "pip.conf"), user / "pip" / "pip.conf", user / "uv" / "uv.toml")
    for name in ("PIP_CONFIG_FILE", "UV_CONFIG_FILE"):
        if environment.get(name):
            yield Path(environment[name])


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def tool_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """For any package tool: without what would point it elsewhere."""
    return {name: value for name, value in environment.items() if name not in _MISLEADING}


def uv_environment(environment: Mapping[str, str], configured: PipSettings, cache: Path) -> dict[str, str]:
    """What uv must know: pip's indexes, certificates and proxy where the user told uv nothing else."""
    result = tool_environment(environment) | {"NO_COLOR": "1", "UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never"}
    main = configured.indexes[0] if configured.indexes else None
    extra = [index for index in configured.indexes[1:] if index]
    defaults = {
        "UV_CACHE_DIR": str(cache),
        "UV_LINK_MODE": "hardlink",
        # pip takes the best version of all its indexes
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_HTTP_TIMEOUT": str(int(configured.timeout_seconds)),
        "SSL_CERT_FILE": configured.cert,
        "SSL_CLIENT_CERT": configured.client_cert,
        "ALL_PROXY": configured.proxy,
        "UV_DEFAULT_INDEX": None if "UV_INDEX_URL" in result else main,
        "UV_INDEX": None if "UV_EXTRA_INDEX_URL" in result else " ".join(extra),
    }
    for name, value in defaults.items():
        if value and not result.get(name):
            result[name] = value
    links = [*filter(None, result.get("UV_FIND_LINKS", "").split(",")), *configured.find_links]
    if links:
        result["UV_FIND_LINKS"] = ",".join(dict.fromkeys(links))
    return result
