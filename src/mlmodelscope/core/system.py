"""Facts of a machine and of its noise while something was measured; None means unavailable, never a guess."""

from __future__ import annotations

from pydantic import Field

from mlmodelscope.core.value import Frozen

__all__ = ["Cache", "Noise", "SystemFacts"]


class Cache(Frozen):
    """One level of processor cache."""

    level: int
    type: str
    size_bytes: int
    instances: int | None = None


class SystemFacts(Frozen):
    """The machine a launch ran on. `architecture` uses container names (amd64, arm64, ppc64le)."""

    hostname_digest: str
    architecture: str
    cpu_model: str | None = None
    cpu_vendor: str | None = None
    cpu_features: tuple[str, ...] = ()
    sockets: int | None = None
    cores: int | None = None
    logical_cpus: int | None = None
    usable_cpus: int
    cpu_quota: float | None = None
    threads_per_core: int | None = None
    frequency_max_hz: int | None = None
    governor: str | None = None
    turbo: bool | None = None
    caches: tuple[Cache, ...] = ()
    numa_nodes: int | None = None
    memory_bytes: int
    memory_limit_bytes: int | None = None
    swap_bytes: int | None = None
    kernel: str
    operating_system: str
    libc: str | None = None
    virtualization: str | None = None
    accelerators: tuple[str, ...] = ()


class Noise(Frozen):
    """What disturbed one window of measurement. Counts and shares are of the window, not since boot."""

    duration_ns: int
    load_1m: float | None = None
    cpu_busy_share: float | None = Field(default=None, description="all processors, everybody's work, 0..1")
    steal_share: float | None = None
    own_cpu_share: float | None = Field(default=None, description="this process, in processors")
    pressure_cpu_share: float | None = None
    pressure_memory_share: float | None = None
    pressure_io_share: float | None = None
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    major_faults: int | None = None
    frequency_min_hz: int | None = None
    frequency_max_hz: int | None = None
