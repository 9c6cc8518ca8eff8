"""The files in which Linux describes a machine -> SystemFacts; what is not written there is None, never a guess."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mlmodelscope.core.errors import HostError
from mlmodelscope.core.system import Cache, SystemFacts
from mlmodelscope.measure.cgroup import parse_cgroups, parse_mounts, read_limits
from mlmodelscope.measure.processor import (
    Processor,
    container_architecture,
    parse_cpu_list,
    parse_cpuinfo,
    parse_size,
)

__all__ = [
    "Host",
    "container_name",
    "file_reader",
    "hypervisor_name",
    "parse_meminfo",
    "parse_os_release",
    "read_host",
    "read_system",
    "usable_cpus",
]

Read = Callable[[str], str | None]

_CPU = "/sys/devices/system/cpu"
# The number the kernel gives to the first process namespace: whoever sees it is not in a container's own.
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
_LAYERED_FILESYSTEMS = frozenset({"overlay", "fuse-overlayfs", "fuse.fuse-overlayfs", "aufs"})
_HYPERVISORS = (
    ("vmware", "vmware"),
    ("virtualbox", "virtualbox"),
    ("innotek", "virtualbox"),
    ("parallels", "parallels"),
    ("bhyve", "bhyve"),
    ("xen", "xen"),
    ("microsoft corporation virtual machine", "hyperv"),
    ("google compute engine", "kvm"),
    ("amazon ec2", "nitro"),
    ("qemu", "kvm"),
    ("kvm", "kvm"),
    ("linux,dummy-virt", "kvm"),  # the board of virtual ARM machines that have no firmware
)


@dataclass(frozen=True, slots=True)
class Host:
    """What a process learns from calls rather than from files: its kernel, its C library, its processors."""

    name: str
    kernel: str
    machine: str
    libc: str | None
    allowed_cpus: int


def read_host() -> Host:
    uname = os.uname()
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except (OSError, ValueError):  # musl and others do not know the question
        libc = None
    return Host(uname.nodename, uname.release, uname.machine, libc or None, len(os.sched_getaffinity(0)))


def usable_cpus(root: Path = Path("/")) -> int:
    """Processors this process may keep busy: its affinity, cut by its groups' quota (1.5 counts as 2)."""
    return _usable(len(os.sched_getaffinity(0)), read_limits(file_reader(root)).cpu_quota)


def read_system(root: Path = Path("/"), host: Host | None = None) -> SystemFacts:
    """The facts of the machine whose files are under `root`; a few milliseconds, no process started."""
    read = file_reader(root)
    host = read_host() if host is None else host
    processor = parse_cpuinfo(read("/proc/cpuinfo") or "")
    online = parse_cpu_list(read(f"{_CPU}/online") or "")
    memory = parse_meminfo(read("/proc/meminfo") or "")
    if "MemTotal" not in memory:
        raise HostError(
            "the size of this machine's memory cannot be read", hint="/proc/meminfo must be readable", root=str(root)
        )
    limits = read_limits(read)
    sockets, cores, threads = _topology(read, online)
    frequency, governor = _frequency(read, root)
    nodes = parse_cpu_list(read("/sys/devices/system/node/online") or "")
    machine_id = (read("/etc/machine-id") or "").strip()
    return SystemFacts(
        hostname_digest=hashlib.sha256(f"{host.name}\n{machine_id}".encode()).hexdigest()[:16],
        architecture=container_architecture(host.machine),
        cpu_model=processor.model,
        cpu_vendor=processor.vendor,
        cpu_features=processor.features,
        sockets=sockets,
        cores=cores,
        logical_cpus=len(online) if online else processor.logical_cpus,
        usable_cpus=_usable(host.allowed_cpus, limits.cpu_quota),
        cpu_quota=limits.cpu_quota,
        threads_per_core=threads,
        frequency_max_hz=frequency,
        governor=governor,
        turbo=_turbo(read),
        caches=_caches(read, online),
        numa_nodes=len(nodes) if nodes else None,
        memory_bytes=memory["MemTotal"],
        memory_limit_bytes=limits.memory_bytes,
        swap_bytes=memory.get("SwapTotal"),
        kernel=host.kernel,
        operating_system=_operating_system(read),
        libc=host.libc or _musl(root),
        virtualization=_virtualization(read, root, processor),
        accelerators=_accelerators(read, root),
    )


