"""A home whose assets outlive the test run, so that only the first run downloads them; and evaluations in it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KEPT_ASSETS = ROOT / ".cache" / "test-assets"


@pytest.fixture(scope="session")
def zoo_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("zoo-home")
    KEPT_ASSETS.mkdir(parents=True, exist_ok=True)
    (home / "assets").symlink_to(KEPT_ASSETS)
    return home


@pytest.fixture(scope="session")
def command(zoo_home: Path) -> Callable[..., Any]:
    """Runs the command line in that home, from the root of the repository, and reads its JSON."""

    def run(*arguments: str) -> Any:
        program = Path(sys.executable).with_name("mlmodelscope")
        environment = {**os.environ, "MLMODELSCOPE_HOME": str(zoo_home)}
        done = subprocess.run(
            [str(program), *arguments, "--json"], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def accuracy_of(command: Callable[..., Any]) -> Callable[..., Any]:
    """The record of a model's accuracy on a data set, evaluated once a session."""
    known: dict[tuple[str, ...], Any] = {}

    def evaluate(model: str, dataset: str, *options: str) -> Any:
        key = (model, dataset, *options)
        if key not in known:
            known[key] = command("evaluate", model, "--dataset", dataset, "--measure", "accuracy", *options)
        return known[key]

    return evaluate
