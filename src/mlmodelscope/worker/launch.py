"""Starts a worker for one job, watches its limits while it sleeps on the socket, and turns its end into a result.

The worker is the leader of its own session and process group. Whatever ends the launch (success, a limit, Ctrl-C, the
death of this process), the whole group is killed: by us, or by the worker's guardian once our end of its pipe closes.
An untrusted job's worker runs in the sandbox, whose process namespace ends with it: no child of it can stay behind.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlmodelscope.core.errors import (
    Interrupted,
    MemoryLimitError,
    MLModelScopeError,
    ProcessLimitError,
    SandboxError,
    TimeLimitError,
    WorkerCrashError,
)
from mlmodelscope.core.record import STAGES, Stage
from mlmodelscope.core.request import Limits
from mlmodelscope.measure.memory import group_resident_bytes
from mlmodelscope.measure.processes import children_of, read_tree
from mlmodelscope.worker.job import Job
from mlmodelscope.worker.protocol import PROTOCOL_VERSION, Channel, ProtocolViolation
from mlmodelscope.worker.results import checked_error, checked_message
from mlmodelscope.worker.sandbox import HINT, MOST_TASKS, SCRATCH_BYTES, find_bwrap, sandboxed, shared_bytes

__all__ = ["LaunchFailed", "WorkerEvent", "launch"]

_PROGRESS_STAGES = ("prepare", "warmup", "measure", "trace", "accuracy")
_LOG_TAIL_BYTES = 4000
_STALL_SECONDS = 30.0
_NAMESPACE_SECONDS = 10.0
# a file of tensors for each way, and some room
_MOST_SHARED_BYTES = 3 * SCRATCH_BYTES


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """What a person may want to see: the stage just entered, or how far it is."""

    launch: int
    stage: Stage
    done: int = 0
    total: int | None = None


class LaunchFailed(Exception):  # noqa: N818 - carries the error, is not one of the tree
    """A launch without a result: the typed error, the stage and the end of the worker's log."""

    def __init__(self, error: MLModelScopeError, stage: str, log_tail: str) -> None:
        super().__init__(error.message)
        self.error, self.stage, self.log_tail = error, stage, log_tail


def launch(
    job: Job,
    limits: Limits,
    environment: Mapping[str, str],
    on_event: Callable[[WorkerEvent], None] = lambda event: None,
) -> dict[str, Any]:
    """The worker's final message. Raises LaunchFailed, or Interrupted on Ctrl-C; the group is gone in any case.

    SandboxError: the job is untrusted and there is no sandbox here; then nothing was started.
    """
    folder = Path(job.run_folder)
    (folder / "progress").write_bytes(bytes(8))
    with _Worker(job, folder / f"worker-{job.index}.log", environment) as worker:
        shared = job.host.shared if job.host and worker.is_sandboxed else None
        watch = _Watch(worker, limits, job.index, on_event, Path(shared) if shared else None)
        try:
            worker.channel.send({"type": "job", "version": PROTOCOL_VERSION, "job": job.model_dump(mode="json")})
            return watch.until_done(folder)
        except (MLModelScopeError, ProtocolViolation, ConnectionError) as error:
            worker.kill()
            raise LaunchFailed(_typed(error, worker, watch.stage), watch.stage, worker.log_tail()) from error
        except KeyboardInterrupt:
            raise Interrupted from None


def _listener(job: Job) -> tuple[int, ...]:
    return () if job.host is None or job.host.listener is None else (job.host.listener,)


def _typed(error: Exception, worker: _Worker, stage: str) -> MLModelScopeError:
    if isinstance(error, MLModelScopeError):
        return error
    if isinstance(error, ConnectionError):
        return worker.crash(stage)
    return WorkerCrashError(f"the worker broke the protocol: {error}", stage=stage)


