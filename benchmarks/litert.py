"""A TensorFlow Lite file -> calls of LiteRT's C interface, as a program without Python would make them (Python 3.6).

Every argument is made ready at load, so that a call is seven C functions in turn: lock, copy and unlock the input, run,
and the same for each output. What ctypes adds to a C function is a fraction of a microsecond.
"""

import ctypes
import importlib
import os
from typing import Any, Callable, Dict, List

import numpy as np

__all__ = ["open_model"]

_CPU = 1
_LOCK_READ, _LOCK_WRITE = 0, 1
# a tensor type takes 72 bytes; it is only handed from one call to the next
_TENSOR_TYPE_BYTES = 256


class _Library(object):
    def __init__(self) -> None:
        package = importlib.import_module("ai_edge_litert")
        self._library = ctypes.CDLL(os.path.join(os.path.dirname(str(package.__file__)), "libLiteRt.so"))

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise SystemExit("{} answered with error {}".format(name, status))

    def get(self, name: str, *arguments: Any) -> Any:
        result = ctypes.c_void_p()
        self.call(name, *(list(arguments) + [ctypes.byref(result)]))
        return result

    def function(self, name: str) -> Any:
        return getattr(self._library, name)


def _compiled(library: _Library, path: str, threads: int, kept: List[Any]) -> Any:
    """The environment, the model and the compiled model; `kept` is what the library holds pointers to."""
    environment = library.get("LiteRtCreateEnvironment", ctypes.c_int(0), None)
    model = library.get("LiteRtCreateModelFromFile", environment, ctypes.c_char_p(os.fsencode(path)))
    options = library.get("LiteRtCreateOptions")
    library.call("LiteRtSetOptionsHardwareAccelerators", options, ctypes.c_int(_CPU))
    text = ctypes.create_string_buffer(b"num_threads = %d\n" % threads)
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda pointer: None)
    kept.extend([text, free])
    payload = ctypes.cast(text, ctypes.c_void_p)
    opaque = library.get("LiteRtCreateOpaqueOptions", ctypes.c_char_p(b"xnnpack"), payload, free)
    library.call("LiteRtAddOpaqueOptions", options, opaque)
    return environment, model, library.get("LiteRtCreateCompiledModel", environment, model, options)


def _buffers(library: _Library, opened: Any, side: str) -> List[Any]:
    environment, model, compiled = opened
    signature = library.get("LiteRtGetModelSignature", model, ctypes.c_size_t(0))
    count = ctypes.c_size_t()
    library.call("LiteRtGetNumSignature{}s".format(side), signature, ctypes.byref(count))
    found = []
    for index in range(count.value):
        place = ctypes.c_size_t(index)
        tensor = library.get("LiteRtGetSignature{}TensorByIndex".format(side), signature, place)
        kind = ctypes.create_string_buffer(_TENSOR_TYPE_BYTES)
        library.call("LiteRtGetRankedTensorType", tensor, kind)
        call = "LiteRtGetCompiledModel{}BufferRequirements".format(side)
        needs = library.get(call, compiled, ctypes.c_size_t(0), place)
        found.append(library.get("LiteRtCreateManagedTensorBufferFromRequirements", environment, kind, needs))
    return found


def open_model(model: Dict[str, Any], value: Any) -> Callable[[Any], List[Any]]:
    library, kept = _Library(), []  # type: Any
    opened = _compiled(library, model["graph_path"], model["threads"], kept)
    inputs, outputs = _buffers(library, opened, "Input"), _buffers(library, opened, "Output")
    results = [np.empty([size or 1 for size in fact["shape"]], np.float32) for fact in model["facts"]["outputs"]]
    pairs = [(buffer, result.ctypes.data, result.nbytes) for buffer, result in zip(outputs, results)]
    (given,), size = inputs, value.nbytes
    lock, unlock = library.function("LiteRtLockTensorBuffer"), library.function("LiteRtUnlockTensorBuffer")
    run, move = library.function("LiteRtRunCompiledModel"), ctypes.memmove
    address = ctypes.c_void_p()
    pointer, read, write = ctypes.byref(address), ctypes.c_int(_LOCK_READ), ctypes.c_int(_LOCK_WRITE)
    arguments = (
        opened[2],
        ctypes.c_size_t(0),
        ctypes.c_size_t(1),
        (ctypes.c_void_p * 1)(given),
        ctypes.c_size_t(len(outputs)),
        (ctypes.c_void_p * len(outputs))(*outputs),
    )

    def call(x: Any) -> List[Any]:
        assert kept
        lock(given, pointer, write)
        move(address, x.ctypes.data, size)
        unlock(given)
        if run(*arguments) != 0:
            raise SystemExit("LiteRtRunCompiledModel failed")
        for buffer, target, length in pairs:
            lock(buffer, pointer, read)
            move(target, address, length)
            unlock(buffer)
        return results

    return call
