"""Loads, predicts, unloads and runs the timed inference loop: the portable half of the worker (Python 3.6 syntax).

It stands beside a framework in any environment, so it imports nothing but the standard library, numpy and other files
of the portable layer. In the `local` environment the worker proper calls these functions in its own process. In any
other one this file is the program: `serve` answers the worker over a socket until that closes, and tensors cross in
shared memory.
"""

import gc
import importlib
import mmap
import os
import platform
import signal
import socket
import sys
import tempfile
import time
import traceback
from array import array
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.process.portable import FunctionFault, call_function, load_function
from mlmodelscope.worker.protocol import PROTOCOL_VERSION, Channel
from mlmodelscope.worker.tensors import Inbox, Outbox, TensorFault, fixed_width
from mlmodelscope.worker.values import ValueFault, pack_value, unpack_value

__all__ = ["inference_loop", "main", "open_predictor", "serve"]

_CONNECT_SECONDS = 60.0
_ABILITIES = {
    "profiles": ("start_profile", "stop_profile"),
    "reveals": ("layer_names", "reveal"),
    "simulates": ("now_ns",),
}


def open_predictor(entry_point: str) -> Any:
    """An unloaded predictor from "module:attribute"."""
    module_name, _, attribute = entry_point.partition(":")
    return getattr(importlib.import_module(module_name), attribute)()


def inference_loop(
    predict: Callable[[List[Any]], Any],
    queries: Sequence[List[Any]],
    min_duration_ns: int,
    min_queries: int,
    clock: Callable[[], int],
    progress: Any,
) -> Tuple[Any, Any]:
    """Start and end of every query, in nanoseconds of `clock`.

    Cycles through `queries` (already in their seeded order) one after the other until both minima are met. Timed:
    `predict` with its copies in and out. Outside: choosing the next query, storing two numbers, one write to
    `progress` (shared memory that the parent reads, so that no message is sent while the clock runs). The garbage
    collector is off meanwhile: its pauses are ours, not the framework's.
    """
    begins = array("q")
    ends = array("q")
    add_begin = begins.append
    add_end = ends.append
    count = 0
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        deadline = clock() + min_duration_ns
        while True:
            for inputs in queries:
                begin = clock()
                predict(inputs)
                end = clock()
                add_begin(begin)
                add_end(end)
                count += 1
                progress[0] = count
                if end >= deadline and count >= min_queries:
                    return begins, ends
    finally:
        if was_enabled:
            gc.enable()


def _before_3_7() -> int:
    return int(time.monotonic() * 1e9)


monotonic_ns: Callable[[], int] = getattr(time, "monotonic_ns", _before_3_7)