class _Worker:
    """The child process, its socket, its guardian's pipe and its log."""

    def __init__(self, job: Job, log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        self.is_sandboxed = job.environment.is_sandboxed
        self._namespace: int | None = None
        bwrap = find_bwrap() if self.is_sandboxed else None
        ours, theirs = socket.socketpair()
        guard_read, self._guard_write = os.pipe()
        try:
            command = [sys.executable, "-P", "-m", "mlmodelscope.worker.main", str(theirs.fileno()), str(guard_read)]
            if bwrap is not None:
                command = sandboxed(bwrap, command, job, environment)
            with log.open("wb") as output:
                self.process = subprocess.Popen(
                    command,
                    pass_fds=(theirs.fileno(), guard_read, *_listener(job)),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=dict(environment),
                    start_new_session=True,
                )
        except (OSError, SandboxError):
            ours.close()
            os.close(self._guard_write)
            raise
        finally:
            theirs.close()
            os.close(guard_read)
        self.channel = Channel(ours, _STALL_SECONDS)

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.channel.close()
        # last of all: the guardian wakes on this and kills whatever is left of the group
        os.close(self._guard_write)

    def greeted(self) -> None:
        """The worker has spoken. In the sandbox: remember the first process of its namespace, whose end is the end of
        all in it."""
        if self.is_sandboxed and self._namespace is None:
            with suppress(OSError):
                self._namespace = next((os.pidfd_open(pid) for pid in children_of(self.process.pid)), None)

    def kill(self) -> None:
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self._namespace is not None:
            # it dies with bubblewrap's process outside, and is gone only after every process inside
            select.select([self._namespace], [], [], _NAMESPACE_SECONDS)
            os.close(self._namespace)
            self._namespace = None

    def crash(self, stage: str) -> WorkerCrashError | SandboxError:
        """Why a worker that says nothing any more ended."""
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
            return WorkerCrashError(f"the worker hung up in stage {stage}", stage=stage)
        if self.is_sandboxed:
            if self._namespace is None:
                lines = self.log_tail().strip().splitlines() or [f"exit code {code}"]
                return SandboxError(f"the sandbox did not start: {lines[-1]}", hint=HINT, reason=lines[-1])
            # bubblewrap tells the signal that ended the worker as shells do
            code = 128 - code if code > 128 else code
        if code < 0:
            name = signal.Signals(-code).name
            hint = "the kernel may have run out of memory: use a smaller batch" if name == "SIGKILL" else None
            return WorkerCrashError(f"the worker was killed by {name} in stage {stage}", hint=hint, signal=name)
        return WorkerCrashError(f"the worker left with exit code {code} in stage {stage}", exit_code=code)

    def log_tail(self) -> str:
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, self._log.stat().st_size - _LOG_TAIL_BYTES))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""


