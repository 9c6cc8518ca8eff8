"""Abilities of the machine that tests may need, and what is said about those that are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import hypothesis
import pytest

# machines are shared and slow at times: how long an example takes says nothing
hypothesis.settings.register_profile("default", deadline=None)
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


ABILITIES = {
    "python3.6": Ability(lambda: old_python() is not None, "install a Python from 3.6 to 3.8, with pyenv for example"),
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
