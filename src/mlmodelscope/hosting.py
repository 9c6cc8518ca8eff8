"""A plan -> the place where its framework lives: made or found, pinned in the plan, opened for each launch."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mlmodelscope.core.errors import TimeLimitError, UnsatisfiableError
from mlmodelscope.core.ids import new_id
from mlmodelscope.core.plugins import predictors
from mlmodelscope.core.request import EvaluationPlan
from mlmodelscope.core.settings import framework_variables
from mlmodelscope.core.stack import BuiltEnvironment
from mlmodelscope.core.versions import parse_constraint
from mlmodelscope.worker.folder import RunFolder
from mlmodelscope.worker.foreign import shim_command
from mlmodelscope.worker.job import FrameworkHost
from mlmodelscope.worker.launch import LaunchFailed

if TYPE_CHECKING:
    from mlmodelscope.provision.containers import Container, Engine, ImageFacts

__all__ = ["Host", "Preparation", "prepare_host"]

_SOCKET = "framework.sock"
_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Preparation:
    """Who is asked and told while a place is made. `may_install` is given a size in bytes, over 1 GB only."""

    home: Path
    may_install: Callable[[int], bool] = lambda size: False
    say: Callable[[str], None] = lambda text: None


class Host(Protocol):
    """Where a framework lives, for any number of launches, one after the other."""

    def opened(self, run_folder: Path, files: Sequence[str]) -> AbstractContextManager[FrameworkHost | None]:
        """What a worker must know to reach the framework (None: it is in the worker); inside, it can be reached.

        `files` are what the framework reads besides the run folder. A LaunchFailed that passes through gets the reason
        that only the keeper of the framework's process knows.
        """
        ...

    def close(self) -> None:
        """No launch will follow."""
        ...


def prepare_host(plan: EvaluationPlan, preparation: Preparation) -> tuple[EvaluationPlan, Host]:
    """The plan with its environment and version pinned, and the place. What cannot be made is a typed error."""
    if plan.environment.kind == "venv":
        return _prepare_venv(plan, preparation)
    if plan.environment.kind == "container":
        return _prepare_container(plan, preparation)
    return plan, _Local()


class _Local:
    """The worker's own interpreter."""

    @contextmanager
    def opened(self, run_folder: Path, files: Sequence[str]) -> Iterator[FrameworkHost | None]:
        yield None

    def close(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class _Venv:
    built: BuiltEnvironment
    variables: Mapping[str, str]
    portable: Path
    keep: Callable[[], AbstractContextManager[object]]
    is_sandboxed: bool

    @contextmanager
    def opened(self, run_folder: Path, files: Sequence[str]) -> Iterator[FrameworkHost | None]:
        python = Path(self.built.python)
        folders = {self.portable, Path(self.built.folder), *_interpreter_folders(python)}
        with self.keep(), _shared_folder() as shared:
            yield FrameworkHost(
                python=str(python),
                portable=str(self.portable),
                # the sandbox has memory of its own, which ends with it
                shared=None if self.is_sandboxed else str(shared),
                variables={**self.built.variables, **self.variables},
                folders=tuple(sorted(map(str, folders))),
            )

    def close(self) -> None:
        return


@contextmanager
def _shared_folder() -> Iterator[Path]:
    """A folder of memory for the tensors of one launch; what a killed process left there, a later one removes."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder inside is this user's, and private
    place = memory if memory.is_dir() else Path(tempfile.gettempdir())
    root = place / f"mlmodelscope-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    folder = RunFolder(root / new_id())
    folder.make()
    try:
        yield folder.path
    finally:
        folder.remove()


def _interpreter_folders(python: Path) -> set[Path]:
    """The prefix behind every link on the way from a venv's interpreter to the program itself."""
    found: set[Path] = set()
    path = python
    while path.is_symlink() and len(found) < 40:
        target = path.readlink()
        path = target if target.is_absolute() else path.parent / target
        found.add(path.parent.parent)
    return found | {python.resolve().parents[1]}


def _prepare_venv(plan: EvaluationPlan, preparation: Preparation) -> tuple[EvaluationPlan, Host]:
    from mlmodelscope.provision.environments import Environments
    from mlmodelscope.provision.libraries import library_variables
    from mlmodelscope.provision.portable import portable_folder

    wanted = plan.environment
    environments = Environments(preparation.home)
    if wanted.stack is not None:
        built = environments.rebuild(wanted.stack, may_install=preparation.may_install, say=preparation.say)
    else:
        assert wanted.need is not None
        built = environments.make(wanted.need, may_install=preparation.may_install, say=preparation.say)
    version = built.stack.version_of(_normal(plan.framework.distribution)) or plan.framework.version
    pinned = plan.model_copy(
        update={
            "framework": plan.framework.model_copy(update={"version": version}),
            "environment": wanted.model_copy(update={"digest": built.digest, "stack": built.stack}),
        }
    )
    variables = library_variables(plan.framework.name, preparation.home)
    return pinned, _Venv(
        built=built,
        variables=variables,
        portable=portable_folder(preparation.home),
        keep=lambda: environments.in_use(built.digest),
        is_sandboxed=wanted.is_sandboxed,
    )


def _normal(distribution: str) -> str:
    return "-".join(filter(None, distribution.lower().replace("_", "-").replace(".", "-").split("-")))


@dataclass(frozen=True, slots=True)
class _Contained:
    """A container per launch, started by us: the worker cannot, and must not be able to."""

    engine: Engine
    image: str
    python: str
    portable: Path
    variables: Mapping[str, str]
    memory_bytes: int | None
    network: bool

    @contextmanager
    def opened(self, run_folder: Path, files: Sequence[str]) -> Iterator[FrameworkHost | None]:
        with _shared_folder() as shared, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(str(shared / _SOCKET))
            listening.listen(1)
            with self._start(shared, run_folder, files) as container, _explaining(container):
                yield FrameworkHost(
                    python=self.python,
                    portable=str(self.portable),
                    listener=listening.fileno(),
                    shared=str(shared),
                )

    def close(self) -> None:
        self.engine.close()

    def _start(self, shared: Path, run_folder: Path, files: Sequence[str]) -> Container:
        from mlmodelscope.provision.containers import Mount

        progress = run_folder / "progress"
        progress.write_bytes(bytes(8))
        readable = sorted({self.portable, *map(Path, files)})
        mounts = [Mount(path, path, is_read_only=False) for path in (shared, progress)]
        return self.engine.start(
            self.image,
            shim_command(self.python, str(self.portable), f"unix:{shared / _SOCKET}", str(shared), is_isolated=False),
            mounts=[*mounts, *(Mount(path, path) for path in readable)],
            variables={**self.variables, "HOME": "/tmp"},  # noqa: S108 - the container's own
            network=self.network,
            cpus=",".join(map(str, sorted(os.sched_getaffinity(0)))),
            memory_bytes=self.memory_bytes,
            gpus=self.engine.has_gpu,
        )


@contextmanager
def _explaining(container: Container) -> Iterator[None]:
    """The worker sees only that the other side fell silent; the engine knows how its process ended."""
    try:
        yield
    except LaunchFailed as failed:
        if not failed.error.fields.get("in_container"):
            raise
        with suppress(TimeLimitError):
            container.wait(_END_SECONDS)
        error = container.exit_error(failed.stage) or failed.error
        raise LaunchFailed(error, failed.stage, failed.log_tail + container.log_tail()) from failed


def _prepare_container(plan: EvaluationPlan, preparation: Preparation) -> tuple[EvaluationPlan, Host]:
    from mlmodelscope.provision.containers import find_engine
    from mlmodelscope.provision.portable import portable_folder

    image = plan.environment.image
    assert image is not None
    engine = find_engine(preparation.home)
    # a record names the content of an image, whatever its name means by now
    facts = engine.inspect(plan.environment.digest or image)
    predictor = predictors().get(plan.framework.name)
    distribution, version = _distribution(plan, predictor.packages, facts)
    pinned = plan.model_copy(
        update={
            "framework": plan.framework.model_copy(update={"distribution": distribution, "version": version}),
            "environment": plan.environment.model_copy(update={"digest": facts.digest}),
        }
    )
    return pinned, _Contained(
        engine=engine,
        image=facts.digest,
        python=facts.interpreter(_normal(distribution)).path,
        portable=portable_folder(preparation.home),
        variables=framework_variables(plan.threads, predictor.environment),
        memory_bytes=plan.request.limits.memory_bytes,
        # a stranger's manifest gets none, whatever it says
        network=plan.is_trusted and plan.model.attributes.get("network") is True,
    )


def _distribution(plan: EvaluationPlan, names: Sequence[str], facts: ImageFacts) -> tuple[str, str]:
    """The framework in the image, and its version; UnsatisfiableError where the image has none that will do."""
    found = None
    for name in names:
        packages = facts.interpreter(_normal(name)).packages
        found = found or ((name, packages[_normal(name)]) if _normal(name) in packages else None)
    constraint = parse_constraint(plan.framework.version)
    if found is not None and constraint.matches(found[1]):
        return found
    has = f"{found[0]} {found[1]}" if found else f"no {plan.framework.name}"
    raise UnsatisfiableError(
        f"the image {facts.name} has {has}, but {plan.framework.name} {constraint} is needed",
        hint=f"mlmodelscope environments show {facts.name} lists what is in it",
        image=facts.name,
        needed=str(constraint),
    )