@dataclass(slots=True)
class _Watch:
    """Waits for the worker's messages and ends it when a limit is passed. Wakes only to look at limits and progress.

    `shared` is the folder of this machine's memory that a stranger may fill, together with a container.
    """

    worker: _Worker
    limits: Limits
    index: int
    on_event: Callable[[WorkerEvent], None]
    shared: Path | None = None
    stage: Stage = "start"
    _said_hello: bool = False
    _total: int | None = None
    _count: int = 0
    _moved_at: float = field(default_factory=time.monotonic)
    _began_at: float = field(default_factory=time.monotonic)

    def until_done(self, folder: Path) -> dict[str, Any]:
        tick = self._tick_seconds()
        looked_at = time.monotonic()
        # read, not mapped: the worker may make the file shorter, and a mapping would then kill us
        with (folder / "progress").open("rb", buffering=0) as file:
            while True:
                # a worker that talks without end is looked at all the same
                if not self._has_message(tick) or time.monotonic() - looked_at > tick:
                    self._look(int.from_bytes(os.pread(file.fileno(), 8, 0), sys.byteorder))
                    looked_at = time.monotonic()
                    continue
                message = self.worker.channel.receive()
                if message is None:
                    raise self.worker.crash(self.stage)
                self._check_version(message)
                if message["type"] == "done":
                    return checked_message(message, is_first=self.index == 0)
                self._take(message)

    def _has_message(self, seconds: float) -> bool:
        readable, _, _ = select.select([self.worker.channel], [], [], seconds)
        return bool(readable)

    def _tick_seconds(self) -> float:
        if self.limits.memory_bytes is not None:
            return 0.2
        shortest = min(self.limits.sample_seconds or 4.0, self.limits.run_seconds or 4.0)
        return min(1.0, max(0.05, shortest / 4))

    def _check_version(self, message: dict[str, Any]) -> None:
        self.worker.greeted()
        if not self._said_hello and message.get("version") != PROTOCOL_VERSION:
            raise ProtocolViolation(f"it speaks version {message.get('version')}, not {PROTOCOL_VERSION}")
        self._said_hello = True

    def _take(self, message: dict[str, Any]) -> None:
        if message["type"] == "hello":
            return
        if message["type"] not in ("failed", "stage") or message.get("stage") not in STAGES:
            raise ProtocolViolation(f"unknown message {message['type']!r} of stage {message.get('stage')!r}")
        self.stage, self._total = message["stage"], message.get("total")
        if self._total is not None and not isinstance(self._total, int):
            raise ProtocolViolation(f"a stage of {self._total!r} queries")
        if message["type"] == "failed":
            raise checked_error(message.get("error"))
        self._moved_at = time.monotonic()
        self.on_event(WorkerEvent(self.index, self.stage, 0, self._total))

    def _look(self, count: int) -> None:
        # children that outlive the worker hold its socket open, so its end may come without an end of file
        if self.worker.process.poll() is not None and not self._has_message(0):
            raise self.worker.crash(self.stage)
        now = time.monotonic()
        if count != self._count:
            self._count, self._moved_at = count, now
        self.on_event(WorkerEvent(self.index, self.stage, count, self._total))
        limits = self.limits
        if limits.run_seconds is not None and now - self._began_at > limits.run_seconds:
            raise TimeLimitError(
                f"the launch took longer than {limits.run_seconds:g} s (stage {self.stage})",
                hint="raise it with --time-limit",
                limit="run",
                seconds=limits.run_seconds,
            )
        waits = self.stage in _PROGRESS_STAGES and limits.sample_seconds is not None
        if waits and now - self._moved_at > (limits.sample_seconds or 0):
            raise TimeLimitError(
                f"one query took longer than {limits.sample_seconds:g} s (stage {self.stage}, after {count} queries)",
                hint="raise it with --sample-time-limit",
                limit="sample",
                seconds=limits.sample_seconds,
            )
        self._look_at_memory()

    def _look_at_memory(self) -> None:
        limit = self.limits.memory_bytes
        used = self._used_bytes() if limit is not None or self.worker.is_sandboxed else 0
        if limit is not None and used > limit:
            raise MemoryLimitError(
                f"the worker used {used} bytes of memory, more than the limit of {limit} (stage {self.stage})",
                hint="raise it with --memory-limit",
                used_bytes=used,
                limit_bytes=limit,
            )
        if self.shared is not None and shared_bytes(self.shared, _MOST_SHARED_BYTES) > _MOST_SHARED_BYTES:
            raise MemoryLimitError(
                f"the worker and its container share files of more than {_MOST_SHARED_BYTES} bytes",
                hint="use a smaller batch",
                limit_bytes=_MOST_SHARED_BYTES,
            )

    def _used_bytes(self) -> int:
        pid = self.worker.process.pid
        if not self.worker.is_sandboxed:
            return group_resident_bytes(pid)
        tree = read_tree(pid, MOST_TASKS)
        if tree.tasks > MOST_TASKS:
            raise ProcessLimitError(
                f"the worker has more than {MOST_TASKS} processes and threads (stage {self.stage})",
                hint="untrusted code may not start so many",
                limit_tasks=MOST_TASKS,
            )
        limit = self.limits.memory_bytes
        # children share the worker's pages: counting those once takes longer, and is seldom needed
        return tree.resident_bytes if limit is None or tree.resident_bytes <= limit else tree.held_bytes()
