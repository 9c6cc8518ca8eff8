from pathlib import Path

import pytest

from mlmodelscope.core.errors import EnvironmentMissingError, MemoryLimitError, WorkerCrashError
from mlmodelscope.provision.containers.confinement import Allowance, cdi_describes_gpu, host_options, mounts_of
from mlmodelscope.provision.containers.container import Mount, describe_exit


def options(is_podman=True, has_selinux=False, **allowed):
    return host_options(Allowance(**allowed), is_podman=is_podman, has_selinux=has_selinux)


def test_a_container_gets_nothing_by_default():
    found = options()
    assert found["network_mode"] == "none"
    assert found["read_only"] is True
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges"]
    assert found["binds"] == []
    assert list(found["tmpfs"]) == ["/tmp"]
    assert not {"cpuset_cpus", "device_requests", "devices", "mem_limit", "pids_limit"} & set(found)


def test_limits():
    found = options(cpus="0-1", memory_bytes=1024, pids=7, network=True)
    assert (found["cpuset_cpus"], found["mem_limit"], found["memswap_limit"]) == ("0-1", 1024, 1024)
    assert (found["pids_limit"], found["network_mode"]) == (7, "bridge")


def test_which_limits_must_be_held():
    assert Allowance().limits == ()
    assert Allowance(cpus="0", memory_bytes=1, pids=1).limits == ("cpuset", "memory", "pids")


def test_the_users_files_are_not_relabelled():
    assert "label=disable" in options(has_selinux=True)["security_opt"]


def test_a_gpu_in_the_words_of_each_engine():
    assert options(is_podman=True, gpus=True)["devices"] == ["nvidia.com/gpu=all"]
    (request,) = options(is_podman=False, gpus=True)["device_requests"]
    assert (request["Count"], request["Capabilities"]) == (-1, [["gpu"]])


def test_whether_a_gpu_is_described(tmp_path):
    assert cdi_describes_gpu([tmp_path / "absent", tmp_path]) is False
    (tmp_path / "nvidia.yaml").touch()
    assert cdi_describes_gpu([tmp_path / "absent", tmp_path]) is True


def test_mounts_are_read_only_unless_they_say_otherwise(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    mounts = [Mount(inner, Path("/run/x/y"), is_read_only=False), Mount(tmp_path, Path("/run"))]
    assert mounts_of(mounts) == [f"{tmp_path}:/run:ro", f"{inner}:/run/x/y:rw"]


@pytest.mark.parametrize("name", ["absent", "with:colon"])
def test_a_mount_that_no_engine_could_make(tmp_path, name):
    (tmp_path / "with:colon").touch()
    with pytest.raises(EnvironmentMissingError, match=name) as caught:
        mounts_of([Mount(tmp_path / name, Path("/x"))])
    assert caught.value.fields["path"] == str(tmp_path / name)


def explain(code, is_out_of_memory=False, limit=None):
    return describe_exit(code, is_out_of_memory, "load", "an:image", limit)


def test_a_good_end_is_no_error():
    assert explain(0) is None


@pytest.mark.parametrize("told", [True, False])
def test_exit_137_is_out_of_memory(told):
    error = explain(137, told, 64_000_000)
    assert isinstance(error, MemoryLimitError)
    assert "64 MB" in error.message
    assert error.fields == {"stage": "load", "image": "an:image", "exit_code": 137, "limit_bytes": 64_000_000}


def test_out_of_memory_without_a_limit_of_ours():
    error = explain(137)
    assert isinstance(error, MemoryLimitError)
    assert "the machine ran out of memory" in error.message


def test_an_engine_that_knows_of_the_memory_is_believed():
    assert isinstance(explain(1, is_out_of_memory=True, limit=1), MemoryLimitError)


@pytest.mark.parametrize(("code", "name"), [(139, "SIGSEGV"), (134, "SIGABRT"), (132, "SIGILL"), (250, "signal 122")])
def test_a_signal_has_its_name(code, name):
    error = explain(code)
    assert isinstance(error, WorkerCrashError)
    assert error.fields["signal"] == name
    assert name in error.message


def test_an_exit_code_is_told():
    error = explain(7)
    assert isinstance(error, WorkerCrashError)
    assert error.fields["exit_code"] == 7


@pytest.mark.parametrize("code", [126, 127])
def test_a_command_that_cannot_be_run(code):
    assert isinstance(explain(code), EnvironmentMissingError)