def file_reader(root: Path) -> Read:
    """A function from an absolute path to the text of that file under `root`, None where it cannot be read."""
    prefix = str(root).rstrip("/")

    def read(path: str) -> str | None:
        try:
            # thousands of small files on a large machine: the plain calls cost a quarter of Path.read_text
            descriptor = os.open(prefix + path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            parts = []
            while part := os.read(descriptor, 65536):
                parts.append(part)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return b"".join(parts).decode(errors="replace")

    return read


def parse_meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo in bytes. Lines without a unit are counts of pages and are left out."""
    return {match[1]: int(match[2]) * 1024 for match in re.finditer(r"^(\S+):\s+(\d+) kB$", text, re.MULTILINE)}


def parse_os_release(text: str) -> dict[str, str]:
    values = {}
    for line in text.splitlines():
        name, sign, value = line.strip().partition("=")
        if sign and not name.startswith("#"):
            values[name] = re.sub(r"\\(.)", r"\1", value.strip("\"'"))
    return values


def hypervisor_name(identity: str, clock_sources: str) -> str | None:
    """The hypervisor that the firmware's vendor and product, or else the offered clocks, give away."""
    words = identity.lower()
    if words.endswith(".metal"):  # the clouds' bare machines carry the vendor of their virtual ones
        return None
    for mark, name in _HYPERVISORS:
        if mark in words:
            return name
    if "kvm-clock" in clock_sources.split():
        return "kvm"
    if "hyperv_clocksource" in clock_sources:
        return "hyperv"
    return "xen" if "xen" in clock_sources.split() else None


def container_name(
    *, markers: frozenset[str], group_paths: str, declared: str, root_filesystem: str, pid_namespace: str
) -> str | None:
    """The container engine that runs us, None outside.

    A marker alone proves nothing: a machine image made from a container's files has its `/.dockerenv` too. So either
    a layered root file system or a process namespace of our own must agree; both together are a container of any name.
    """
    is_layered = root_filesystem in _LAYERED_FILESYSTEMS
    is_apart = pid_namespace not in ("", _FIRST_PID_NAMESPACE)
    if not (is_layered or is_apart):
        return None
    if "/.containerenv" in markers or "libpod" in group_paths:
        return "podman"
    if "kubepods" in group_paths:
        return "kubernetes"
    if "/.dockerenv" in markers or "/docker" in group_paths:
        return "docker"
    if declared:
        return declared
    return "container" if is_layered and is_apart else None


def _usable(allowed: int, quota: float | None) -> int:
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _sharing(read: Read, online: frozenset[int] | None, file: str) -> dict[int, frozenset[int]]:
    """The sets of processors that share something, by their first. Those of a set name each other: one is asked."""
    sets: dict[int, frozenset[int]] = {}
    seen: set[int] = set()
    for cpu in sorted(online or ()):
        if cpu not in seen and (sharing := parse_cpu_list(read(f"{_CPU}/cpu{cpu}/{file}") or "")):
            sets[cpu] = sharing
            seen |= sharing
    return sets


def _topology(read: Read, online: frozenset[int] | None) -> tuple[int | None, int | None, int | None]:
    """Sockets, cores and the most threads of a core."""
    cores = _sharing(read, online, "topology/thread_siblings_list")
    packages = _sharing(read, online, "topology/core_siblings_list")
    identities = [(read(f"{_CPU}/cpu{first}/topology/physical_package_id") or "-1").strip() for first in packages]
    # -1 is the kernel's "the firmware did not tell"
    sockets = None if "-1" in identities else len(identities) or None
    return sockets, len(cores) or None, max(map(len, cores.values()), default=None)


def _caches(read: Read, online: frozenset[int] | None) -> tuple[Cache, ...]:
    """The index numbers mean one level and type on all processors of a machine; sizes may differ between cores."""
    instances: Counter[tuple[int, str, int]] = Counter()
    for index in itertools.count() if online else ():
        first = f"{_CPU}/cpu{min(online or ())}/cache/index{index}"
        level, kind = (read(f"{first}/level") or "").strip(), (read(f"{first}/type") or "").strip().lower()
        if not level.isdecimal() or not kind:
            break
        for cpu in _sharing(read, online, f"cache/index{index}/shared_cpu_list"):
            size = parse_size(read(f"{_CPU}/cpu{cpu}/cache/index{index}/size") or "")
            if size is not None:
                instances[int(level), kind, size] += 1
    return tuple(
        Cache(level=level, type=kind, size_bytes=size, instances=count)
        for (level, kind, size), count in sorted(instances.items())
    )


def _frequency(read: Read, root: Path) -> tuple[int | None, str | None]:
    """The highest frequency of any processor and the governors in use, from the policies of cpufreq."""
    frequencies, governors = [], set()
    for name in _names(root, f"{_CPU}/cpufreq"):
        if not name.startswith("policy"):
            continue
        highest = (read(f"{_CPU}/cpufreq/{name}/cpuinfo_max_freq") or "").strip()
        if highest.isdecimal():
            frequencies.append(int(highest) * 1000)
        if governor := (read(f"{_CPU}/cpufreq/{name}/scaling_governor") or "").strip():
            governors.add(governor)
    return max(frequencies, default=None), ",".join(sorted(governors)) or None


def _turbo(read: Read) -> bool | None:
    if (off := (read(f"{_CPU}/intel_pstate/no_turbo") or "").strip()) in ("0", "1"):
        return off == "0"
    if (on := (read(f"{_CPU}/cpufreq/boost") or "").strip()) in ("0", "1"):
        return on == "1"
    return None


def _operating_system(read: Read) -> str:
    values = parse_os_release(read("/etc/os-release") or read("/usr/lib/os-release") or "")
    return values.get("PRETTY_NAME") or values.get("NAME") or "Linux"


def _musl(root: Path) -> str | None:
    return "musl" if any(name.startswith("ld-musl-") for name in _names(root, "/lib")) else None


def _virtualization(read: Read, root: Path, processor: Processor) -> str | None:
    """`none` (bare metal), `vm` or the hypervisor's name, then `/` and the container engine if there is one."""
    firmware = "/sys/class/dmi/id"
    identity = " ".join((read(f"{firmware}/{name}") or "").strip() for name in ("sys_vendor", "product_name"))
    clocks = read("/sys/devices/system/clocksource/clocksource0/available_clocksource") or ""
    if processor.is_virtual is False:
        machine: str | None = "none"
    elif processor.is_virtual:
        machine = processor.hypervisor or hypervisor_name(identity, clocks) or "vm"
    else:
        tree = "/sys/firmware/devicetree/base"  # where there is no firmware with a vendor and a product
        boards = " ".join(read(f"{tree}/{name}") or "" for name in ("compatible", "hypervisor/compatible"))
        machine = hypervisor_name(identity, clocks) or hypervisor_name(boards, "")
    mounts = [mount for mount in parse_mounts(read("/proc/self/mountinfo") or "") if mount.point == "/"]
    prefix = str(root).rstrip("/")
    markers = ("/.dockerenv", "/run/.containerenv")
    container = container_name(
        markers=frozenset("/" + Path(mark).name for mark in markers if os.path.lexists(prefix + mark)),
        group_paths=" ".join(parse_cgroups(read("/proc/self/cgroup") or "").values()),
        declared=(read("/run/systemd/container") or "").strip() or _declared(read("/proc/1/environ") or ""),
        root_filesystem=mounts[-1].filesystem if mounts else "",
        pid_namespace=_link(f"{prefix}/proc/self/ns/pid"),
    )
    return "/".join(part for part in (machine, container) if part) or None


def _declared(environment: str) -> str:
    """What the first process was told of its container; only the superuser may look."""
    entries = (entry.partition("=") for entry in environment.split("\0"))
    return next((value for name, _, value in entries if name == "container"), "")


def _accelerators(read: Read, root: Path) -> tuple[str, ...]:
    found = []
    for name in _names(root, "/proc/driver/nvidia/gpus"):
        information = read(f"/proc/driver/nvidia/gpus/{name}/information") or ""
        model = re.search(r"^Model:\s*(\S.*?)\s*$", information, re.MULTILINE)
        found.append(f"NVIDIA {model[1].removeprefix('NVIDIA ')}" if model else "NVIDIA")
    if not found:
        found = ["NVIDIA" for name in _names(root, "/dev") if re.fullmatch(r"nvidia\d+", name)]
    return tuple(found)


def _names(root: Path, folder: str) -> list[str]:
    try:
        return sorted(entry.name for entry in Path(str(root).rstrip("/") + folder).iterdir())
    except OSError:
        return []


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
