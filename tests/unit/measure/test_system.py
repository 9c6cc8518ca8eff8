import os
from dataclasses import replace
from pathlib import Path

import pytest

from mlmodelscope.core.errors import HostError
from mlmodelscope.core.system import Cache
from mlmodelscope.measure.system import (
    Host,
    container_name,
    file_reader,
    hypervisor_name,
    parse_meminfo,
    parse_os_release,
    read_host,
    read_system,
    usable_cpus,
)

TEXTS = Path(__file__).parent / "cpuinfo"
HOST = Host("node1", "6.1.0-18-amd64", "x86_64", "glibc 2.36", 4)
CPU = "sys/devices/system/cpu"
FIRST = "pid:[4026531836]"
OWN = "pid:[4026532201]"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def cache_files(cpu: int, index: int, level: int, kind: str, size: str, shared: str) -> dict[str, str]:
    folder = f"{CPU}/cpu{cpu}/cache/index{index}"
    values = {"level": str(level), "type": kind, "size": size, "shared_cpu_list": shared}
    return {f"{folder}/{name}": f"{value}\n" for name, value in values.items()}


@pytest.fixture
def bare(tmp_path):
    """A machine that says the least: its memory."""
    return write(tmp_path, {"proc/meminfo": "MemTotal:       1024 kB\n"})


