from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.errors import SandboxError
from mlmodelscope.core.settings import private_folders, sandbox_environment
from mlmodelscope.worker import sandbox
from mlmodelscope.worker.sandbox import (
    SCRATCH_BYTES,
    View,
    bwrap_command,
    interpreter_folders,
    refuse_private,
    shared_bytes,
)

RUN = Path("/home/ada/.mlmodelscope/runs/1")


def command(readable=(), results=(), root=Path("/nowhere"), shared=None) -> list[str]:
    view = View(tuple(map(Path, readable)), RUN, tuple(map(Path, results)), shared)
    return bwrap_command("/usr/bin/bwrap", ["python", "-P"], view, root=root)


def mounts(words: list[str], option: str) -> list[str]:
    return [words[i + 2] for i, word in enumerate(words) if word == option]


def test_every_namespace_is_its_own_and_nothing_outlives_the_parent():
    words = command()
    assert words[0] == "/usr/bin/bwrap"
    for option in ("--unshare-all", "--unshare-user", "--disable-userns", "--new-session", "--die-with-parent"):
        assert option in words
    assert "--share-net" not in words
    assert words[words.index("--cap-drop") + 1] == "ALL"
    assert words[words.index("--uid") + 1] == "65534"
    assert words[-3:] == ["--", "python", "-P"]


def test_only_results_are_writable_on_the_disk():
    words = command(readable=["/data"], results=[RUN / "progress", RUN / "stamps-0.npy"])
    assert mounts(words, "--bind") == [str(RUN / "progress"), str(RUN / "stamps-0.npy")]
    assert "/data" in mounts(words, "--ro-bind")
    assert not {"--dev-bind", "--bind-try", "--overlay"} & set(words)


def test_every_place_in_memory_has_a_size_and_the_rest_is_read_only():
    words = command()
    sized = [i for i, word in enumerate(words) if word == "--tmpfs"]
    assert [words[i + 1] for i in sized] == ["/dev/shm", "/tmp", str(RUN)]
    assert all(words[i - 2 : i] == ["--size", str(SCRATCH_BYTES)] for i in sized)
    locked = [words[i + 1] for i, word in enumerate(words) if word == "--remount-ro"]
    assert locked == ["/proc", "/dev", "/"]
    # a mount after the lock of its parent would fail, one before is not reached by it
    assert max(sized) < words.index("--remount-ro")


def test_results_are_mounted_over_the_scratch_folder_and_readable_files_too():
    words = command(readable=["/data"], results=[RUN / "progress"])
    scratch = words.index(str(RUN))
    assert scratch < words.index("/data")
    assert scratch < words.index("--bind")


def test_memory_that_is_shared_with_a_container_is_mounted_over_the_sandboxs_own():
    words = command(shared=Path("/dev/shm/mlmodelscope-7/1"))
    assert mounts(words, "--bind") == ["/dev/shm/mlmodelscope-7/1"]
    assert words.index("/dev/shm") < words.index("--bind") < words.index("--remount-ro")


def test_what_is_shared_is_counted_with_its_names_and_below_folders(tmp_path):
    (tmp_path / "tensor").write_bytes(bytes(100_000))
    (tmp_path / "folder").mkdir()
    flat = shared_bytes(tmp_path, 10**9)
    assert 100_000 < flat < 200_000
    (tmp_path / "folder" / "more").write_bytes(bytes(100_000))
    (tmp_path / "folder" / "link").symlink_to("/usr")
    assert 200_000 < shared_bytes(tmp_path, 10**9) < 300_000
    assert shared_bytes(tmp_path, 50_000) > 50_000
    assert shared_bytes(tmp_path / "absent", 1) == 0


def test_a_shared_folder_that_cannot_be_looked_at_is_too_large(tmp_path):
    (tmp_path / "file").touch()
    assert shared_bytes(tmp_path / "file", 5) == 6


