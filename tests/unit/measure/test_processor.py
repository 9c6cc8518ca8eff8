from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.measure.processor import (
    Processor,
    container_architecture,
    parse_cpu_list,
    parse_cpuinfo,
    parse_size,
)

# qemu_user_arm64 was recorded: what qemu-aarch64 10.0 shows a program for its processor `max`. The others were written
# after the kernel's format, for machines that could not be had; texts that real kernels wrote are in `machines`, see
# test_machines.py
TEXTS = Path(__file__).parent / "cpuinfo"


def processor(name: str) -> Processor:
    return parse_cpuinfo((TEXTS / f"{name}.txt").read_text())


@pytest.mark.parametrize(
    ("name", "model", "vendor", "cpus", "is_virtual", "hypervisor"),
    [
        ("amd", "AMD EPYC 7763 64-Core Processor", "AMD", 2, True, None),
        ("intel", "Intel(R) Xeon(R) Platinum 8175M CPU @ 2.50GHz", "Intel", 1, False, None),
        ("arm", "ARM Neoverse-N1", "ARM", 2, None, None),
        ("arm_big_little", "ARM Cortex-A53 + ARM Cortex-A72", "ARM", 2, None, None),
        ("qemu_user_arm64", "implementer 0x00 part 0x051", "implementer 0x00", 2, None, None),
        ("power", "POWER9", "IBM", 2, False, None),
        ("power_kvm", "POWER8 (architected)", "IBM", 1, True, "kvm"),
        ("riscv", None, None, 1, None, None),
    ],
)
def test_names_and_counts(name, model, vendor, cpus, is_virtual, hypervisor):
    found = processor(name)
    assert (found.model, found.vendor, found.logical_cpus) == (model, vendor, cpus)
    assert (found.is_virtual, found.hypervisor) == (is_virtual, hypervisor)


@pytest.mark.parametrize(
    ("name", "present", "absent"),
    [
        ("amd", "avx2", "avx512f"),
        ("intel", "avx512f", "hypervisor"),
        ("arm", "asimddp", "avx2"),
        ("power", "altivec", "avx2"),
    ],
)
def test_features(name, present, absent):
    features = processor(name).features
    assert present in features
    assert absent not in features
    assert list(features) == sorted(set(features))


def test_a_part_without_a_name_keeps_its_number():
    text = (TEXTS / "arm.txt").read_text().replace("0xd0c", "0xabc")
    assert parse_cpuinfo(text).model == "ARM part 0xabc"
    text = text.replace("0x41", "0x99")
    assert parse_cpuinfo(text).vendor == "implementer 0x99"


@pytest.mark.parametrize("broken", ["CPU part\t: none", ""])
def test_an_arm_text_without_a_part_names_nothing(broken):
    text = (TEXTS / "arm.txt").read_text().replace("CPU part\t: 0xd0c", broken)
    assert (parse_cpuinfo(text).model, parse_cpuinfo(text).logical_cpus) == (None, 2)


def test_power_under_another_hypervisor_and_on_an_unknown_platform():
    text = (TEXTS / "power_kvm.txt").read_text().replace(" (emulated by qemu)", "")
    assert parse_cpuinfo(text).hypervisor == "powervm"
    assert parse_cpuinfo(text.replace("pSeries", "Maple")).is_virtual is None


def test_an_x86_text_without_flags_does_not_say_whether_it_is_virtual():
    text = (TEXTS / "intel.txt").read_text().replace("flags", "other")
    assert parse_cpuinfo(text).is_virtual is None


@given(st.text())
def test_no_text_is_too_strange(text):
    parse_cpuinfo(text)
    parse_cpuinfo(f"processor\t: 0\nvendor_id\t: {text}\nCPU implementer : {text}\ncpu : {text}")
    parse_cpuinfo(f"processor\t: 0\nCPU implementer : {text}\nCPU part : {text}")
    parse_cpu_list(text)
    parse_size(text)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,8\n", {0, 1, 2, 3, 8}), ("0", {0}), ("", None), ("0-", None), ("a", None), ("0,,1", None), ("-1", None)],
)
def test_cpu_lists(text, cpus):
    assert parse_cpu_list(text) == cpus


@given(st.sets(st.integers(0, 5000), min_size=1))
def test_a_cpu_list_of_single_numbers_is_their_set(cpus):
    assert parse_cpu_list(",".join(map(str, cpus))) == cpus


@pytest.mark.parametrize(("text", "size"), [("512K\n", 524288), ("32M", 33554432), ("7", 7), ("", None), ("x", None)])
def test_cache_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("machine", "name"),
    [("x86_64", "amd64"), ("aarch64", "arm64"), ("armv8l", "arm"), ("ppc64le", "ppc64le"), ("RISCV64", "riscv64")],
)
def test_architectures(machine, name):
    assert container_architecture(machine) == name
