"""Turns calls of a TensorFlow Lite model into layers per call, through the C interface of LiteRT's own library.

The Python interface cannot profile, but `libLiteRt.so` in the same package can: its compiled model runs the same
XNNPACK kernels as the interpreter and keeps a list of events. Seen with ai-edge-litert 2.3; a library that lacks a
call, or answers one with an error, is a fault that says so.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import ctypes
import os
from typing import Any, Dict, List, Sequence

from mlmodelscope.predictors.port import PredictorFault, quiet_stderr

__all__ = ["CompiledProfile", "add_nodes", "layers_of"]

_CPU = 1
_LOCK_READ, _LOCK_WRITE = 0, 1
_OPERATOR, _DELEGATE_OPERATOR, _PROFILED_DELEGATE_OPERATOR = 2, 4, 8
# how XNNPACK calls the kernels of an operator; it runs a convolution of one by one as a matrix product
_KERNELS = {
    "ADD": ("Add", "Binary"),
    "AVERAGE_POOL_2D": ("Average Pooling", "Global Average Pooling"),
    "CONV_2D": ("Convolution", "Fully Connected"),
    "DEPTHWISE_CONV_2D": ("Convolution",),
    "FULLY_CONNECTED": ("Fully Connected",),
    "MAX_POOL_2D": ("Max Pooling",),
    "RESHAPE": ("Static Reshape", "Copy"),
    "SOFTMAX": ("Softmax",),
    "SQUEEZE": ("Static Reshape", "Copy"),
}
# a tensor type takes 72 bytes; it is only handed from one call to the next
_TENSOR_TYPE_BYTES = 256


class _Event(ctypes.Structure):
    _fields_ = (
        ("tag", ctypes.c_char_p),
        ("kind", ctypes.c_uint32),
        ("start_us", ctypes.c_uint64),
        ("elapsed_us", ctypes.c_uint64),
        ("memory", ctypes.c_uint64 * 6),
        ("place", ctypes.c_uint64),
        ("more", ctypes.c_uint64),
        ("source", ctypes.c_uint32),
    )


class CompiledProfile(object):
    """One compiled model with a profiler. `set`, `invoke`, `get` are like the interpreter's; `calls` has the layers.

    The batch is that of the file: an open batch dimension is not resized here.
    """

    def __init__(self, folder: str, path: str, threads: int) -> None:
        self.calls: List[List[Dict[str, Any]]] = []
        try:
            self._library = ctypes.CDLL(os.path.join(folder, "libLiteRt.so"))
        except OSError as error:
            raise _unable(str(error)) from error
        self._made: List[Any] = []
        # the library keeps pointers to these
        self._texts = [
            ctypes.create_string_buffer(text)
            for text in (b"enable_profiling = true\n", b"num_threads = %d\n" % threads)
        ]
        self._keep = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda pointer: None)
        try:
            with quiet_stderr():
                self._open(path)
        except PredictorFault:
            self.close()
            raise

    def _open(self, path: str) -> None:
        self._environment = self._make("LiteRtCreateEnvironment", "LiteRtDestroyEnvironment", ctypes.c_int(0), None)
        name = ctypes.c_char_p(os.fsencode(path))
        model = self._make("LiteRtCreateModelFromFile", "LiteRtDestroyModel", self._environment, name)
        options = self._make("LiteRtCreateOptions", "LiteRtDestroyOptions")
        self._call("LiteRtSetOptionsHardwareAccelerators", options, ctypes.c_int(_CPU))
        for identifier, text in zip((b"runtime_options_string", b"xnnpack"), self._texts):
            payload = ctypes.cast(text, ctypes.c_void_p)
            opaque = self._get("LiteRtCreateOpaqueOptions", ctypes.c_char_p(identifier), payload, self._keep)
            self._call("LiteRtAddOpaqueOptions", options, opaque)
        creation = (self._environment, model, options)
        self._compiled = self._make("LiteRtCreateCompiledModel", "LiteRtDestroyCompiledModel", *creation)
        self._profiler = self._get("LiteRtCompiledModelGetProfiler", self._compiled)
        signature = self._get("LiteRtGetModelSignature", model, ctypes.c_size_t(0))
        self._inputs = self._buffers(signature, "Input")
        self._outputs = self._buffers(signature, "Output")

    def _buffers(self, signature: Any, side: str) -> Dict[str, Any]:
        """A buffer for each tensor, by the tensor's name, in the order of the signature."""
        count = ctypes.c_size_t()
        self._call("LiteRtGetNumSignature{}s".format(side), signature, ctypes.byref(count))
        found: Dict[str, Any] = {}
        for index in range(count.value):
            place = ctypes.c_size_t(index)
            tensor = self._get("LiteRtGetSignature{}TensorByIndex".format(side), signature, place)
            name = ctypes.c_char_p()
            self._call("LiteRtGetTensorName", tensor, ctypes.byref(name))
            kind = ctypes.create_string_buffer(_TENSOR_TYPE_BYTES)
            self._call("LiteRtGetRankedTensorType", tensor, kind)
            call = "LiteRtGetCompiledModel{}BufferRequirements".format(side)
            needs = self._get(call, self._compiled, ctypes.c_size_t(0), place)
            creation = (self._environment, kind, needs)
            make = "LiteRtCreateManagedTensorBufferFromRequirements"
            found[(name.value or b"").decode()] = self._make(make, "LiteRtDestroyTensorBuffer", *creation)
        return found

    def bind(self, inputs: Sequence[Dict[str, Any]], outputs: Sequence[Dict[str, Any]]) -> None:
        """Takes the details of all tensors of the interpreter; their indexes then name the tensors here too.

        Every size is compared first: the library writes a result that is larger than it announced past the end of its
        buffer, as those of a detection are whose shapes stand nowhere in the file.
        """
        import numpy as np

        for buffers, details in ((self._inputs, inputs), (self._outputs, outputs)):
            for detail in details:
                self._check_size(buffers, detail["name"], np.empty(detail["shape"], detail["dtype"]).nbytes)
        self._given = {detail["index"]: detail["name"] for detail in inputs}
        self._wanted = {detail["index"]: (detail["name"], detail["shape"], detail["dtype"]) for detail in outputs}

    def set(self, index: int, value: Any) -> None:
        import numpy as np

        self._copy(self._inputs, self._given[index], np.ascontiguousarray(value), _LOCK_WRITE)

    def invoke(self) -> None:
        given, wanted = list(self._inputs.values()), list(self._outputs.values())
        self._call("LiteRtResetProfiler", self._profiler)
        self._call("LiteRtStartProfiler", self._profiler)
        self._call(
            "LiteRtRunCompiledModel",
            self._compiled,
            ctypes.c_size_t(0),
            ctypes.c_size_t(len(given)),
            (ctypes.c_void_p * len(given))(*given),
            ctypes.c_size_t(len(wanted)),
            (ctypes.c_void_p * len(wanted))(*wanted),
        )
        self._call("LiteRtStopProfiler", self._profiler)
        self.calls.append(layers_of(self._events()))

    def get(self, index: int, _: int) -> Any:
        import numpy as np

        name, shape, dtype = self._wanted[index]
        array = np.empty(shape, dtype)
        self._copy(self._outputs, name, array, _LOCK_READ)
        return array

    def _copy(self, buffers: Dict[str, Any], name: str, array: Any, mode: int) -> None:
        self._check_size(buffers, name, array.nbytes)
        address = ctypes.c_void_p()
        self._call("LiteRtLockTensorBuffer", buffers[name], ctypes.byref(address), ctypes.c_int(mode))
        ends = (address, array.ctypes.data) if mode == _LOCK_WRITE else (array.ctypes.data, address)
        ctypes.memmove(ends[0], ends[1], array.nbytes)
        self._call("LiteRtUnlockTensorBuffer", buffers[name])

    def _check_size(self, buffers: Dict[str, Any], name: str, expected: int) -> None:
        if name not in buffers:
            raise _unable("it has no tensor {!r}".format(name))
        size = ctypes.c_size_t()
        self._call("LiteRtGetTensorBufferPackedSize", buffers[name], ctypes.byref(size))
        if size.value != expected:
            raise _unable("it takes tensor {!r} for {} bytes, not {}".format(name, size.value, expected))

    def _events(self) -> Any:
        count = ctypes.c_int()
        self._call("LiteRtGetNumProfilerEvents", self._profiler, ctypes.byref(count))
        events = (_Event * count.value)()
        self._call("LiteRtGetProfilerEvents", self._profiler, count, events)
        return events

    def close(self) -> None:
        while self._made:
            destroy, made = self._made.pop()
            getattr(self._library, destroy)(made)

    def _make(self, name: str, destroy: str, *arguments: Any) -> Any:
        made = self._get(name, *arguments)
        self._made.append((destroy, made))
        return made

    def _get(self, name: str, *arguments: Any) -> Any:
        result = ctypes.c_void_p()
        self._call(name, *(list(arguments) + [ctypes.byref(result)]))
        if not result:
            raise _unable("{} gave nothing".format(name))
        return result

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            call = getattr(self._library, name)
        except AttributeError:
            raise _unable("this version has no {}".format(name)) from None
        call.restype = ctypes.c_int
        status = call(*arguments)
        if status != 0:
            raise _unable("{} answered with error {}".format(name, status))


