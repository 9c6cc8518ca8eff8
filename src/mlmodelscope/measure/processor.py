"""The kernel's texts about processors -> names, features and counts; pure, None where a text does not say."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Processor", "container_architecture", "parse_cpu_list", "parse_cpuinfo", "parse_size"]

_ARCHITECTURES = {
    "x86_64": "amd64",
    "amd64": "amd64",
    "aarch64": "arm64",
    "arm64": "arm64",
    "armv8l": "arm",
    "armv7l": "arm",
    "armv6l": "arm",
    "i386": "386",
    "i686": "386",
}

_VENDORS = {
    "AuthenticAMD": "AMD",
    "GenuineIntel": "Intel",
    "HygonGenuine": "Hygon",
    "CentaurHauls": "VIA",
    "Shanghai": "Zhaoxin",
}

# An ARM kernel gives numbers only: the MIDR register's implementer and part.
_ARM_IMPLEMENTERS = {
    0x41: "ARM",
    0x42: "Broadcom",
    0x43: "Cavium",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x50: "APM",
    0x51: "Qualcomm",
    0x61: "Apple",
    0x6D: "Microsoft",
    0xC0: "Ampere",
}
_ARM_PARTS = {
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD04): "Cortex-A35",
    (0x41, 0xD05): "Cortex-A55",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD09): "Cortex-A73",
    (0x41, 0xD0A): "Cortex-A75",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD0D): "Cortex-A77",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD44): "Cortex-X1",
    (0x41, 0xD46): "Cortex-A510",
    (0x41, 0xD47): "Cortex-A710",
    (0x41, 0xD48): "Cortex-X2",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4A): "Neoverse-E1",
    (0x41, 0xD4D): "Cortex-A715",
    (0x41, 0xD4E): "Cortex-X3",
    (0x41, 0xD4F): "Neoverse-V2",
    (0x41, 0xD80): "Cortex-A520",
    (0x41, 0xD81): "Cortex-A720",
    (0x41, 0xD82): "Cortex-X4",
    (0x41, 0xD84): "Neoverse-V3",
    (0x41, 0xD8E): "Neoverse-N3",
    (0x42, 0x516): "ThunderX2",
    (0x43, 0x0AF): "ThunderX2",
    (0x46, 0x001): "A64FX",
    (0x48, 0xD01): "Kunpeng-920",
    (0x4E, 0x003): "Denver 2",
    (0x4E, 0x004): "Carmel",
    (0x51, 0x001): "Oryon",
    (0x6D, 0xD49): "Azure Cobalt 100",
    (0xC0, 0xAC3): "Ampere-1",
    (0xC0, 0xAC4): "Ampere-1a",
}

_SIZE_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


@dataclass(frozen=True, slots=True)
class Processor:
    """What /proc/cpuinfo says. `is_virtual` is None where the architecture has no word for it."""

    model: str | None
    vendor: str | None
    features: tuple[str, ...]
    logical_cpus: int | None
    is_virtual: bool | None
    hypervisor: str | None


def container_architecture(machine: str) -> str:
    """`uname -m` in the words of container images (x86_64 -> amd64); a machine without a second name keeps its own."""
    return _ARCHITECTURES.get(machine.lower(), machine.lower())


def parse_cpu_list(text: str) -> frozenset[int] | None:
    """The kernel's list form: `0-3,8` -> {0, 1, 2, 3, 8}; None for a text that is no list."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            return None
        first = int(match[1])
        cpus.update(range(first, int(match[2] or first) + 1))
    return frozenset(cpus)


def parse_size(text: str) -> int | None:
    """A cache size of sysfs: `512K` -> 524288."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
    return int(match[1]) * _SIZE_UNITS[match[2]] if match else None


def parse_cpuinfo(text: str) -> Processor:
    """The processor behind a /proc/cpuinfo of x86, ARM or POWER; another architecture's text yields only a count."""
    texts = re.split(r"\n\s*\n", text)
    count = len(re.findall(r"^processor\s*:", text, re.MULTILINE)) or None
    first = next((fields for block in texts if "processor" in (fields := _fields(block))), {})
    if "vendor_id" in first:
        return _x86(first, count)  # all alike, and hundreds on a large machine: the first will do
    blocks = [_fields(block) for block in texts]
    cpus = [block for block in blocks if "processor" in block]
    if "CPU implementer" in first:
        return _arm(cpus, count)
    if "cpu" in first:
        return _power(first, blocks, count)
    return Processor(None, None, (), count, None, None)


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def _x86(first: dict[str, str], count: int | None) -> Processor:
    features = tuple(sorted(set(first.get("flags", "").split())))
    vendor = first["vendor_id"]
    model = " ".join(first.get("model name", "").split()) or None
    # the flag is set by every hypervisor worth the name; its absence is how x86 says "bare metal"
    is_virtual = "hypervisor" in features if features else None
    return Processor(model, _VENDORS.get(vendor, vendor), features, count, is_virtual, None)


def _arm(cpus: list[dict[str, str]], count: int | None) -> Processor:
    kinds: dict[str, None] = {}  # in order of appearance: big and little cores have different parts
    vendors: dict[str, None] = {}
    for cpu in cpus:
        implementer, part = _number(cpu.get("CPU implementer")), _number(cpu.get("CPU part"))
        if implementer is None or part is None:
            continue
        vendor = _ARM_IMPLEMENTERS.get(implementer, f"implementer {implementer:#04x}")
        vendors[vendor] = None
        kinds[f"{vendor} {_ARM_PARTS.get((implementer, part), f'part {part:#05x}')}"] = None
    features = tuple(sorted(set(cpus[0].get("Features", "").split())))
    return Processor(" + ".join(kinds) or None, " + ".join(vendors) or None, features, count, None, None)


def _power(first: dict[str, str], blocks: list[dict[str, str]], count: int | None) -> Processor:
    model, *notes = (part.strip() for part in first["cpu"].split(","))
    features = tuple(sorted(note.removesuffix(" supported") for note in notes if note.endswith(" supported")))
    machine = next((block for block in blocks if "platform" in block), {})
    platform, description = machine.get("platform"), machine.get("machine", "")
    vendor = "IBM" if model.startswith("POWER") else None
    if platform == "PowerNV":
        return Processor(model, vendor, features, count, False, None)
    if platform == "pSeries":
        hypervisor = "kvm" if "emulated by qemu" in description else "powervm"
        return Processor(model, vendor, features, count, True, hypervisor)
    return Processor(model, vendor, features, count, None, None)


def _number(text: str | None) -> int | None:
    try:
        return int(text or "", 0)
    except ValueError:
        return None