def test_system_folders_are_links_or_folders_as_on_the_host(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").touch()
    (tmp_path / "etc" / "ld.so.cache").touch()
    words = command(root=tmp_path)
    assert mounts(words, "--ro-bind") == ["/usr", "/lib", "/etc/ld.so.cache"]
    assert words[words.index("--symlink") + 1 : words.index("--symlink") + 3] == ["usr/bin", "/bin"]


PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(lambda parts: Path("/", *parts))


@given(st.lists(PATHS, max_size=6))
def test_what_is_shown_covers_all_that_was_asked_once(paths):
    shown = sandbox._outermost(paths)
    assert all(any(path.is_relative_to(folder) for folder in shown) for path in paths)
    assert all(not a.is_relative_to(b) for a in shown for b in shown if a != b)
    assert set(shown) <= set(paths)


@pytest.mark.parametrize("folder", ["", "user", "user/.mlmodelscope", "link"])
def test_a_folder_with_something_private_below_is_refused(tmp_path, folder):
    home = tmp_path / "user" / ".mlmodelscope"
    home.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "user")
    with pytest.raises(SandboxError) as caught:
        refuse_private([tmp_path / folder], [tmp_path / "user", home])
    assert caught.value.code == "sandbox_unavailable"
    assert caught.value.fields["folder"] == str(tmp_path / folder)


def test_a_folder_inside_a_private_one_may_be_shown(tmp_path):
    data = tmp_path / "user" / "data"
    data.mkdir(parents=True)
    refuse_private([data], [tmp_path / "user"])


def test_the_interpreter_brings_its_links_but_no_private_folder(tmp_path, monkeypatch):
    base, venv, user = tmp_path / "pyenv/3.11", tmp_path / "venv", tmp_path / "user"
    for folder in (base / "bin", venv / "bin", user / "site", tmp_path / "pyenv/shims"):
        folder.mkdir(parents=True)
    (base / "bin" / "python3.11").touch()
    (tmp_path / "pyenv/shims/python3").symlink_to("../3.11/bin/python3.11")
    (venv / "bin" / "python").symlink_to(tmp_path / "pyenv/shims/python3")
    for name in ("prefix", "exec_prefix"):
        monkeypatch.setattr(sandbox.sys, name, str(venv))
        monkeypatch.setattr(sandbox.sys, f"base_{name}", str(base))
    monkeypatch.setattr(sandbox.sys, "executable", str(venv / "bin" / "python"))
    found = interpreter_folders(["", str(user), str(user / "site"), str(tmp_path / "no.zip"), "/usr/lib/x"], [user])
    assert found == (base, tmp_path / "pyenv/shims", user / "site", venv)


def test_the_environment_is_an_allow_list(monkeypatch):
    for name in ("AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "LD_PRELOAD", "MLMODELSCOPE_HOME", "OMP_API_TOKEN"):
        monkeypatch.setenv(name, "mine")
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    monkeypatch.setenv("PATH", "/home/ada/bin")
    found = sandbox_environment(3, {"ORT_DISABLE_TELEMETRY": "1"}, RUN)
    assert "mine" not in found.values()
    assert "/home/ada/bin" not in found["PATH"]
    assert (found["HOME"], found["OMP_NUM_THREADS"], found["OMP_PROC_BIND"]) == (str(RUN), "3", "close")
    assert found["ORT_DISABLE_TELEMETRY"] == "1"


def test_a_user_without_a_home_has_one_private_folder_less(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert private_folders(RUN) == [Path("/home/ada"), RUN]

    def unknown(self):
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "expanduser", unknown)
    assert private_folders(RUN) == [RUN]


def test_without_bubblewrap_there_is_a_reason(monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    assert sandbox.can_sandbox() == "bubblewrap (bwrap) is not installed"
    with pytest.raises(SandboxError) as caught:
        sandbox.find_bwrap()
    assert "bubblewrap" in caught.value.hint
