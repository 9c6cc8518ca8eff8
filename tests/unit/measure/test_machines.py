"""The facts of machines whose files were recorded: `machines/*.txt`; the first line of each says where it is from."""

from pathlib import Path

import pytest

from mlmodelscope.core.system import Cache
from mlmodelscope.measure.system import Host, read_system

MACHINES = Path(__file__).parent / "machines"
KIB = 1024


def restore(name: str, root: Path) -> Path:
    """The recorded files below `root`; a line is `PATH:LINE`."""
    files: dict[str, list[str]] = {}
    for line in (MACHINES / f"{name}.txt").read_text().splitlines():
        if not line.startswith("#"):
            path, _, content = line.partition(":")
            files.setdefault(path, []).append(content)
    for path, lines in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("\n".join([*lines, ""]))
    return root


def recorded(name: str, machine: str, root: Path):
    return read_system(restore(name, root), Host("node1", "6.12.107", machine, "glibc 2.41", 4))


@pytest.mark.parametrize(
    ("name", "machine", "architecture", "model", "vendor", "feature"),
    [
        ("amd64", "x86_64", "amd64", "Intel Core Processor (Haswell, no TSX)", "Intel", "avx2"),
        ("arm64", "aarch64", "arm64", "ARM Neoverse-N1", "ARM", "asimddp"),
        ("ppc64el", "ppc64le", "ppc64le", "POWER9 (architected)", "IBM", "altivec"),
    ],
)
def test_processors(tmp_path, name, machine, architecture, model, vendor, feature):
    facts = recorded(name, machine, tmp_path)
    assert (facts.architecture, facts.cpu_model, facts.cpu_vendor) == (architecture, model, vendor)
    assert feature in facts.cpu_features
    assert facts.virtualization == "kvm"


@pytest.mark.parametrize(
    ("name", "sockets", "cores", "threads"), [("amd64", 1, 2, 2), ("arm64", 2, 4, 1), ("ppc64el", 2, 4, 1)]
)
def test_topology(tmp_path, name, sockets, cores, threads):
    facts = recorded(name, name, tmp_path)
    assert (facts.sockets, facts.cores, facts.threads_per_core) == (sockets, cores, threads)
    assert (facts.logical_cpus, facts.usable_cpus, facts.numa_nodes) == (4, 4, 1)


def test_memory_is_what_the_kernel_leaves_of_512_mib(tmp_path):
    for name in ("amd64", "arm64", "ppc64el"):
        facts = recorded(name, name, tmp_path / name)
        assert 0.8 < facts.memory_bytes / (512 * KIB**2) < 1
        assert facts.swap_bytes == 0


def test_caches(tmp_path):
    def first_level(kind):
        return Cache(level=1, type=kind, size_bytes=32 * KIB, instances=4)

    firsts = (first_level("data"), first_level("instruction"))
    # the emulated processors share no first level, whatever their threads
    assert recorded("amd64", "x86_64", tmp_path / "amd64").caches == (
        *firsts,
        Cache(level=2, type="unified", size_bytes=4096 * KIB, instances=2),
        Cache(level=3, type="unified", size_bytes=16384 * KIB, instances=1),
    )
    assert recorded("ppc64el", "ppc64le", tmp_path / "ppc64el").caches == firsts
    # this kernel knows of caches but not how large they are
    assert recorded("arm64", "aarch64", tmp_path / "arm64").caches == ()


def test_every_recording_is_looked_at_and_says_where_it_comes_from():
    recordings = {path.stem: path.read_text() for path in MACHINES.iterdir()}
    assert set(recordings) == {"amd64", "arm64", "ppc64el"}
    for text in recordings.values():
        source = text.splitlines()[0]
        assert source.startswith("# recorded ")
        assert "tests/architectures/record.sh" in source
        assert ", Linux " in source
