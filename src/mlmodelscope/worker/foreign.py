"""A framework's own interpreter -> a predictor like any other: starts the shim there, and hands calls and tensors over.

The shim runs as a child of the worker (`venv`) or in a container that the parent started and that connects back
(`container`). Either way the worker sees an object with the calls of `core.predictor`, and exactly the abilities that
the predictor on the other side has.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from mlmodelscope.core.errors import EnvironmentMissingError, PredictorError, StorageError, WorkerCrashError
from mlmodelscope.core.settings import child_environment
from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.process.portable import FunctionFault
from mlmodelscope.worker.protocol import PROTOCOL_VERSION, Channel, ProtocolViolation
from mlmodelscope.worker.tensors import Inbox, Outbox, RoomFault, TensorFault, fixed_width
from mlmodelscope.worker.values import ValueFault, pack_value, unpack_value

if TYPE_CHECKING:
    from mlmodelscope.core.predictor import Tensors
    from mlmodelscope.process.functions import LoadFunction
    from mlmodelscope.worker.job import FrameworkHost

__all__ = ["ForeignPredictor", "open_foreign", "shim_command"]

_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from mlmodelscope.worker.shim import main; main(sys.argv[1:])"
)
_ANSWER_SECONDS = 120.0
_DOING = {
    "open": "while it started",
    "function": "while it loaded a function of the manifest",
    "call": "in a function of the manifest",
}


def shim_command(
    python: str, portable: str, address: str, folder: str, *, is_isolated: bool = True, cpus: Sequence[int] = ()
) -> list[str]:
    """What starts the shim in any Python from 3.6 on; with `cpus` it keeps to those processors.

    Isolated, the variables of this machine do not count; those of an image do: some find their framework by them.
    """
    isolated = ["-I"] if is_isolated else []
    return [python, *isolated, "-c", _START, portable, address, folder, *map(str, cpus)]


def open_foreign(host: FrameworkHost, entry_point: str) -> ForeignPredictor:
    """The predictor, unloaded. EnvironmentMissingError, WorkerCrashError: its process did not get that far."""
    process = _Process(host)
    try:
        has = process.ask("open", entry_point=entry_point)["abilities"]
    except BaseException:
        process.close()
        raise
    parts = [ability for name, ability in _ABILITIES.items() if name in has]
    kind = type("ForeignPredictor", (*parts, ForeignPredictor), {})
    made: ForeignPredictor = kind(process)
    return made


class _Process:
    """The process on the other side: its channel, its end, and the memory shared with it.

    Threads take turns, an exchange each: a function of the manifest may prepare a sample while another is predicted.
    """

    def __init__(self, host: FrameworkHost) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._owns_folder = host.shared is None
        self.folder = host.shared or _shared_folder()
        self._inbox, self._outbox = Inbox(self.folder), Outbox(self.folder, "in")
        self._turn = Lock()
        try:
            connection = self._accept(host.listener) if host.listener is not None else self._spawn(host)
            self._channel = Channel(connection)
            hello = self._receive("open")
            if hello.get("version") != PROTOCOL_VERSION:
                raise WorkerCrashError(f"the framework's process speaks version {hello.get('version')}")
        except BaseException:
            self.close()
            raise
        self.python = str(hello.get("python"))

    def _spawn(self, host: FrameworkHost) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            address = f"fd:{theirs.fileno()}"
            try:
                self._child = subprocess.Popen(
                    shim_command(host.python, host.portable, address, self.folder),
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    # what a framework prints goes where its complaints go, and never among answers of ours
                    stdout=2,
                    env={**child_environment(), **host.variables},
                )
            except OSError as error:
                ours.close()
                raise EnvironmentMissingError(
                    f"the framework's Python cannot be started: {host.python}: {error.strerror}",
                    hint="make its environment anew: mlmodelscope environments remove ID, then run again",
                    python=host.python,
                ) from error
        return ours

    def _accept(self, listener: int) -> socket.socket:
        """The call of the framework; where its container ends before that, our parent calls and hangs up."""
        with socket.socket(fileno=listener) as listening:
            listening.settimeout(_ANSWER_SECONDS)
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                raise WorkerCrashError(
                    f"the framework's container did not answer within {_ANSWER_SECONDS:g} s", in_container=True
                ) from None
        connection.settimeout(None)
        return connection

    def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The answer to one message; what the other side refuses is raised as it would have been here."""
        with self._turn:
            return self._ask(kind, fields)

    def tell(self, kind: str, arrays: Tensors, **fields: Any) -> dict[str, Any]:
        """The answer to a message about arrays."""
        with self._turn:
            return self._ask(kind, {**fields, **self._put(arrays)})

    def exchange(
        self, kind: str, arrays: Tensors, copied: Callable[[list[Any]], Any], **fields: Any
    ) -> tuple[dict[str, Any], Any]:
        """The answer, and what `copied` makes of the arrays in it before the next message overwrites them."""
        with self._turn:
            answer = self._ask(kind, {**fields, **self._put(arrays)})
            try:
                return answer, copied(self._inbox.get(answer))
            except (TensorFault, ValueFault) as error:
                raise WorkerCrashError(f"the framework's process answered garbage: {error}") from error

    def _put(self, arrays: Tensors) -> dict[str, Any]:
        try:
            return self._outbox.put(arrays)
        except RoomFault as fault:
            raise self._full(str(fault)) from fault

    def _full(self, reason: str) -> StorageError:
        return StorageError(
            f"{self.folder}, through which tensors pass to the framework's process, has {reason}",
            hint="use a smaller batch size, or give that folder more memory: --shm-size where this runs in a container "
            "(64 MB without it), the size of the tmpfs elsewhere",
            path=self.folder,
        )

    def _ask(self, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        assert self._channel is not None
        try:
            self._channel.send({"type": kind, **fields})
        except OSError:
            raise self._gone(kind) from None
        answer = self._receive(kind)
        if answer["type"] == "fault":
            raise PredictorFault(answer["code"], answer["message"], answer["hint"], **answer["fields"])
        if answer["type"] == "function_fault":
            raise FunctionFault(answer["stage"], answer["reason"], answer["line"])
        if answer["type"] == "error":
            if answer["kind"] == RoomFault.__name__:
                raise self._full(answer["message"])
            raise PredictorError(
                f"the framework failed unexpectedly: {answer['kind']}: {answer['message']}",
                hint="the end of the worker's log is in the record: mlmodelscope show ID",
                kind=answer["kind"],
            )
        return answer

    def _receive(self, kind: str) -> dict[str, Any]:
        assert self._channel is not None
        try:
            answer = self._channel.receive()
        except ProtocolViolation as error:
            raise WorkerCrashError(f"the framework's process broke the protocol: {error}") from error
        if answer is None:
            raise self._gone(kind)
        return answer

    def _gone(self, kind: str) -> WorkerCrashError:
        doing = _DOING.get(kind, f"in {kind}")
        if self._child is None:
            return WorkerCrashError(f"the framework's process ended {doing}", in_container=True)
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout=10)
        code = self._child.returncode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            hint = "the kernel may have run out of memory: use a smaller batch" if name == "SIGKILL" else None
            return WorkerCrashError(f"the framework's process was killed by {name} {doing}", hint=hint, signal=name)
        return WorkerCrashError(f"the framework's process left with exit code {code} {doing}", exit_code=code)

    def close(self) -> None:
        if self._channel is not None:
            with suppress(OSError, ProtocolViolation):
                self._channel.send({"type": "close"})
            self._channel.close()
        if self._child is not None:
            try:
                self._child.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        self._outbox.close()
        self._remove_folder()

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def _remove_folder(self) -> None:
        if self._owns_folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def _shared_folder() -> str:
    memory = Path("/dev/shm")  # noqa: S108 - a folder of memory; the name inside is unique and private
    return tempfile.mkdtemp(prefix="mlmodelscope-", dir=memory if memory.is_dir() else None)


