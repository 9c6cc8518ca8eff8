import pytest

from mlmodelscope.measure.cgroup import GroupLimits, Mount, parse_cgroups, parse_mounts, read_limits

V2_MOUNT = "35 24 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
V1_UNLIMITED = "9223372036854771712\n"


def limits(files: dict[str, str]) -> GroupLimits:
    return read_limits(files.get)


def v2(path: str, **files: str) -> GroupLimits:
    texts = {f"/sys/fs/cgroup/{name}": text for name, text in files.items()}
    return limits({"/proc/self/mountinfo": V2_MOUNT, "/proc/self/cgroup": f"0::{path}\n"} | texts)


def test_without_control_groups_there_is_no_limit():
    assert limits({}) == GroupLimits(None, None)


@pytest.mark.parametrize(
    ("text", "quota"),
    [("max 100000\n", None), ("150000 100000\n", 1.5), ("50000 100000", 0.5), ("junk", None), ("1 0", None)],
)
def test_version_2_quota(text, quota):
    assert v2("/", **{"cpu.max": text}).cpu_quota == quota


@pytest.mark.parametrize(("text", "memory"), [("max\n", None), ("8589934592\n", 8 * 1024**3), ("", None)])
def test_version_2_memory(text, memory):
    assert v2("/", **{"memory.max": text}).memory_bytes == memory


def test_the_tightest_group_on_the_way_up_decides():
    found = v2(
        "/user.slice/job.scope",
        **{
            "user.slice/job.scope/cpu.max": "400000 100000",
            "user.slice/cpu.max": "200000 100000",
            "user.slice/job.scope/memory.max": "1000",
            "user.slice/memory.max": "2000",
            "other.slice/memory.max": "1",
        },
    )
    assert found == GroupLimits(2.0, 1000)


def v1(cgroup: str, mounts: str, files: dict[str, str]) -> GroupLimits:
    return limits({"/proc/self/mountinfo": mounts, "/proc/self/cgroup": cgroup} | files)


def test_version_1_beside_an_empty_version_2():
    found = v1(
        "4:memory:/job\n3:cpu,cpuacct:/job\n0::/\n",
        V1_MOUNTS,
        {
            "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "250000\n",
            "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
            "/sys/fs/cgroup/memory/job/memory.limit_in_bytes": "4096\n",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": V1_UNLIMITED,
        },
    )
    assert found == GroupLimits(2.5, 4096)


def test_version_1_without_limits():
    found = v1(
        "4:memory:/\n3:cpu,cpuacct:/\n",
        V1_MOUNTS,
        {
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": V1_UNLIMITED,
        },
    )
    assert found == GroupLimits(None, None)


@pytest.mark.parametrize("path", ["/docker/abc", "/docker/abc/", "/elsewhere"])
def test_a_container_sees_its_own_group_at_the_mount_point(path):
    mounts = V1_MOUNTS.replace("0:32 / ", "0:32 /docker/abc ")
    found = v1(f"4:memory:{path}\n", mounts, {"/sys/fs/cgroup/memory/memory.limit_in_bytes": "77\n"})
    assert found.memory_bytes == 77


def test_a_group_below_the_mounted_one():
    mounts = V1_MOUNTS.replace("0:32 / ", "0:32 /docker/abc ")
    found = v1("4:memory:/docker/abc/x\n", mounts, {"/sys/fs/cgroup/memory/x/memory.limit_in_bytes": "66\n"})
    assert found.memory_bytes == 66


def test_mounts_with_optional_fields_and_escaped_spaces():
    (mount,) = parse_mounts("1 2 0:3 / /a\\040b rw shared:7 master:1 - ext4 /dev/vda rw,discard\nnot a mount\n")
    assert mount == Mount("/", "/a b", "ext4", ("rw", "discard"))


def test_group_paths_with_a_colon():
    assert parse_cgroups("1:name=systemd:/a:b\n0::/c\nnonsense\n") == {"name=systemd": "/a:b", "": "/c"}
