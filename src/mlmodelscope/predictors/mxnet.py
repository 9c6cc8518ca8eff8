"""Turns tensors into tensors with Apache MXNet 1.x: a symbol file (`graph_path`) and its parameters (`weights_path`).

An output is named by its index among the symbol's outputs, or by the name of any operator inside, with or without the
`_output` that MXNet appends. Inputs are the arguments without parameters; labels of a loss at the end are filled with
zeros unless they are asked for. Each shape of the inputs is bound once, and kept.

Option: `subgraph_backend` (MKLDNN: operators are fused for oneDNN; or NONE). The default is MKLDNN, but NONE for a
model with an output that other operators of it go on to use: MXNet 1.9.1 fuses over such an output, and then answers
wrongly without a word.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import ctypes
import os
import re
from collections import OrderedDict
from typing import Any, ClassVar, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.mxnetprofile import Profile
from mlmodelscope.predictors.mxnetsymbol import Network
from mlmodelscope.predictors.port import (
    PredictorFault,
    check_element_types,
    check_options,
    check_threads,
    import_framework,
    misfit,
    unloaded,
)

__all__ = ["Predictor"]

# every bound shape holds the results of all its layers
_MOST_BOUND = 8
_BACKEND = "MXNET_SUBGRAPH_BACKEND"
_BULK = "MXNET_EXEC_BULK_EXEC_INFERENCE"


class Predictor(object):
    name: ClassVar[str] = "mxnet"
    packages: ClassVar[Tuple[str, ...]] = ("mxnet", "mxnet-mkl", "mxnet-native", "mxnet-cu112")
    # one operator at a time, on as many OpenMP threads as are asked for; the other two only silence remarks
    environment: ClassVar[Dict[str, str]] = {
        "MXNET_CPU_WORKER_NTHREADS": "1",
        "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0",
        "MXNET_SUBGRAPH_VERBOSE": "0",
    }
    formats: ClassVar[Tuple[str, ...]] = (".json", ".params")

    def __init__(self) -> None:
        self._mx: Any = None
        self._network: Any = None
        self._symbol: Any = None
        self._bound: Any = OrderedDict()
        self._count = 0
        self._profile: Optional[Profile] = None

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        options = model.get("options") or {}
        check_options(self.name, options, {"subgraph_backend": ("MKLDNN", "NONE")})
        threads = check_threads(self.name, model.get("threads", 1))
        mx = _import(threads)
        network = Network(mx, model["graph_path"], model.get("weights_path"))
        network.choose_inputs(model.get("inputs") or [])
        check_element_types(model.get("inputs") or [], network.inputs)
        self._symbol, outputs = network.choose_outputs(model.get("outputs") or [])
        in_force = _set_threads(mx, threads)
        self._backend = _safe_backend(network, self._symbol, options.get("subgraph_backend"))
        self._keep(mx, network)
        try:
            operators = self._bind_first()
        except PredictorFault:
            self.unload()
            raise
        is_fused = any(operator.startswith("_sg_") for operator in operators)
        return {
            "framework": self.name,
            "version": mx.__version__,
            "threads": in_force,
            "provider": "executor",
            "device": "cpu",
            "library": _library(mx),
            "optimization": f"subgraphs {self._backend}" if is_fused else "none",
            "precision": network.precision(operators),
            "inputs": network.inputs,
            "outputs": outputs,
        }

    def _keep(self, mx: Any, network: Any) -> None:
        import numpy as np

        self._mx, self._network = mx, network
        self._count = len(network.inputs)
        self._dtypes = [np.dtype(fact["element_type"]) for fact in network.inputs]

    def _bind_first(self) -> List[str]:
        """The operators that will run; those of the file where the sizes of the inputs are not known beforehand."""
        shapes = [fact["shape"] for fact in self._network.inputs]
        if any(shape is None or None in shape[1:] for shape in shapes):
            return self._network.operators(self._symbol)  # type: ignore[no-any-return]
        first = [tuple([1 if size is None else size for size in shape]) for shape in shapes]
        executor = self._bind(first)
        return self._network.operators(executor.get_optimized_symbol())  # type: ignore[no-any-return]

    def _bind(self, shapes: Sequence[Tuple[int, ...]]) -> Any:
        """Makes the model ready for inputs of these shapes."""
        is_bulk = self._profile is None
        executor, arrays = self._executor(self._symbol, shapes, is_bulk)
        forward = executor.forward if is_bulk else self._profile.wrapped(executor)  # type: ignore[union-attr]
        self._bound[tuple(shapes)] = (forward, arrays)
        while len(self._bound) > _MOST_BOUND:
            self._bound.popitem(last=False)
        return executor

    def _executor(
        self, symbol: Any, shapes: Sequence[Tuple[int, ...]], is_bulk: bool, backend: Optional[str] = None
    ) -> Any:
        # both variables are read when an executor is made, and at no other time
        kept = {name: os.environ.get(name) for name in (_BACKEND, _BULK)}
        os.environ.update({_BACKEND: backend or self._backend, _BULK: "1" if is_bulk else "0"})
        try:
            return self._network.bind(symbol, shapes)
        finally:
            for name, value in kept.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def predict(self, inputs: List[Any]) -> List[Any]:
        try:
            return self._run(inputs)
        except (AttributeError, KeyError, TypeError) as error:
            self._refit(inputs, error)
        except (RuntimeError, ValueError) as error:
            raise self._failed(error) from error
        try:
            return self._run(inputs)
        except (RuntimeError, ValueError) as error:
            raise self._failed(error) from error

    def _run(self, inputs: List[Any]) -> List[Any]:
        forward, arrays = self._bound[tuple([value.shape for value in inputs])]
        for array, dtype, value in zip(arrays, self._dtypes, inputs):
            # MXNet converts other types without a word
            if value.dtype is not dtype and value.dtype != dtype:
                raise TypeError("inputs")
            # what array[:] = value comes down to, without its look at the index
            array._sync_copyfrom(value)  # noqa: SLF001
        return [output.asnumpy() for output in forward(is_train=False)]

    def _refit(self, inputs: List[Any], error: Exception) -> None:
        """Binds the shapes that came, or says why the inputs cannot fit."""
        if self._mx is None:
            raise unloaded(self.name) from error
        fault = misfit(self._network.inputs, inputs)
        if fault is not None:
            raise fault from error
        shapes = tuple([value.shape for value in inputs])
        if shapes in self._bound:
            raise self._failed(error) from error
        self._bind(shapes)

    def _failed(self, error: Exception) -> PredictorFault:
        line = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        return PredictorFault("predictor_failed", f"mxnet: {line}", framework=self.name, error=str(error))

    def layer_names(self) -> List[str]:
        if self._mx is None:
            raise unloaded(self.name)
        return self._network.layer_names()  # type: ignore[no-any-return]

    def reveal(self, inputs: List[Any], names: Sequence[str]) -> List[Any]:
        """An executor of its own computes them, without fusion: the one that predicts may have fused them away."""
        if self._mx is None:
            raise unloaded(self.name)
        fault = misfit(self._network.inputs, inputs)
        if fault is not None:
            raise fault
        symbol = self._network.inner(names)
        executor, arrays = self._executor(symbol, [value.shape for value in inputs], True, "NONE")
        try:
            for array, value in zip(arrays, inputs):
                array[:] = value
            return [output.asnumpy() for output in executor.forward(is_train=False)]
        except (RuntimeError, ValueError) as error:
            raise self._failed(error) from error

    def start_profile(self, folder: str) -> None:
        """Executors of their own do the profiled calls: the usual ones run many operators as one."""
        if self._mx is None:
            raise unloaded(self.name)
        self.stop_profile()
        self._unprofiled, self._bound = self._bound, OrderedDict()
        self._profile = Profile(self._mx, folder, self._network)

    def stop_profile(self) -> List[Optional[List[Dict[str, Any]]]]:
        profile, self._profile = self._profile, None
        if profile is None:
            return []
        self._bound = self._unprofiled
        return profile.finish()

    def unload(self) -> None:
        self.stop_profile()
        mx, self._mx = self._mx, None
        self._network = self._symbol = None
        self._bound = self._unprofiled = OrderedDict()
        if mx is not None:
            # arrays are freed by the engine, some time after the last one who knew them is gone
            mx.nd.waitall()


def _import(threads: int) -> Any:
    # unless it is set when the library starts, MXNet takes half the processors whatever OpenMP is told later
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    try:
        return import_framework("mxnet", ["mxnet"])
    except AttributeError as error:
        numpy = import_framework("numpy", ["numpy"])
        raise PredictorFault(
            "environment_missing",
            f"mxnet cannot be imported beside numpy {numpy.__version__}: {str(error).splitlines()[0]}",
            hint="MXNet 1.x needs numpy older than 1.24",
            framework="mxnet",
            expected="numpy<1.24",
            got=numpy.__version__,
        ) from error


def _safe_backend(network: Any, symbol: Any, asked: Optional[str]) -> str:
    used = network.outputs_in_use(symbol)
    if used and asked == "MKLDNN":
        raise PredictorFault(
            "predictor_failed",
            f"mxnet with subgraph_backend MKLDNN would answer wrongly: {', '.join(used)} is an output that is used on",
            hint="leave the option subgraph_backend out, or ask for other outputs",
            option="subgraph_backend",
            layers=used,
        )
    return asked or ("NONE" if used else "MKLDNN")


def _set_threads(mx: Any, threads: int) -> int:
    """Sets the OpenMP threads where they count, in the engine's own thread, and asks there how many are in force."""
    library = mx.base._LIB  # noqa: SLF001 - the number of threads has no call in Python
    answers: List[int] = []

    def set_and_ask(_runtime: Any, _parameter: Any) -> None:
        library.omp_set_num_threads(ctypes.c_int(threads))
        answers.append(int(library.omp_get_max_threads()))

    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(set_and_ask)
    token = mx.nd.zeros((1,))
    written = (ctypes.c_void_p * 1)(token.handle)
    cpu = (ctypes.c_int32 * 2)(1, 0)  # device type and number
    failed = library.MXEnginePushSyncND(
        callback, None, None, ctypes.byref(cpu), None, 0, written, 1, None, 0, b"set_threads"
    )
    token.wait_to_read()
    if failed or not answers:
        raise PredictorFault(
            "predictor_failed", f"mxnet: the engine does not take {threads} threads", framework="mxnet", got=threads
        )
    return answers[0]


def _library(mx: Any) -> str:
    features = mx.runtime.Features()
    names = []
    if features.is_enabled("MKLDNN"):
        names.append(f"oneDNN {_onednn_version(os.path.dirname(mx.__file__))}".strip())
    try:
        ask = mx.base._LIB.openblas_get_config  # noqa: SLF001 - found among the libraries that MXNet itself loads
        ask.restype = ctypes.c_char_p
        names.append(" ".join(ask().decode("ascii", "replace").split()[:2]))
    except AttributeError:
        names.extend(name for name in ("BLAS_MKL", "BLAS_OPEN", "BLAS_ATLAS") if features.is_enabled(name))
    return ", ".join(names) or "unknown"


def _onednn_version(folder: str) -> str:
    """From the header that lies beside the library, which does not tell by itself."""
    path = os.path.join(folder, "include", "mkldnn", "oneapi", "dnnl", "dnnl_version.h")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return ""
    found = [re.search(rf"DNNL_VERSION_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(match.group(1) for match in found if match)
