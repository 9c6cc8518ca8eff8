"""A need or a recorded stack -> an environment at its address: solved, installed beside it, put there in one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from mlmodelscope.core import settings
from mlmodelscope.core.errors import DigestError, MLModelScopeError, UnsatisfiableError, UsageError
from mlmodelscope.core.stack import BuiltEnvironment, Stack, StackNeed
from mlmodelscope.provision.durable import private_folder
from mlmodelscope.provision.environments.bytecode import compile_all
from mlmodelscope.provision.environments.caches import cache_folder
from mlmodelscope.provision.environments.indexes import tool_environment, uv_environment
from mlmodelscope.provision.environments.interpreters import Interpreter, Interpreters
from mlmodelscope.provision.environments.libraries import check_libraries
from mlmodelscope.provision.environments.locks import LockedFile, check_stack, stack_of
from mlmodelscope.provision.environments.sizes import UNPACKED, download_sizes, expected_size, format_size
from mlmodelscope.provision.environments.store import EnvironmentStore, address_of, folder_sizes, has_files_of
from mlmodelscope.provision.environments.uv import DatesUnknown, InterpreterRefused, Uv
from mlmodelscope.provision.environments.with_pip import WithPip
from mlmodelscope.provision.environments.with_uv import WithUv
from mlmodelscope.provision.pip_settings import load_pip_settings

__all__ = ["ASKED_BYTES", "Builder"]

# an install that takes more than this is asked about first
ASKED_BYTES = 1_000_000_000


class _Installer(Protocol):
    """Installs files; one per environment that is made."""

    @property
    def is_offline(self) -> bool: ...

    def install(
        self, subject: str, files: Sequence[LockedFile], interpreter: Interpreter, venv: Path, kept: Sequence[int]
    ) -> None: ...


class Builder:
    """Makes one environment. `may_install` is asked if it is large; `say` gets a line of progress at a time.

    Without `may_build` it is of wheels alone: nothing that a package brings along runs while it is made.
    """

    def __init__(
        self,
        home: Path,
        store: EnvironmentStore,
        may_install: Callable[[int], bool],
        say: Callable[[str], None],
        *,
        may_build: bool = True,
    ) -> None:
        self._home = home
        self._cache = home / "cache"
        self._store = store
        self._may_install = may_install
        self._may_build = may_build
        self._is_allowed = False
        self._say = say
        self._interpreters = Interpreters(self._cache / "interpreters.json")

    def make(self, need: StackNeed) -> BuiltEnvironment:
        check_libraries(need.framework, need.libraries)
        interpreter = self._interpreters.find(need.python)
        self._say(f"choosing packages for {need.framework} on Python {interpreter.version}")
        with private_folder(self._cache / "solving") as folder:
            uv = self._with_uv(folder)
            try:
                files = self._solve(uv, need, interpreter)
            except InterpreterRefused:
                pip = self._with_pip(folder)
                # pip fetches what it chooses, so this is asked before
                self._ask(need.framework, expected_size(need.size_bytes, self._foresee(uv, need, interpreter)))
                files = pip.solve(need, interpreter)
                size = expected_size(need.size_bytes, self._forecast(files, pip))
                return self._install(need.framework, interpreter, files, pip, size)
            size = expected_size(need.size_bytes, self._forecast(files, uv))
            return self._install(need.framework, interpreter, files, uv, size)

    def _solve(self, uv: WithUv, need: StackNeed, interpreter: Interpreter) -> list[LockedFile]:
        try:
            return uv.solve(need, interpreter)
        except DatesUnknown:
            self._say(
                f"the index does not tell when files were published: taking those of {need.as_of} by their bounds"
            )
            return uv.solve(need.model_copy(update={"as_of": None}), interpreter)

    def _foresee(self, uv: WithUv, need: StackNeed, interpreter: Interpreter) -> int | None:
        try:
            return self._forecast(uv.foresee(need, interpreter), uv)
        # the interpreter's own pip will say what is wrong, or find a way
        except (InterpreterRefused, MLModelScopeError):
            return None

    def rebuild(self, stack: Stack) -> BuiltEnvironment:
        check_stack(stack)
        interpreter = self._interpreters.find((stack.python, ".".join(stack.python.split(".")[:2])))
        if (interpreter.platform, interpreter.implementation) != (stack.platform, stack.implementation):
            raise UnsatisfiableError(
                f"the recorded environment is of {stack.implementation} on {stack.platform}, "
                f"and this is {interpreter.implementation} on {interpreter.platform}",
                hint="reproduce it on a machine of that kind",
                needed=stack.platform,
                found=interpreter.platform,
            )
        existing = self._store.load(stack.digest)
        if existing is not None:
            return _checked(existing, stack)
        # a record does not say which came as wheels
        files = [LockedFile(p.name, p.version, p.sha256, is_wheel=False) for p in stack.packages]
        with private_folder(self._cache / "solving") as folder:
            uv = self._with_uv(folder)
            # what is wrong with them, installing will say in its own words
            with suppress(InterpreterRefused, MLModelScopeError):
                files = uv.locate(files, interpreter)
            size = self._forecast(files, uv)
            try:
                built = self._install("this record", interpreter, files, uv, size)
            except InterpreterRefused:
                built = self._install("this record", interpreter, files, self._with_pip(folder), size)
        # another process may have made it meanwhile
        return _checked(built, stack)

    def _with_uv(self, folder: Path) -> WithUv:
        configured = load_pip_settings()
        environment = settings.child_environment()
        environment = uv_environment(environment, configured, cache_folder(self._home, environment))
        return WithUv(Uv(environment, has_index=bool(configured.indexes)), folder, may_build=self._may_build)

    def _with_pip(self, folder: Path) -> WithPip:
        return WithPip(tool_environment(settings.child_environment()), folder, may_build=self._may_build)

    def _forecast(self, files: Sequence[LockedFile], installer: _Installer) -> int | None:
        sizes = download_sizes(files, is_offline=installer.is_offline, cache=self._cache / "sizes.json")
        return sum(sizes) * UNPACKED if sizes else None

    def _install(
        self,
        subject: str,
        interpreter: Interpreter,
        files: Sequence[LockedFile],
        installer: _Installer,
        size: int | None,
    ) -> BuiltEnvironment:
        stack = stack_of(interpreter, files)
        with self._store.making(stack.digest, self._say_waiting) as lock:
            found = self._store.load(stack.digest)
            if found is not None:
                return found
            self._store.sweep(stack.digest)
            self._ask(subject, size)
            about = f", about {format_size(size)}" if size else ""
            self._say(f"installing {len(files)} packages for {subject}{about}")
            with self._store.new_entry(stack.digest) as entry:
                venv, failed = entry / "venv", f"the packages of {subject} cannot be installed"
                installer.install(failed, files, interpreter, venv, (lock,))
                self._say("compiling what was not compiled before")
                bytecode = self._cache / "bytecode"
                compile_all(venv, interpreter, files, bytecode, (lock,), may_share=self._may_build)
                # a forecast may be wrong, or of those files alone whose sizes somebody tells
                self._ask(subject, sum(folder_sizes(entry)))
                return self._store.place(entry, stack)

    def _ask(self, subject: str, size: int | None) -> None:
        if size is None or size <= ASKED_BYTES or self._is_allowed:
            return
        self._is_allowed = self._may_install(size)
        if not self._is_allowed:
            raise UsageError(
                f"the environment of {subject} takes about {format_size(size)} on disk",
                hint="add --yes to install it",
                size_bytes=size,
            )

    def _say_waiting(self) -> None:
        self._say("waiting for another process that makes this environment")


def _checked(built: BuiltEnvironment, stack: Stack) -> BuiltEnvironment:
    if not has_files_of(built.stack, stack):
        raise DigestError(
            "the environment with these versions was made here from other files than the recorded ones",
            hint=f"remove it first: mlmodelscope environments remove {address_of(built.digest)}",
            digest=built.digest,
        )
    return built