@pytest.fixture
def server(bare):
    """Two sockets, two cores each, two threads a core."""
    files = {
        "proc/cpuinfo": (TEXTS / "intel.txt").read_text(),
        "proc/meminfo": "MemTotal:       16384 kB\nSwapTotal:       2048 kB\nHugePages_Total:       3\n",
        f"{CPU}/online": "0-7\n",
        f"{CPU}/intel_pstate/no_turbo": "1\n",
        "sys/devices/system/node/online": "0-1\n",
        "etc/os-release": 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
        "etc/machine-id": "3d12\n",
    }
    for cpu in range(8):
        siblings = f"{cpu % 4},{cpu % 4 + 4}"
        package = cpu % 4 // 2
        files[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"] = f"{siblings}\n"
        neighbours = "0-1,4-5" if package == 0 else "2-3,6-7"
        files[f"{CPU}/cpu{cpu}/topology/core_siblings_list"] = f"{neighbours}\n"
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = f"{package}\n"
        files |= cache_files(cpu, 0, 1, "Data", "32K", siblings)
        files |= cache_files(cpu, 1, 3, "Unified", "16M", neighbours)
    for policy, governor in ((0, "performance"), (1, "powersave")):
        files[f"{CPU}/cpufreq/policy{policy}/cpuinfo_max_freq"] = f"{3100000 + policy}\n"
        files[f"{CPU}/cpufreq/policy{policy}/scaling_governor"] = f"{governor}\n"
    return write(bare, files)


def test_a_server(server):
    facts = read_system(server, HOST)
    assert (facts.sockets, facts.cores, facts.threads_per_core, facts.logical_cpus) == (2, 4, 2, 8)
    assert facts.caches == (
        Cache(level=1, type="data", size_bytes=32768, instances=4),
        Cache(level=3, type="unified", size_bytes=16 * 1024**2, instances=2),
    )
    assert (facts.frequency_max_hz, facts.governor, facts.turbo) == (3_100_001_000, "performance,powersave", False)
    assert (facts.memory_bytes, facts.swap_bytes, facts.numa_nodes) == (16384 * 1024, 2048 * 1024, 2)
    assert (facts.architecture, facts.kernel, facts.libc) == ("amd64", "6.1.0-18-amd64", "glibc 2.36")
    assert facts.operating_system == "Debian GNU/Linux 12 (bookworm)"
    assert facts.virtualization == "none"
    assert facts.usable_cpus == 4


def test_what_is_not_written_is_unknown(bare):
    facts = read_system(bare, replace(HOST, libc=None))
    known = {name for name, value in facts.model_dump().items() if value not in (None, ())}
    assert known == {"hostname_digest", "architecture", "usable_cpus", "memory_bytes", "kernel", "operating_system"}


def test_a_machine_without_a_memory_size_is_an_error(tmp_path):
    with pytest.raises(HostError, match="memory"):
        read_system(tmp_path, HOST)


def test_without_sysfs_the_processors_are_counted_in_cpuinfo(bare):
    write(bare, {"proc/cpuinfo": (TEXTS / "arm.txt").read_text()})
    facts = read_system(bare, replace(HOST, machine="aarch64"))
    assert (facts.architecture, facts.cpu_model, facts.logical_cpus) == ("arm64", "ARM Neoverse-N1", 2)
    assert (facts.sockets, facts.cores, facts.virtualization) == (None, None, None)


def test_firmware_that_does_not_tell_packages(server):
    write(server, {f"{CPU}/cpu0/topology/physical_package_id": "-1\n"})
    facts = read_system(server, HOST)
    assert (facts.sockets, facts.cores) == (None, 4)


def test_cores_of_two_sizes_have_caches_of_two_sizes(server):
    for cpu in (3, 7):
        write(server, cache_files(cpu, 0, 1, "Data", "48K", "3,7"))
    sizes = [(cache.size_bytes, cache.instances) for cache in read_system(server, HOST).caches if cache.level == 1]
    assert sizes == [(32 * 1024, 3), (48 * 1024, 1)]


def test_the_digest_is_stable_and_of_name_and_machine(server):
    first = read_system(server, HOST).hostname_digest
    assert first == read_system(server, HOST).hostname_digest
    assert len(first) == 16
    assert int(first, 16) >= 0
    assert "node1" not in read_system(server, HOST).model_dump_json()
    assert first != read_system(server, replace(HOST, name="node2")).hostname_digest
    write(server, {"etc/machine-id": "3d13\n"})
    assert first != read_system(server, HOST).hostname_digest


@pytest.mark.parametrize(
    ("allowed", "quota", "usable"), [(4, "150000", 2), (1, "150000", 1), (4, "1000", 1), (4, "900000", 4)]
)
def test_usable_processors(server, allowed, quota, usable):
    mount = "35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    write(
        server, {"proc/self/mountinfo": mount, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": f"{quota} 100000"}
    )
    facts = read_system(server, replace(HOST, allowed_cpus=allowed))
    assert facts.usable_cpus == usable
    assert facts.cpu_quota == int(quota) / 100000
    assert usable_cpus(server) == min(len(os.sched_getaffinity(0)), -(-int(quota) // 100000))


@pytest.mark.parametrize(
    ("file", "text", "turbo"),
    [("cpufreq/boost", "1", True), ("cpufreq/boost", "0", False), ("cpufreq/boost", "?", None)],
)
def test_turbo_of_other_drivers(bare, file, text, turbo):
    write(bare, {f"{CPU}/{file}": text})
    assert read_system(bare, HOST).turbo is turbo


def test_accelerators_by_name_then_by_device(bare):
    write(bare, {"dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidiactl": ""})
    assert read_system(bare, HOST).accelerators == ("NVIDIA", "NVIDIA")
    gpus = "proc/driver/nvidia/gpus"
    write(bare, {f"{gpus}/0000:00:1e.0/information": "Model: \t\t Tesla V100-SXM2-16GB\nIRQ:   \t\t 50\n"})
    write(
        bare, {f"{gpus}/0000:00:1f.0/information": "Model: \t\t NVIDIA A100\n", f"{gpus}/0000:00:20.0/information": ""}
    )
    assert read_system(bare, HOST).accelerators == ("NVIDIA Tesla V100-SXM2-16GB", "NVIDIA A100", "NVIDIA")


def test_a_virtual_machine_is_named_by_firmware_or_clock(bare):
    write(bare, {"proc/cpuinfo": (TEXTS / "amd.txt").read_text()})
    assert read_system(bare, HOST).virtualization == "vm"
    write(bare, {"sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc kvm-clock \n"})
    assert read_system(bare, HOST).virtualization == "kvm"
    write(bare, {"sys/class/dmi/id/sys_vendor": "VMware, Inc.\n", "sys/class/dmi/id/product_name": "VMware7,1\n"})
    assert read_system(bare, HOST).virtualization == "vmware"


@pytest.mark.parametrize(
    ("identity", "clocks", "name"),
    [
        ("QEMU Standard PC", "", "kvm"),
        ("Amazon EC2 c5.large", "", "nitro"),
        ("Amazon EC2 c6g.metal", "", None),
        ("Microsoft Corporation Virtual Machine", "", "hyperv"),
        ("Microsoft Corporation Surface", "", None),
        ("Dell Inc. PowerEdge R740", "tsc hpet acpi_pm", None),
        ("", "hyperv_clocksource_tsc_page acpi_pm", "hyperv"),
        ("", "xen tsc", "xen"),
    ],
)
def test_hypervisor_names(identity, clocks, name):
    assert hypervisor_name(identity, clocks) == name


CONTAINED = {"root_filesystem": "overlay", "pid_namespace": OWN}
OUTSIDE = {"root_filesystem": "ext4", "pid_namespace": FIRST}


@pytest.mark.parametrize(
    ("markers", "groups", "declared", "place", "name"),
    [
        ({"/.dockerenv"}, "", "", CONTAINED, "docker"),
        ({"/.containerenv"}, "", "", CONTAINED, "podman"),
        (set(), "/kubepods/burstable/x", "", CONTAINED, "kubernetes"),
        (set(), "/docker/abc", "", CONTAINED, "docker"),
        (set(), "/", "lxc", {"root_filesystem": "zfs", "pid_namespace": OWN}, "lxc"),
        (set(), "/", "", CONTAINED, "container"),
        (set(), "/", "", {"root_filesystem": "ext4", "pid_namespace": OWN}, None),
        (set(), "/", "", {"root_filesystem": "overlay", "pid_namespace": FIRST}, None),
        (set(), "/", "", {"root_filesystem": "", "pid_namespace": ""}, None),
    ],
)
def test_container_names(markers, groups, declared, place, name):
    assert container_name(markers=frozenset(markers), group_paths=groups, declared=declared, **place) == name


def test_a_machine_made_from_a_containers_files_is_no_container():
    assert container_name(markers=frozenset({"/.dockerenv"}), group_paths="", declared="", **OUTSIDE) is None


def test_a_container_is_named_after_its_machine(bare):
    write(bare, {"proc/cpuinfo": (TEXTS / "intel.txt").read_text(), ".dockerenv": ""})
    write(bare, {"proc/self/mountinfo": "1 0 0:5 / / rw - overlay overlay rw\n"})
    (bare / "proc/self/ns").mkdir()
    (bare / "proc/self/ns/pid").symlink_to(OWN)
    assert read_system(bare, HOST).virtualization == "none/docker"
    (bare / ".dockerenv").unlink()
    write(bare, {"proc/1/environ": "PATH=/bin\0container=lxc\0"})
    assert read_system(bare, HOST).virtualization == "none/lxc"


def test_musl_is_seen_by_its_loader(bare):
    write(bare, {"lib/ld-musl-x86_64.so.1": ""})
    assert read_system(bare, replace(HOST, libc=None)).libc == "musl"


def test_texts_that_other_parsers_get_wrong():
    assert parse_meminfo("MemTotal:  5 kB\nHugePages_Total:  7\n") == {"MemTotal": 5120}
    assert parse_os_release("# a=b\nID=debian\nNAME='A \\$B'\nnonsense\n") == {"ID": "debian", "NAME": "A $B"}


def test_the_reader_answers_none_for_what_cannot_be_read(tmp_path):
    write(tmp_path, {"file": "text"})
    read = file_reader(tmp_path)
    assert (read("/file"), read("/absent"), read("/")) == ("text", None, None)


def test_this_machine_can_be_read():
    facts = read_system()
    assert facts.usable_cpus == usable_cpus() <= read_host().allowed_cpus
    assert facts.memory_bytes > 2**20