class ForeignPredictor:
    """A predictor in another process. `close` ends that process; its memory and its software are asked of it."""

    def __init__(self, process: _Process) -> None:
        self._process = process
        self._ask, self._exchange = process.ask, process.exchange
        self.load_ns = 0
        self.loaded_memory_bytes: int | None = None

    def load(self, model: dict[str, Any]) -> dict[str, Any]:
        answer = self._ask("load", model=model)
        self.load_ns, self.loaded_memory_bytes = answer["load_ns"], answer["memory"]["resident"]
        facts: dict[str, Any] = answer["facts"]
        return facts

    def predict(self, inputs: Tensors) -> Tensors:
        outputs: Tensors = self._exchange("predict", _sendable(inputs), _copies)[1]
        return outputs

    def unload(self) -> None:
        self._ask("unload")

    def close(self) -> None:
        self._process.close()

    def kill(self) -> None:
        """Ends that process at once, whatever it does; from any thread. `close` is still to be called."""
        self._process.kill()

    def inference_loop(
        self, queries: Sequence[Tensors], min_duration_ns: int, min_queries: int, progress: Path
    ) -> tuple[Sequence[int], Sequence[int]]:
        """The timed loop, run beside the framework; what `shim.inference_loop` returns."""
        import numpy as np

        for query in queries:
            self._process.tell("query", _sendable(query))
        answer = self._ask(
            "loop",
            min_duration_ns=min_duration_ns,
            min_queries=min_queries,
            progress=str(progress),
        )
        stamps = np.fromfile(Path(self._process.folder) / "stamps", np.int64)
        if len(stamps) != 2 * answer["count"]:
            raise WorkerCrashError("the framework's process left half its time stamps")
        return stamps[: answer["count"]].tolist(), stamps[answer["count"] :].tolist()

    def peak_memory_bytes(self) -> int | None:
        peak: int | None = self._ask("memory")["peak"]
        return peak

    def software(self) -> Mapping[str, Any]:
        """`python`, `implementation`, `packages` and `variables` of the framework's own interpreter."""
        return self._ask("software")

    def open_functions(self, env: dict[str, Any]) -> LoadFunction:
        """What loads functions of the manifest there, where what they import is; they share `env`, which lives there.

        What cannot cross is a FunctionFault of the call.
        """
        opened = self._process.tell("environment", pack_value(env))["environment"]

        def load(stage: str, name: str, source: str) -> Callable[[Any], Any]:
            number = self._ask("function", environment=opened, stage=stage, name=name, source=source)["function"]

            def call(data: Any) -> Any:
                try:
                    sent = pack_value(data)
                except ValueFault as fault:
                    raise FunctionFault(stage, f"it cannot be given {fault} in the framework's environment") from None
                return self._exchange("call", sent, unpack_value, function=number)[1]

            return call

        return load


