"""A framework's name -> its predictor in a process of its own environment, for tests of what only it can do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import networks
from mlmodelscope.core.plugins import predictors
from mlmodelscope.worker.foreign import open_foreign
from mlmodelscope.worker.job import FrameworkHost
from stacks import HOME, TESTED, environment_of, exported, portable, variables_of

__all__ = ["exported_model", "opened"]


def _tested(framework: str) -> Any:
    return next(one for one in TESTED if one.framework == framework)


@contextmanager
def opened(framework: str) -> Iterator[Any]:
    tested = _tested(framework)
    built = environment_of(framework, tested.version)
    host = FrameworkHost(python=built.python, portable=str(portable()), variables=dict(built.variables))
    found = predictors().get(framework)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables_of(framework, built).items():
            patch.setenv(name, value)
        predictor = open_foreign(host, f"{found.__module__}:{found.__qualname__}")
        try:
            yield predictor
        finally:
            predictor.close()


def exported_model(framework: str, name: str, **changes: Any) -> dict[str, Any]:
    """What `load` takes for one of the small networks (`networks.py`) in the framework's own format."""
    folder = networks.kept_network(getattr(networks, name)(), HOME / "networks")
    files = exported(_tested(framework), folder)
    layers = {"graph_path": files["graph_path"], "weights_path": files["weights_path"], "inputs": [], "outputs": []}
    return {**layers, "threads": 1, "options": files["options"], **changes}