def layers_of(events: Any) -> List[Dict[str, Any]]:
    """Operators in the order of execution. A delegate tells how long each of its operators took, but not when it began:
    they are laid end to end."""
    layers: List[Dict[str, Any]] = []
    now = 0
    for event in events:
        tag = (event.tag or b"").decode("utf-8", "replace")
        is_own = event.kind == _OPERATOR
        if is_own or tag == "Invoke":
            now = max(now, event.start_us) if event.start_us else now
        if is_own or event.kind in (_DELEGATE_OPERATOR, _PROFILED_DELEGATE_OPERATOR):
            # a delegate counts its operators anew in every part of the graph; the place in the call is unique
            layers.append(
                {
                    "name": "{} {}".format(tag, len(layers)),
                    "start_ns": 1000 * now,
                    "duration_ns": 1000 * event.elapsed_us,
                    "operator": tag,
                    "provider": "none" if is_own else "XNNPACK",
                }
            )
            now += event.elapsed_us
    return layers


def add_nodes(layers: Sequence[Dict[str, Any]], operators: Sequence[Dict[str, Any]]) -> None:
    """Gives each layer the model's own operator behind it, where the two lists go together one by one.

    `operators` are the model's, in order: {"operator", "name", "outputs"}. A delegate that merged or split some is left
    without: a wrong name is worse than none.
    """
    if len(layers) != len(operators) or not all(_go_together(*pair) for pair in zip(layers, operators)):
        return
    for layer, operator in zip(layers, operators):
        layer["nodes"] = [operator["name"]]
        layer["outputs"] = operator["outputs"]


def _go_together(layer: Dict[str, Any], operator: Dict[str, Any]) -> bool:
    if layer["operator"] == operator["operator"]:
        return True
    words = _KERNELS.get(operator["operator"])
    return words is None or layer["operator"].startswith(words)


def _unable(reason: str) -> PredictorFault:
    return PredictorFault(
        "predictor_failed", "tflite: LiteRT's library cannot profile this model: {}".format(reason), framework="tflite"
    )