class _Profiling(ForeignPredictor):
    def start_profile(self, folder: str) -> None:
        self._ask("start_profile", folder=folder)

    def stop_profile(self) -> Sequence[Sequence[Mapping[str, Any]] | None]:
        calls: Sequence[Sequence[Mapping[str, Any]] | None] = self._ask("stop_profile")["calls"]
        return calls


class _Revealing(ForeignPredictor):
    def layer_names(self) -> list[str]:
        names: list[str] = self._ask("layer_names")["names"]
        return names

    def reveal(self, inputs: Tensors, names: Sequence[str]) -> Tensors:
        outputs: Tensors = self._exchange("reveal", _sendable(inputs), _copies, names=list(names))[1]
        return outputs


class _Simulating(ForeignPredictor):
    _now_ns = 0

    def predict(self, inputs: Tensors) -> Tensors:
        answer, outputs = self._exchange("predict", _sendable(inputs), _copies)
        self._now_ns = answer["now_ns"]
        return list(outputs)

    def now_ns(self) -> int:
        return self._now_ns


_ABILITIES: Mapping[str, type[ForeignPredictor]] = {
    "profiles": _Profiling,
    "reveals": _Revealing,
    "simulates": _Simulating,
}


def _copies(views: list[Any]) -> Tensors:
    return [view.copy() for view in views]


def _sendable(inputs: Sequence[Any]) -> Tensors:
    """Arrays that can lie in shared memory; what is none is refused as a predictor here would refuse it."""
    import numpy as np

    for position, value in enumerate(inputs):
        if not isinstance(value, np.ndarray):
            raise PredictorFault(
                "shape_mismatch",
                f"input {position} takes an array, not {type(value).__name__}",
                expected="array",
                got=type(value).__name__,
            )
    return [
        fixed_width(value, f"input {position}") if value.dtype.hasobject else value
        for position, value in enumerate(inputs)
    ]