class _Host(object):
    """One predictor and the two sides of its shared memory; a method per message."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._inbox = Inbox(folder)
        self._outbox = Outbox(folder, "out")
        self._predictor: Any = None
        self._predict: Any = None
        self._clock: Callable[[], int] = monotonic_ns
        self._queries: List[List[Any]] = []
        self._environments: List[Dict[str, Any]] = []
        self._functions: List[Tuple[str, Any, Dict[str, Any]]] = []

    def answer(self, message: Dict[str, Any]) -> Dict[str, Any]:
        handler: Callable[[Dict[str, Any]], Dict[str, Any]] = getattr(self, "on_" + str(message["type"]))
        return handler(message)

    def on_open(self, message: Dict[str, Any]) -> Dict[str, Any]:
        self._predictor = open_predictor(message["entry_point"])
        self._predict = self._predictor.predict
        has = [name for name, parts in _ABILITIES.items() if all(hasattr(self._predictor, part) for part in parts)]
        if "simulates" in has:
            self._clock = self._predictor.now_ns
        return {"abilities": has}

    def on_load(self, message: Dict[str, Any]) -> Dict[str, Any]:
        begin = monotonic_ns()
        facts = self._predictor.load(message["model"])
        return {"facts": facts, "load_ns": monotonic_ns() - begin, "memory": _memory()}

    def on_predict(self, message: Dict[str, Any]) -> Dict[str, Any]:
        answer = self._sent(self._predict(self._inbox.get(message)))
        if self._clock is not monotonic_ns:
            answer["now_ns"] = self._clock()
        return answer

    def on_query(self, message: Dict[str, Any]) -> Dict[str, Any]:
        """One prepared query for the timed loop, copied: the loop reads memory as private as a local worker's."""
        import numpy as np

        self._queries.append([np.array(view) for view in self._inbox.get(message)])
        return {}

    def on_loop(self, message: Dict[str, Any]) -> Dict[str, Any]:
        queries, self._queries = self._queries, []
        minima = (message["min_duration_ns"], message["min_queries"])
        # what was made while loading lives as long as this process: the collector need not look at it again
        if hasattr(gc, "freeze"):
            gc.collect()
            gc.freeze()
        with open(message["progress"], "r+b") as file:
            shared = mmap.mmap(file.fileno(), 8)
        progress = memoryview(shared).cast("q")
        begins, ends = inference_loop(self._predict, queries, minima[0], minima[1], self._clock, progress)
        progress.release()
        shared.close()
        path = os.path.join(self._folder, "stamps")
        with open(path, "wb") as stamps:
            begins.tofile(stamps)
            ends.tofile(stamps)
        return {"count": len(begins)}

    def on_start_profile(self, message: Dict[str, Any]) -> Dict[str, Any]:
        self._predictor.start_profile(_writable(message["folder"]))
        return {}

    def on_stop_profile(self, message: Dict[str, Any]) -> Dict[str, Any]:
        return {"calls": [None if layers is None else list(layers) for layers in self._predictor.stop_profile()]}

    def on_layer_names(self, message: Dict[str, Any]) -> Dict[str, Any]:
        return {"names": list(self._predictor.layer_names())}

    def on_reveal(self, message: Dict[str, Any]) -> Dict[str, Any]:
        return self._sent(self._predictor.reveal(self._inbox.get(message), message["names"]))

    def on_environment(self, message: Dict[str, Any]) -> Dict[str, Any]:
        """The `env` that functions share by reference."""
        env = unpack_value(self._inbox.get(message))
        if env["scratch"] is not None:
            env["scratch"] = _writable(env["scratch"])
        self._environments.append(env)
        return {"environment": len(self._environments) - 1}

    def on_function(self, message: Dict[str, Any]) -> Dict[str, Any]:
        stage = message["stage"]
        loaded = load_function(stage, message["name"], message["source"])
        self._functions.append((stage, loaded, self._environments[message["environment"]]))
        return {"function": len(self._functions) - 1}

    def on_call(self, message: Dict[str, Any]) -> Dict[str, Any]:
        stage, function, env = self._functions[message["function"]]
        result = call_function(stage, function, env, unpack_value(self._inbox.get(message)))
        try:
            return self._outbox.put(pack_value(result))
        except ValueFault as fault:
            reason = f"its result holds {fault}, which cannot leave the framework's environment"
            raise FunctionFault(stage, reason) from None

    def on_memory(self, message: Dict[str, Any]) -> Dict[str, Any]:
        return _memory()

    def on_software(self, message: Dict[str, Any]) -> Dict[str, Any]:
        return {
            "python": platform.python_version(),
            "implementation": platform.python_implementation(),
            "packages": _packages(),
            "variables": dict(os.environ),
        }

    def on_unload(self, message: Dict[str, Any]) -> Dict[str, Any]:
        self._predictor.unload()
        return {}

    def _sent(self, outputs: Sequence[Any]) -> Dict[str, Any]:
        import numpy as np

        arrays = [np.asarray(output) for output in outputs]
        return self._outbox.put(
            [
                fixed_width(_texts(value), f"output {place}") if value.dtype.hasobject else value
                for place, value in enumerate(arrays)
            ]
        )


