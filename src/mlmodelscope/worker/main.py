"""Turns one job into one launch: joins process, predict and measure in the child process that hosts the framework.

Started by `worker.launch` as `python -m mlmodelscope.worker.main SOCKET GUARD`. All timing happens here, with the
monotonic clock, after warm-up. Between two stage messages nothing is sent: the parent reads the progress counter.
"""

from __future__ import annotations

import errno
import mmap
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlmodelscope.core.errors import MLModelScopeError
from mlmodelscope.core.value import digest_of
from mlmodelscope.worker.protocol import PROTOCOL_VERSION, Channel
from mlmodelscope.worker.session import Session

if TYPE_CHECKING:
    from mlmodelscope.worker.job import Job

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    channel_fd, guard_fd = (int(text) for text in arguments)
    _start_guardian(guard_fd)
    channel = Channel(socket.socket(fileno=channel_fd))
    channel.send({"type": "hello", "version": PROTOCOL_VERSION})
    order = channel.receive()
    if order is None or order.get("version") != PROTOCOL_VERSION:
        return 3
    launch = _Launch(channel, order["job"])
    try:
        channel.send({"type": "done", **launch.run()})
    except MLModelScopeError as error:
        channel.send({"type": "failed", "stage": launch.stage, "error": error.to_fields()})
    except MemoryError:
        channel.send({"type": "failed", "stage": launch.stage, "error": _out_of_memory()})
    except OSError as error:
        _log_traceback()
        channel.send({"type": "failed", "stage": launch.stage, "error": _refused_by_system(error)})
    except Exception as error:  # the worker's main: whatever it is must become a stored record
        _log_traceback()
        channel.send({"type": "failed", "stage": launch.stage, "error": _unexpected(error)})
    return 0


def _start_guardian(guard_fd: int) -> None:
    """A tiny process that kills this worker's whole group once the parent is gone.

    It sleeps on a pipe whose other end only the parent holds, so it wakes when the parent dies however it dies. Forked
    first of all, before any framework or thread exists.
    """
    worker_group = os.getpgid(0)
    if os.fork():
        os.close(guard_fd)
        return
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) != guard_fd:
            _close_quietly(int(entry.name))
    while os.read(guard_fd, 1):
        pass
    try:
        os.killpg(worker_group, signal.SIGKILL)
    finally:
        os._exit(0)


def _close_quietly(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        return


def _out_of_memory() -> dict[str, Any]:
    return {"code": "memory_limit", "message": "the worker ran out of memory", "hint": "use a smaller batch size"}


def _log_traceback() -> None:
    # the log may lie on the disk that is full
    with suppress(OSError):
        traceback.print_exc()


def _refused_by_system(error: OSError) -> dict[str, Any]:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        return _unexpected(error)
    return {
        "code": "storage_failed",
        "message": f"the worker cannot write its results: {(error.strerror or str(error)).lower()}",
        "hint": "free some space, or set MLMODELSCOPE_HOME to a folder on another disk",
    }


def _unexpected(error: Exception) -> dict[str, Any]:
    return {
        "code": "worker_crashed",
        "message": f"the worker failed unexpectedly: {type(error).__name__}: {error}",
        "hint": "the end of the worker's log is in the record: mlmodelscope show ID",
    }


class _Launch:
    """The stages of one launch, in order. `stage` is where we are, for whoever must explain a failure."""

    def __init__(self, channel: Channel, job: dict[str, Any]) -> None:
        self.stage = "start"
        self._entered: list[tuple[str, int]] = []
        self._channel = channel
        self._job = job

    def _enter(self, stage: str, **facts: Any) -> None:
        self.stage = stage
        self._entered.append((stage, time.monotonic_ns()))
        self._channel.send({"type": "stage", "stage": stage, **facts})

    def run(self) -> dict[str, Any]:
        from mlmodelscope.worker.job import Job

        job = Job.model_validate(self._job)
        if job.environment.is_sandboxed:
            from mlmodelscope.worker.sandbox import apply_limits

            apply_limits()
        start_ns = time.monotonic_ns() - job.spawned_ns
        anchor: dict[str, Any] = {"started_at": datetime.now(UTC).isoformat(), "anchor_ns": time.monotonic_ns()}
        with _progress_counter(Path(job.run_folder)) as progress, _opened(job, progress) as session:
            self._enter("load")
            execution = session.load()
            if job.layers is None:
                self._enter("prepare")
                session.prepare()
                self._enter("warmup")
                session.warm_up()
            measured: dict[str, Any] = {"queries": 0, "samples": 0, "duration_ns": 0, "noise": {"duration_ns": 0}}
            if job.measures_performance:
                self._enter("measure")
                measured = session.measure()
            traced: dict[str, Any] | None = None
            if job.is_traced:
                self._enter("trace")
                measured, traced = session.trace(self._entered, **anchor)
            peak = session.peak_memory_bytes()
            if job.measures_accuracy:
                self._enter("accuracy", total=len(session.dataset))
                session.predict_all()
            if job.layers is not None:
                self._enter("accuracy", total=len(session.dataset))
                session.reveal(job.layers)
            # asked while the framework is still there, and after everything that could load another library
            software = session.software() if job.index == 0 else None
            self._enter("unload")
            session.unload()
        return {
            "execution": execution,
            "performance_set": session.performance_set,
            "sample_count": len(session.dataset),
            "sample_ids_digest": digest_of(session.dataset.ids()),
            "launch": {
                **anchor,
                **measured,
                "index": job.index,
                "start_ns": start_ns,
                "load_ns": session.load_ns,
                "first_inference_ns": session.first_inference_ns,
                "peak_memory_bytes": peak,
                "loaded_memory_bytes": session.loaded_memory_bytes,
                "clock": session.clock_name,
            },
            "trace": traced,
            "software": software,
            "system": session.system() if job.index == 0 else None,
        }


@contextmanager
def _opened(job: Job, progress: memoryview) -> Iterator[Session]:
    """The session of the job. After a failure this process ends, and with it all that it holds: only what it has
    elsewhere must be let go, before anybody hears of the failure and kills us."""
    session = Session(job, progress)
    try:
        yield session
    except BaseException:
        session.let_go()
        raise


@contextmanager
def _progress_counter(folder: Path) -> Iterator[memoryview]:
    """The counter in shared memory that the worker writes and the parent reads."""
    with (folder / "progress").open("r+b") as file, mmap.mmap(file.fileno(), 8) as shared:
        counter = memoryview(shared).cast("q")
        try:
            yield counter
        finally:
            counter.release()


def _run(entry: Callable[[list[str]], int]) -> None:
    code = entry(sys.argv[1:])
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    # frameworks may crash or hang in their own exit handlers; everything of ours is already written
    os._exit(code)


if __name__ == "__main__":
    _run(main)
