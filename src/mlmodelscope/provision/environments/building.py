"""A need or a recorded stack -> an environment at its address: solved, installed beside it, put there in one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from mlmodelscope.core import settings
from mlmodelscope.core.errors import DigestError, UnsatisfiableError, UsageError
from mlmodelscope.core.stack import BuiltEnvironment, Stack, StackNeed
from mlmodelscope.provision.durable import private_folder
from mlmodelscope.provision.environments.bytecode import compile_all
from mlmodelscope.provision.environments.caches import cache_folder
from mlmodelscope.provision.environments.indexes import tool_environment, uv_environment
from mlmodelscope.provision.environments.interpreters import Interpreter, Interpreters
from mlmodelscope.provision.environments.libraries import check_libraries
from mlmodelscope.provision.environments.locks import LockedFile, stack_of
from mlmodelscope.provision.environments.sizes import download_sizes, format_size
from mlmodelscope.provision.environments.store import EnvironmentStore, address_of, folder_sizes
from mlmodelscope.provision.environments.uv import InterpreterRefused, Uv
from mlmodelscope.provision.environments.with_pip import WithPip
from mlmodelscope.provision.environments.with_uv import WithUv
from mlmodelscope.provision.pip_settings import load_pip_settings

__all__ = ["ASKED_BYTES", "Builder"]

# an install that takes more than this is asked about first
ASKED_BYTES = 1_000_000_000
# about how much larger a wheel is when it is unpacked
_UNPACKED = 3


class _Installer(Protocol):
    """Chooses files and installs them; one per environment that is made."""

    @property
    def is_offline(self) -> bool: ...

    def solve(self, need: StackNeed, interpreter: Interpreter) -> list[LockedFile]: ...

    def install(
        self, subject: str, files: Sequence[LockedFile], interpreter: Interpreter, venv: Path, kept: Sequence[int]
    ) -> None: ...


class Builder:
    """Makes environments. `may_install` is asked about large ones; `say` gets a line of progress at a time."""

    def __init__(
        self, home: Path, store: EnvironmentStore, may_install: Callable[[int], bool], say: Callable[[str], None]
    ) -> None:
        self._home = home
        self._cache = home / "cache"
        self._store = store
        self._may_install = may_install
        self._say = say
        self._interpreters = Interpreters(self._cache / "interpreters.json")

    def make(self, need: StackNeed) -> BuiltEnvironment:
        check_libraries(need.framework, need.libraries)
        interpreter = self._interpreters.find(need.python)
        self._say(f"choosing packages for {need.framework} on Python {interpreter.version}")
        with private_folder(self._cache / "solving") as folder:
            installer: _Installer = WithUv(self._uv(), folder)
            try:
                files = installer.solve(need, interpreter)
            except InterpreterRefused:
                installer = WithPip(tool_environment(settings.child_environment()), folder)
                files = installer.solve(need, interpreter)
            size = need.size_bytes or self._forecast(files, installer)
            return self._install(need.framework, interpreter, files, installer, size)

    def rebuild(self, stack: Stack) -> BuiltEnvironment:
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
            raise DigestError(
                "the environment with these versions was made here from other files than the recorded ones",
                hint=f"remove it first: mlmodelscope environments remove {address_of(existing.digest)}",
                digest=existing.digest,
            )
        # a record does not say which came as wheels
        files = [LockedFile(p.name, p.version, p.sha256, is_wheel=False) for p in stack.packages]
        with private_folder(self._cache / "solving") as folder:
            try:
                return self._install("this record", interpreter, files, WithUv(self._uv(), folder), None)
            except InterpreterRefused:
                own = WithPip(tool_environment(settings.child_environment()), folder)
                return self._install("this record", interpreter, files, own, None)

    def _uv(self) -> Uv:
        configured = load_pip_settings()
        environment = settings.child_environment()
        environment = uv_environment(environment, configured, cache_folder(self._home, environment))
        return Uv(environment, has_index=bool(configured.indexes))

    def _forecast(self, files: Sequence[LockedFile], installer: _Installer) -> int | None:
        sizes = download_sizes(files, is_offline=installer.is_offline)
        return sum(sizes) * _UNPACKED if sizes else None

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
                compile_all(venv, interpreter, files, self._cache / "bytecode", (lock,))
                if size is None:
                    self._ask(subject, sum(folder_sizes(entry)))
                return self._store.place(entry, stack)

    def _ask(self, subject: str, size: int | None) -> None:
        if size is not None and size > ASKED_BYTES and not self._may_install(size):
            raise UsageError(
                f"the environment of {subject} takes about {format_size(size)} on disk",
                hint="add --yes to install it",
                size_bytes=size,
            )

    def _say_waiting(self) -> None:
        self._say("waiting for another process that makes this environment")