def _texts(array: Any) -> Any:
    """Objects that are bytes, which frameworks give for texts, as texts; those that are none stay bytes."""
    made = array.copy()
    try:
        made.ravel()[:] = [item.decode() if isinstance(item, bytes) else item for item in array.ravel().tolist()]
    except UnicodeDecodeError:
        return array
    return made


def serve(channel: Channel, folder: str) -> int:
    """Answers messages until the other side is gone. `folder` is for the shared files."""
    channel.send({"type": "hello", "version": PROTOCOL_VERSION, "python": platform.python_version()})
    host = _Host(folder)
    while True:
        message = channel.receive()
        if message is None or message["type"] == "close":
            return 0
        try:
            answer = host.answer(message)
        except PredictorFault as fault:
            answer = {"type": "fault", "code": fault.code, "message": fault.message, "hint": fault.hint}
            answer["fields"] = fault.fields
        except FunctionFault as fault:
            answer = {"type": "function_fault", "stage": fault.stage, "reason": fault.reason, "line": fault.line}
        except (MemoryError, TensorFault, Exception) as error:  # the program's main loop: the worker must be told
            traceback.print_exc()
            answer = {"type": "error", "kind": type(error).__name__, "message": str(error)}
        else:
            answer["type"] = "answer"
        channel.send(answer)


def _writable(folder: str) -> str:
    """The folder, or another one where it cannot be written from here: a container has its own, which ends with it."""
    return folder if os.access(folder, os.W_OK) else tempfile.mkdtemp(prefix="mlmodelscope-")


def _memory() -> Dict[str, Optional[int]]:
    """Resident memory of this process now and at most, in bytes."""
    found: Dict[str, Optional[int]] = {"resident": None, "peak": None}
    try:
        with open("/proc/self/status") as file:
            for line in file:
                name, _, rest = line.partition(":")
                if name in ("VmRSS", "VmHWM"):
                    found["resident" if name == "VmRSS" else "peak"] = int(rest.split()[0]) * 1024
    except OSError:
        pass
    return found


def _packages() -> Dict[str, str]:
    """Every installed distribution with its version, names normalised; empty where nothing can tell."""
    try:
        metadata = importlib.import_module("importlib.metadata")
        pairs = [(item.metadata["Name"], item.version) for item in metadata.distributions()]
    except ImportError:  # Python 3.7 and older
        try:
            resources = importlib.import_module("pkg_resources")
        except ImportError:
            return {}
        pairs = [(item.project_name, item.version) for item in resources.working_set]
    found: Dict[str, str] = {}
    for name, version in pairs:
        if name and version:
            found.setdefault("-".join(part for part in _split(name) if part).lower(), str(version))
    return dict(sorted(found.items()))


def _split(name: str) -> List[str]:
    return name.replace("_", "-").replace(".", "-").split("-")


def _connect(address: str) -> socket.socket:
    """`fd:N` is an inherited socket; anything else the path of one that listens, perhaps a moment from now."""
    kind, _, rest = address.partition(":")
    if kind == "fd":
        return socket.socket(fileno=int(rest))
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            found.connect(rest)
            return found
        except OSError:
            found.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def main(arguments: Sequence[str]) -> int:
    """`ADDRESS FOLDER [CPU...]`: the socket to answer on, the folder of the shared files, the processors to keep to."""
    address, folder = arguments[:2]
    # a terminal sends it to us too, but it is for the process that we answer, and we end with that
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # before anything is imported that counts them
    if arguments[2:]:
        os.sched_setaffinity(0, [int(text) for text in arguments[2:]])
    code = serve(Channel(_connect(address)), folder)
    sys.stdout.flush()
    sys.stderr.flush()
    # frameworks may crash or hang in their own exit handlers; everything of ours is already said
    os._exit(code)
