"""What a container may have -> the options of its creation: no network, no rights, nothing to write but its mounts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlmodelscope.core.errors import EnvironmentMissingError
from mlmodelscope.provision.containers.abilities import Limit
from mlmodelscope.provision.containers.container import Mount

__all__ = ["Allowance", "cdi_describes_gpu", "host_options", "mounts_of", "variables_of"]

# memory for what a framework keeps in files; it counts towards the memory limit
_SCRATCH_BYTES = 512 * 1024**2
_LOG_BYTES = 4 * 1024**2
_CDI_GPU = "nvidia.com/gpu=all"


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one container may use. `cpus` is a set as the kernel writes it (`0-3,8`); None is no limit."""

    mounts: Sequence[Mount] = ()
    network: bool = False
    cpus: str | None = None
    memory_bytes: int | None = None
    pids: int | None = None
    gpus: bool = False

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Those that the engine must hold."""
        asked: Mapping[Limit, object] = {"cpuset": self.cpus, "memory": self.memory_bytes, "pids": self.pids}
        return tuple(limit for limit, value in asked.items() if value is not None)


def host_options(allowance: Allowance, *, is_podman: bool, has_selinux: bool) -> dict[str, Any]:
    """The options in the words of the Docker SDK's `create_host_config`."""
    options: dict[str, Any] = {
        "binds": mounts_of(allowance.mounts),
        "cap_drop": ["ALL"],
        # frameworks that compile kernels load them from there, so it may hold programs
        "tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={_SCRATCH_BYTES}"},  # noqa: S108 - the container's own
        "network_mode": "bridge" if allowance.network else "none",
        "read_only": True,
        # relabelling would change the user's own files
        "security_opt": ["no-new-privileges", *(["label=disable"] if has_selinux else [])],
        "shm_size": _SCRATCH_BYTES,
        "log_config": {"Type": "json-file", "Config": {"max-size": str(_LOG_BYTES)}},
    }
    if allowance.cpus is not None:
        options["cpuset_cpus"] = allowance.cpus
    if allowance.memory_bytes is not None:
        # both alike: no swap, whose use would show in latency instead of as an error
        options |= {"mem_limit": allowance.memory_bytes, "memswap_limit": allowance.memory_bytes}
    if allowance.pids is not None:
        options["pids_limit"] = allowance.pids
    if allowance.gpus:
        options |= _gpu_options(is_podman)
    return options


def _gpu_options(is_podman: bool) -> dict[str, Any]:
    """Podman takes the name of a device as the vendor's tool describes it, Docker a request for an ability."""
    if is_podman:
        return {"devices": [_CDI_GPU]}
    return {"device_requests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}


def mounts_of(mounts: Sequence[Mount]) -> list[str]:
    """`SOURCE:TARGET:ro`, the outermost first. EnvironmentMissingError: a source is not there, or a path has a colon,
    which no engine can take."""
    found = []
    for mount in sorted(mounts, key=lambda mount: len(mount.target.parts)):
        if ":" in f"{mount.source}{mount.target}":
            raise EnvironmentMissingError(
                f"a container cannot be shown {mount.source}: a colon is in the path",
                hint="move it, or set MLMODELSCOPE_HOME to a folder without colons in its path",
                path=str(mount.source),
            )
        # Docker would make a folder of that name, owned by root
        if not os.path.lexists(mount.source):
            raise EnvironmentMissingError(
                f"a container cannot be shown {mount.source}: it is not there", path=str(mount.source)
            )
        found.append(f"{mount.source}:{mount.target}:{'ro' if mount.is_read_only else 'rw'}")
    return found


def variables_of(variables: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in sorted(variables.items())]


def cdi_describes_gpu(folders: Sequence[Path] = (Path("/etc/cdi"), Path("/var/run/cdi"))) -> bool:
    """Whether the vendor's tool has described the GPU to engines on this machine."""
    return any("nvidia" in path.name for folder in folders if folder.is_dir() for path in folder.iterdir())
