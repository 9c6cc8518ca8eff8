"""A plan -> the place where its framework lives: made or found, pinned in the plan, opened for each launch."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mlmodelscope.core.errors import MLModelScopeError, TimeLimitError, UnsatisfiableError
from mlmodelscope.core.plugins import predictors
from mlmodelscope.core.request import Environment, EvaluationPlan
from mlmodelscope.core.settings import framework_variables
from mlmodelscope.core.stack import BuiltEnvironment
from mlmodelscope.core.versions import parse_constraint
from mlmodelscope.provision.portable import note_use, portable_folder
from mlmodelscope.resolve.stacks import is_tested
from mlmodelscope.worker.folder import shared_folder
from mlmodelscope.worker.foreign import shim_command
from mlmodelscope.worker.job import FrameworkHost
from mlmodelscope.worker.launch import LaunchFailed
from mlmodelscope.worker.sandbox import MOST_TASKS

if TYPE_CHECKING:
    from mlmodelscope.provision.containers import Container, Engine, ImageFacts

__all__ = ["Host", "Preparation", "prepare_host", "venv_host", "version_in"]

_SOCKET = "framework.sock"
_END_SECONDS = 10.0
# a framework that runs away meets it; none that works does
_MOST_TRUSTED_TASKS = 16_384


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
        libraries = map(Path, filter(None, self.variables.get("LD_LIBRARY_PATH", "").split(":")))
        folders = {self.portable, Path(self.built.folder), *_interpreter_folders(python), *libraries}
        note_use(self.portable)
        with self.keep(), shared_folder() as shared:
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
    wanted = plan.environment
    built, host = venv_host(wanted, plan.framework.name, preparation, is_trusted=plan.is_trusted)
    version = version_in(built, plan.framework.distribution) or plan.framework.version
    pinned = plan.model_copy(
        update={
            "framework": plan.framework.model_copy(update={"version": version}),
            "environment": wanted.model_copy(update={"digest": built.digest, "stack": built.stack}),
        }
    )
    return pinned, host


def version_in(built: BuiltEnvironment, distribution: str) -> str | None:
    return built.stack.version_of(_normal(distribution))


def venv_host(
    wanted: Environment, framework: str, preparation: Preparation, *, is_trusted: bool = True
) -> tuple[BuiltEnvironment, Host]:
    """The venv of a need or of a stack, and the place that it is; also for who has no plan."""
    from mlmodelscope.provision.environments import Environments
    from mlmodelscope.provision.libraries import library_variables

    environments = Environments(preparation.home)
    if wanted.stack is not None:
        built = environments.rebuild(
            wanted.stack, may_install=preparation.may_install, may_build=is_trusted, say=preparation.say
        )
    else:
        assert wanted.need is not None
        built = environments.make(
            wanted.need,
            may_install=preparation.may_install,
            # a stranger's choice of packages must not run outside of the sandbox; the stacks we test are our choice
            may_build=is_trusted or is_tested(wanted.need),
            say=preparation.say,
        )
    variables = library_variables(framework, preparation.home)
    return built, _Venv(
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
    is_trusted: bool = True

    @contextmanager
    def opened(self, run_folder: Path, files: Sequence[str]) -> Iterator[FrameworkHost | None]:
        note_use(self.portable)
        with shared_folder() as shared, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            address = shared / _SOCKET
            listening.bind(str(address))
            listening.listen(2)
            reached = FrameworkHost(
                python=self.python, portable=str(self.portable), listener=listening.fileno(), shared=str(shared)
            )
            with self._start(shared, run_folder, files) as one, _told_of_end(one, address), _explaining(one):
                yield reached

    def close(self) -> None:
        self.engine.close()

    def _start(self, shared: Path, run_folder: Path, files: Sequence[str]) -> Container:
        from mlmodelscope.provision.containers import Mount

        progress = run_folder / "progress"
        progress.write_bytes(bytes(8))
        readable = sorted({self.portable, *map(Path, files)})
        mounts = [Mount(path, path, is_read_only=False) for path in (shared, progress)]
        cpus = _allowed_processors()
        is_bound = self.engine.can_limit("cpuset")
        command = shim_command(
            self.python,
            str(self.portable),
            f"unix:{shared / _SOCKET}",
            str(shared),
            is_isolated=False,
            # where the engine cannot, the process binds itself, as one that we had started would be bound
            cpus=() if is_bound else cpus,
        )
        return self.engine.start(
            self.image,
            command,
            mounts=[*mounts, *(Mount(path, path) for path in readable)],
            variables={**self.variables, "HOME": "/tmp"},  # noqa: S108 - the container's own
            network=self.network,
            cpus=",".join(map(str, cpus)) if cpus and is_bound else None,
            memory_bytes=self.memory_bytes,
            pids=self._most_tasks(),
            # the sandbox has none either
            gpus=self.is_trusted and self.engine.has_gpu,
        )

    def _most_tasks(self) -> int | None:
        """A stranger's container has the limit of the sandbox, or does not start; any other has one where it can be."""
        if not self.is_trusted:
            return MOST_TASKS
        return _MOST_TRUSTED_TASKS if self.engine.can_limit("pids") else None


def _allowed_processors() -> list[int]:
    """Those that this process may use; none where it may use all of the machine's."""
    allowed = sorted(os.sched_getaffinity(0))
    return [] if len(allowed) == os.sysconf("SC_NPROCESSORS_ONLN") else allowed


@contextmanager
def _told_of_end(container: Container, address: Path) -> Iterator[None]:
    """Inside, a worker that waits for the container's call gets one that says nothing as soon as the container ends."""
    awake, wake = socket.socketpair()
    watching = threading.Thread(target=_call_at_end, args=(container, address, awake), daemon=True)
    with wake:
        watching.start()
        try:
            yield
        finally:
            wake.shutdown(socket.SHUT_RDWR)
            watching.join(2 * _END_SECONDS)


def _call_at_end(container: Container, address: Path, awake: socket.socket) -> None:
    """Sleeps until the container's process ends, or until the other end of `awake`, which it closes, is shut."""
    # an engine that does not answer is noticed, and told, by whoever asks it next
    with awake, suppress(MLModelScopeError, OSError):
        pid = container.pid
        if pid is not None and not _ends_first(pid, awake):
            return
        # the number may mean another process where the engine counts in a namespace of its own
        container.wait(_END_SECONDS)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
            end.settimeout(_END_SECONDS)
            end.connect(str(address))


def _ends_first(pid: int, awake: socket.socket) -> bool:
    """Whether the process ends before the socket says something."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        sleep = select.poll()
        sleep.register(process, select.POLLIN)
        sleep.register(awake, select.POLLIN)
        return awake.fileno() not in {descriptor for descriptor, _ in sleep.poll()}
    finally:
        os.close(process)


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

    with ExitStack() as undo:
        engine = undo.enter_context(find_engine(preparation.home))
        prepared = _prepare_image(plan, engine, preparation.home)
        undo.pop_all()
    return prepared


def _prepare_image(plan: EvaluationPlan, engine: Engine, home: Path) -> tuple[EvaluationPlan, Host]:
    image = plan.environment.image
    assert image is not None
    if not plan.is_trusted:
        # before anything of the image runs
        engine.require("memory", "pids")
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
        portable=portable_folder(home),
        variables=framework_variables(plan.threads, predictor.environment),
        memory_bytes=plan.request.limits.memory_bytes,
        # a stranger's manifest gets none, whatever it says
        network=plan.is_trusted and plan.model.attributes.get("network") is True,
        is_trusted=plan.is_trusted,
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
