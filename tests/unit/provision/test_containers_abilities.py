import pytest

from mlmodelscope.provision.containers.abilities import docker_abilities, podman_abilities

ALL = {"cpuset", "memory", "pids"}


@pytest.mark.parametrize(
    ("told", "limits"),
    [
        ({}, ALL),
        ({"CPUSet": True, "MemoryLimit": True, "PidsLimit": True}, ALL),
        ({"CPUSet": False, "MemoryLimit": True, "PidsLimit": False}, {"memory"}),
    ],
)
def test_what_docker_can_limit(told, limits):
    assert docker_abilities(told).limits == limits


def test_whose_rights_dockers_containers_have():
    plain = docker_abilities({"SecurityOptions": None})
    assert (plain.is_rootless, plain.has_selinux) == (False, False)
    told = docker_abilities({"SecurityOptions": ["name=seccomp,profile=default", "name=rootless", "name=selinux"]})
    assert (told.is_rootless, told.has_selinux) == (True, True)


@pytest.mark.parametrize(
    ("version", "is_rootless", "controllers", "limits"),
    [
        ("v2", False, ["cpu", "cpuset", "io", "memory", "pids"], ALL),
        # what systemd gives to users unasked
        ("v2", True, ["cpu", "memory", "pids"], {"memory", "pids"}),
        ("v2", True, None, set()),
        ("v1", False, ["blkio", "cpuset", "memory", "pids"], ALL),
        # taken, and held by nobody
        ("v1", True, ["blkio", "cpuset", "memory", "pids"], set()),
    ],
)
def test_what_podman_can_limit(version, is_rootless, controllers, limits):
    security = {"rootless": is_rootless, "selinuxEnabled": is_rootless}
    found = podman_abilities({"cgroupVersion": version, "cgroupControllers": controllers, "security": security})
    assert found.limits == limits
    assert (found.is_rootless, found.has_selinux) == (is_rootless, is_rootless)


def test_a_podman_that_says_nothing_is_believed_nothing():
    assert podman_abilities({}).limits == set()
