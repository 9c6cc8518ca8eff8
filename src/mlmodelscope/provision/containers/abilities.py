"""What an engine says of itself -> which limits it can hold, and with whose rights its containers run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Abilities", "Limit", "docker_abilities", "podman_abilities"]

Limit = Literal["cpuset", "memory", "pids"]
_DOCKERS_WORDS: Mapping[Limit, str] = {"cpuset": "CPUSet", "memory": "MemoryLimit", "pids": "PidsLimit"}


@dataclass(frozen=True, slots=True)
class Abilities:
    """`limits` are those that a container can be held to. Without root's rights (`is_rootless`) the engine's own user
    is root inside, and every other is somebody else."""

    limits: frozenset[Limit]
    is_rootless: bool
    has_selinux: bool


def docker_abilities(told: Mapping[str, Any]) -> Abilities:
    """From the answer to `/info`; an engine that is silent about a limit is older than the question, and has it."""
    options = [str(option) for option in told.get("SecurityOptions") or []]
    return Abilities(
        limits=frozenset(limit for limit, word in _DOCKERS_WORDS.items() if told.get(word, True)),
        is_rootless=any("name=rootless" in option for option in options),
        has_selinux=any("name=selinux" in option for option in options),
    )


def podman_abilities(host: Mapping[str, Any]) -> Abilities:
    """From Podman's own words about its host: in Docker's, it tells the limits of the machine instead of those that its
    user was given, and older ones do not even tell there that they have no root's rights.

    Without them, and with the first version of control groups, it takes every limit and holds none.
    """
    security = host.get("security") or {}
    is_rootless = bool(security.get("rootless"))
    given = () if is_rootless and host.get("cgroupVersion") == "v1" else host.get("cgroupControllers") or ()
    return Abilities(
        limits=frozenset(limit for limit in _DOCKERS_WORDS if limit in given),
        is_rootless=is_rootless,
        has_selinux=bool(security.get("selinuxEnabled")),
    )
