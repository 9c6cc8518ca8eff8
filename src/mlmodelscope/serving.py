"""A framework and a range of versions -> predictors of it to be served: here, or each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlmodelscope.core.errors import UsageError
from mlmodelscope.core.plugins import predictors
from mlmodelscope.core.predictor import Simulates
from mlmodelscope.core.request import Environment
from mlmodelscope.core.settings import worker_environment
from mlmodelscope.core.versions import parse_constraint
from mlmodelscope.facts import read_facts
from mlmodelscope.hosting import Host, Preparation, venv_host, version_in
from mlmodelscope.resolve.plans import find_framework, local_version
from mlmodelscope.resolve.stacks import need_of
from mlmodelscope.worker.foreign import ForeignPredictor, open_foreign

if TYPE_CHECKING:
    from mlmodelscope.core.predictor import Tensors
    from mlmodelscope.core.versions import VersionConstraint
    from mlmodelscope.resolve.plans import InstalledFramework
    from mlmodelscope.rpc.server import Serves

__all__ = ["Supply", "prepare_supply"]


@dataclass(frozen=True, slots=True)
class Supply:
    """Predictors of one framework, as many as are made. While `held`, nobody removes what they run in. `end` kills
    their processes, from any thread: for calls that do not come to their end; `unload` is the ordinary way."""

    framework: str
    version: str
    environment: str
    make: Callable[[], Serves]
    end: Callable[[], None] = lambda: None
    held: Callable[[], AbstractContextManager[object]] = nullcontext


def prepare_supply(text: str, environment: str | None, preparation: Preparation) -> Supply:
    """The framework of `name@constraint`, from `local` or `venv`; unasked, from this interpreter if it has what is
    wanted. A venv is found, or made first. What cannot be is a typed error."""
    found = find_framework(text, read_facts())
    if found.takes_address:
        raise UsageError(f"{found.name} is itself a client", hint="use the address that it would use")
    if environment not in (None, "local", "venv"):
        raise UsageError(f"a predictor is served from local or venv, not from {environment}")
    constraint = parse_constraint(text.partition("@")[2] or "*")
    is_here = found.version is not None and constraint.matches(found.version)
    if environment == "local" or (environment is None and is_here):
        return _from_here(found, constraint)
    return _from_venv(found, constraint, preparation)


def _from_here(found: InstalledFramework, constraint: VersionConstraint) -> Supply:
    version = local_version(found, constraint)
    predictor = predictors().get(found.name)
    # its framework is imported when a model is loaded, and reads them then
    os.environ.update(predictor.environment)
    return Supply(found.name, version, "local", predictor)


def _from_venv(found: InstalledFramework, constraint: VersionConstraint, preparation: Preparation) -> Supply:
    from mlmodelscope.provision.environments import Environments

    need = need_of(found.name, constraint)
    built, host = venv_host(Environment(kind="venv", need=need), found.name, preparation)
    environment = predictors().get(found.name).environment
    starter = _Starter(host, found.entry_point, preparation.home, environment, [])
    version = version_in(built, need.distribution) or str(constraint)
    return Supply(
        found.name,
        version,
        "venv",
        make=lambda: _Elsewhere(starter.started),
        end=starter.end,
        held=lambda: Environments(preparation.home).in_use(built.digest),
    )


@dataclass(frozen=True, slots=True)
class _Starter:
    """Starts processes of the framework's own interpreter; `living` are those that run."""

    host: Host
    entry_point: str
    home: Path
    environment: Mapping[str, str]
    living: list[ForeignPredictor]

    @contextmanager
    def started(self, threads: int) -> Iterator[ForeignPredictor]:
        with self.host.opened(self.home, ()) as place:
            assert place is not None
            # some frameworks count their threads before any model is loaded
            variables = {**worker_environment(self.home, threads, self.environment), **place.variables}
            predictor = open_foreign(place.model_copy(update={"variables": variables}), self.entry_point)
            self.living.append(predictor)
            try:
                yield predictor
            finally:
                self.living.remove(predictor)
                predictor.close()

    def end(self) -> None:
        for predictor in list(self.living):
            predictor.kill()


class _Elsewhere:
    """A predictor whose process lives from `load` to `unload`; it has a clock of its own where the other one has."""

    def __init__(self, started: Callable[[int], AbstractContextManager[ForeignPredictor]]) -> None:
        self._started = started
        self._ending = ExitStack()
        self._predictor: ForeignPredictor | None = None

    def load(self, model: dict[str, Any]) -> dict[str, Any]:
        self.unload()
        with ExitStack() as undo:
            predictor = undo.enter_context(self._started(max(1, model["threads"])))
            facts = predictor.load(model)
            self._ending = undo.pop_all()
        self._predictor = predictor
        if isinstance(predictor, Simulates):
            self.now_ns = predictor.now_ns
        return facts

    def predict(self, inputs: Tensors) -> Tensors:
        assert self._predictor is not None
        return self._predictor.predict(inputs)

    def unload(self) -> None:
        self._predictor = None
        self.__dict__.pop("now_ns", None)
        self._ending.close()
