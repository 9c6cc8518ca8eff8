"""A container that was started -> its end: exit code, the last words of its log, and the error that it stands for."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlmodelscope.core.errors import (
    EnvironmentMissingError,
    MemoryLimitError,
    MLModelScopeError,
    TimeLimitError,
    WorkerCrashError,
)
from mlmodelscope.provision.containers.translation import is_absent, is_timeout, translating

__all__ = ["Container", "Mount", "describe_exit", "remove_container"]

_LOG_LINES = 200
_LOG_TAIL_BYTES = 8192
_KILL_SECONDS = 30
_OUT_OF_MEMORY = 128 + signal.SIGKILL
# what runtimes leave with where the command itself could not be run
_NOT_STARTED = {126: "cannot be executed", 127: "is not there"}


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the host that a container sees at `target`."""

    source: Path
    target: Path
    is_read_only: bool = True


class Container:
    """One running container. Leaving it as a context manager removes it, whatever state it is in.

    Methods may be called from any thread. An engine that does not answer any more is an EnvironmentMissingError.
    """

    def __init__(self, client: Any, name: str, image: str, memory_bytes: int | None) -> None:
        self._client = client
        self.name = name
        self.image = image
        self._memory_bytes = memory_bytes
        self._was_killed = False
        self._exit_code: int | None = None
        self._last_log: str | None = None

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def pid(self) -> int | None:
        """The process id of its first process as this machine counts; None once it ended."""
        return int(self._state().get("Pid") or 0) or None

    @property
    def is_running(self) -> bool:
        return bool(self._state().get("Running"))

    def wait(self, timeout_seconds: float | None = None) -> int:
        """Sleeps until it ends and gives its exit code; TimeLimitError where it does not end in time."""
        if self._exit_code is not None:
            return self._exit_code
        try:
            with translating("wait for a container"):
                answer = self._client.wait(self.name, timeout=timeout_seconds)
        except EnvironmentMissingError as error:
            if timeout_seconds is None or not is_timeout(error.__cause__):
                raise
            raise TimeLimitError(
                f"the container did not end within {timeout_seconds:g} s", seconds=timeout_seconds, image=self.image
            ) from None
        self._exit_code = int(answer["StatusCode"])
        return self._exit_code

    def kill(self) -> None:
        """Ends all its processes at once; one that ended already is left as it is."""
        if not self.is_running:
            return
        self._was_killed = True
        # it may end between the question and the signal
        with suppress(EnvironmentMissingError):
            with translating("kill a container"):
                self._client.kill(self.name, signal="SIGKILL")
            self.wait(_KILL_SECONDS)

    def remove(self) -> None:
        """It is gone, with its log and its anonymous volumes; the second time nothing happens."""
        if self._last_log is None:
            with suppress(EnvironmentMissingError):
                self._last_log = self.log_tail()
        remove_container(self._client, self.name)

    def log_tail(self) -> str:
        """The end of what it wrote to its standard output and error; after `remove`, as it was then."""
        if self._last_log is not None:
            return self._last_log
        with translating("read a container's log"):
            told: bytes = self._client.logs(self.name, stdout=True, stderr=True, tail=_LOG_LINES)
        return told[-_LOG_TAIL_BYTES:].decode("utf-8", "replace")

    def output(self) -> str:
        """All that it wrote to its standard output and the engine kept."""
        with translating("read a container's log"):
            told: bytes = self._client.logs(self.name, stdout=True, stderr=False)
        return told.decode("utf-8", "replace")

    def exit_error(self, stage: str) -> MLModelScopeError | None:
        """Why it ended; None where it runs, left with 0, or was ended by `kill`. Not to be asked after `remove`."""
        state = self._state()
        if state.get("Running") or self._was_killed:
            return None
        code = int(state.get("ExitCode") or 0)
        return describe_exit(code, bool(state.get("OOMKilled")), stage, self.image, self._memory_bytes)

    def _state(self) -> dict[str, Any]:
        with translating("ask about a container"):
            found: dict[str, Any] = self._client.inspect_container(self.name)["State"]
        return found


def remove_container(client: Any, name: str) -> None:
    """Ends and removes it; one that is not there is fine."""
    for attempt in (1, 2, 3):
        try:
            with translating("remove a container"):
                client.remove_container(name, v=True, force=True)
            return
        except EnvironmentMissingError as error:
            if is_absent(error.__cause__):
                return
            # another process may be removing it at this moment
            if attempt == 3:
                raise
            time.sleep(0.2)


def describe_exit(
    code: int, is_out_of_memory: bool, stage: str, image: str, memory_bytes: int | None
) -> MLModelScopeError | None:
    """The error behind an exit code, as engines report it: 128 and more is a signal. None for 0.

    Podman does not tell when the kernel ended a process for want of memory, so SIGKILL alone counts as that.
    """
    facts: dict[str, Any] = {"stage": stage, "image": image, "exit_code": code}
    if is_out_of_memory or code == _OUT_OF_MEMORY:
        if memory_bytes is None:
            return MemoryLimitError(
                f"the container was killed in stage {stage}: the machine ran out of memory",
                hint="use a smaller batch; or somebody ended the container from outside",
                **facts,
            )
        return MemoryLimitError(
            f"the container grew beyond its limit of {memory_bytes / 1e6:.0f} MB in stage {stage} and was killed",
            hint="use a smaller batch, or allow more memory",
            limit_bytes=memory_bytes,
            **facts,
        )
    if code == 0:
        return None
    if code in _NOT_STARTED:
        return EnvironmentMissingError(f"the command for the image {image} {_NOT_STARTED[code]}", **facts)
    if code > 128:
        name = _signal_name(code - 128)
        # the kernel lets no signal that it sends itself end the first process of a container, so abort() faults instead
        hint = "a framework that aborts ends like this, too: its log says more" if name == "SIGSEGV" else None
        return WorkerCrashError(f"the container was killed by {name} in stage {stage}", hint=hint, signal=name, **facts)
    return WorkerCrashError(f"the container left with exit code {code} in stage {stage}", **facts)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
