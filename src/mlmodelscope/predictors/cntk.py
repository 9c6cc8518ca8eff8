"""Turns tensors into tensors with CNTK 2.x: a file in CNTK's own format (.model, .dnn, .cntk) or ONNX up to opset 9.

Layers are named by name, or by CNTK's unique id where they have none; any function inside the model can be an output.
A dimension along CNTK's batch axis takes any size; a model made without that axis takes its own batch size only.

CNTK needs libmpi.so.12 and libmpi_cxx.so.1, which systems of today have under younger names: `provision/libraries.py`
makes links to them for LD_LIBRARY_PATH.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import ctypes
import mmap
import os
import warnings
from typing import Any, ClassVar, Dict, List, Sequence, Tuple

from mlmodelscope.predictors.modelfile import describe_file
from mlmodelscope.predictors.port import (
    PredictorFault,
    check_all_fed,
    check_element_types,
    check_options,
    check_threads,
    import_framework,
    misfit,
    select_layers,
    unloaded,
)

__all__ = ["Predictor"]

# the type that a file states of a function that is not CNTK's own
_USER_FUNCTION = b"UserDefinedFunction"


class Predictor(object):
    name: ClassVar[str] = "cntk"
    packages: ClassVar[Tuple[str, ...]] = ("cntk", "cntk-gpu")
    environment: ClassVar[Dict[str, str]] = {}
    formats: ClassVar[Tuple[str, ...]] = (".model", ".dnn", ".cntk", ".onnx")

    def __init__(self) -> None:
        self._cntk: Any = None
        self._model: Any = None
        self._forward: Any = None
        self._contiguous: Any = None
        self._arguments: List[Any] = []

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        check_options(self.name, model.get("options") or {}, {})
        threads = check_threads(self.name, model.get("threads", 1))
        cntk = _import()
        device = cntk.cpu()
        cntk.cntk_py.set_max_num_cputhreads(threads)
        _limit_threads(os.path.dirname(cntk.__file__), threads)
        function = _read(cntk, model["graph_path"], device)
        arguments = list(function.arguments)
        names = [_name(variable) for variable in arguments]
        chosen = select_layers("input", _renamed(model.get("inputs") or [], arguments), names)
        check_all_fed(names, chosen)
        inputs = [_fact(arguments[index]) for index in chosen]
        check_element_types(model.get("inputs") or [], inputs)
        outputs = _select_outputs(function, model.get("outputs") or [])
        self._cntk, self._model, self._device, self._inputs = cntk, function, device, inputs
        self._bind([arguments[index] for index in chosen], outputs)
        return {
            "framework": self.name,
            "version": str(cntk.__version__),
            "threads": int(cntk.cntk_py.get_max_num_cputhreads()),
            "provider": "cntk",
            "device": "cpu",
            "library": _library(os.path.dirname(cntk.__file__)),
            "optimization": "none",
            "precision": _precision(function, inputs),
            "inputs": inputs,
            "outputs": [_fact(variable) for variable in outputs],
        }

    def _bind(self, arguments: List[Any], outputs: List[Any]) -> None:
        import numpy as np

        self._arguments = arguments
        # CNTK warns of other orders of memory
        self._contiguous = np.ascontiguousarray
        self._dtypes = [np.dtype(fact["element_type"]) for fact in self._inputs]
        # the batch dimension is CNTK's to judge; it spreads or cuts other sizes without a word
        self._sizes = [
            tuple(fact["shape"][1:]) if fact["shape"][:1] == [None] and None not in fact["shape"][1:] else None
            for fact in self._inputs
        ]
        is_whole = [variable.uid for variable in outputs] == [variable.uid for variable in self._model.outputs]
        function = self._model if is_whole else self._cntk.combine(outputs)
        self._outputs = list(function.outputs)
        self._forward = function.forward

    def predict(self, inputs: List[Any]) -> List[Any]:
        feed = {}
        contiguous = self._contiguous
        try:
            for argument, dtype, sizes, value in zip(self._arguments, self._dtypes, self._sizes, inputs):
                # CNTK converts other types, and takes several shapes, without a word
                if value.shape[1:] != sizes or (value.dtype is not dtype and value.dtype != dtype):
                    self._check(inputs)
                feed[argument] = contiguous(value)
            if len(inputs) != len(feed) or not feed:
                self._check(inputs)
            results = self._forward(feed, self._outputs, device=self._device)[1]
            return [results[variable] for variable in self._outputs]
        except PredictorFault:
            raise
        except Exception as error:  # what crosses from C++ shares no class
            self._check(inputs)
            raise self._failed(error) from error

    def _check(self, inputs: Sequence[Any]) -> None:
        if self._model is None:
            raise unloaded(self.name)
        fault = misfit(self._inputs, inputs)
        if fault is None and any(0 in value.shape for value in inputs):
            got = [list(value.shape) for value in inputs]
            fault = PredictorFault("shape_mismatch", "cntk takes no empty arrays", expected="1 or more", got=got)
        if fault is not None:
            raise fault

    def _failed(self, error: Exception) -> PredictorFault:
        return PredictorFault("predictor_failed", f"cntk: {_first_line(error)}", framework=self.name, error=str(error))

    def layer_names(self) -> List[str]:
        if self._model is None:
            raise unloaded(self.name)
        return list(_inner(self._model))

    def reveal(self, inputs: List[Any], names: Sequence[str]) -> List[Any]:
        known = self.layer_names()
        self._check(inputs)
        variables = _inner(self._model)
        chosen = select_layers("inner", [{"layer_name": name} for name in names], known)
        function = self._cntk.combine([variables[known[index]] for index in chosen])
        outputs = list(function.outputs)
        feed = {
            argument: self._contiguous(value)
            for argument, value in zip(self._arguments, inputs)
            if argument.uid in {used.uid for used in function.arguments}
        }
        try:
            results = function.forward(feed, outputs, device=self._device)[1]
        except Exception as error:
            raise self._failed(error) from error
        return [results[variable] for variable in outputs]

    def unload(self) -> None:
        self._model = self._forward = None
        self._arguments, self._outputs, self._dtypes, self._sizes = [], [], [], []


def _import() -> Any:
    with warnings.catch_warnings():
        # it warns of every system that is younger than itself, and of the GPU that nobody asked for
        warnings.simplefilter("ignore")
        try:
            return import_framework("cntk", ["cntk"])
        except PredictorFault as fault:
            if "libmpi" not in fault.message:
                raise
            raise PredictorFault(
                "environment_missing",
                fault.message,
                hint="install Open MPI (apt-get install libopenmpi3), and let cntk have its own environment",
                framework="cntk",
            ) from fault


def _read(cntk: Any, path: str, device: Any) -> Any:
    looks = describe_file(path)
    is_onnx = path.endswith(".onnx")
    try:
        _check_functions(path)
        kind = cntk.ModelFormat.ONNX if is_onnx else cntk.ModelFormat.CNTKv2
        return cntk.Function.load(path, device=device, format=kind)
    except PredictorFault:
        raise
    except Exception as error:  # what crosses from C++ shares no class
        reason = error.strerror if isinstance(error, OSError) and error.strerror else _first_line(error)
        raise PredictorFault(
            "model_format",
            f"cntk cannot read {path}: {reason}",
            hint="CNTK 2.7 reads ONNX up to opset 9" if is_onnx else "give cntk a file that CNTK 2.x saved",
            path=path,
            expected="a CNTK model",
            got=looks,
            error=str(error),
        ) from error


def _check_functions(path: str) -> None:
    """Refuses a file with functions of a user's: CNTK would run whatever module or library the file names for them."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
            has_code = content.find(_USER_FUNCTION) >= 0
    if has_code:
        raise PredictorFault(
            "model_format",
            f"{path} holds a user-defined function, whose code is not run",
            hint="save the model with functions of CNTK's own",
            path=path,
        )


def _name(variable: Any) -> str:
    return str(variable.name or variable.uid)


def _renamed(asked: Sequence[Dict[str, Any]], variables: Sequence[Any]) -> List[Dict[str, Any]]:
    """What is asked for by unique id, by name."""
    names = {variable.uid: _name(variable) for variable in variables}
    return [dict(layer, layer_name=names.get(layer.get("layer_name"), layer.get("layer_name"))) for layer in asked]


def _select_outputs(function: Any, asked: Sequence[Dict[str, Any]]) -> List[Any]:
    """An inner function is as good as an output, but only those are listed, and counted by indices."""
    outputs = list(function.outputs)
    if not asked:
        return outputs
    known = [_name(variable) for variable in outputs]
    count = len(known)
    asked = _renamed(asked, outputs)
    inner = _inner(function)
    for layer in asked:
        name = layer["layer_name"]
        if isinstance(name, int):
            select_layers("output", [layer], known[:count])
        elif name in inner and name not in known:
            known.append(name)
            outputs.append(inner[name])
    return [outputs[index] for index in select_layers("output", asked, known)]


def _inner(function: Any) -> Dict[str, Any]:
    """The outputs of every function inside, by name, or by unique id where the name is missing or taken."""
    found: Dict[str, Any] = {}
    seen = set()
    waiting = [(output.owner, False) for output in reversed(list(function.outputs))]
    while waiting:
        owner, is_ready = waiting.pop()
        if is_ready:
            for variable in owner.outputs:
                name = _name(variable)
                found[variable.uid if name in found else name] = variable
            continue
        if owner.uid in seen:
            continue
        seen.add(owner.uid)
        waiting.append((owner, True))
        waiting.extend((source.owner, False) for source in reversed(list(owner.inputs)) if source.is_output)
    return found


def _fact(variable: Any) -> Dict[str, Any]:
    import numpy as np

    # sizes below zero are CNTK's marks for those that it learns from the data
    own = [int(size) if size > 0 else None for size in variable.shape]
    return {
        "name": _name(variable),
        "shape": [None] * len(variable.dynamic_axes) + own,
        "element_type": str(np.dtype(variable.dtype)),
    }


def _precision(function: Any, inputs: Sequence[Dict[str, Any]]) -> str:
    """The type of most of the parameters: CNTK computes in it."""
    import numpy as np

    counts: Dict[str, int] = {}
    for variable in list(function.parameters) + list(function.constants):
        kind = str(np.dtype(variable.dtype))
        counts[kind] = counts.get(kind, 0) + int(np.prod(variable.shape))
    if counts:
        return max(sorted(counts), key=lambda kind: counts[kind])
    return str(inputs[0]["element_type"]) if inputs else "unknown"


def _limit_threads(folder: str, threads: int) -> None:
    """Where CNTK fills memory it asks for two threads, whatever it was told; OpenMP's own limit holds everywhere."""
    try:
        openmp = ctypes.CDLL(os.path.join(folder, "libs", "libiomp5.so"))
        # of two threads that become one
        openmp.kmp_set_warnings_off()
        openmp.kmp_set_defaults(b"OMP_THREAD_LIMIT=%d" % threads)
    except (AttributeError, OSError):  # a build with another OpenMP
        return


def _library(folder: str) -> str:
    path = os.path.join(folder, "libs", "libmklml_intel.so")
    try:
        library = ctypes.CDLL(path)
        text = ctypes.create_string_buffer(200)
        library.MKL_Get_Version_String(text, 200)
    except (AttributeError, OSError):
        return "unknown"
    words = text.value.decode("ascii", "replace").split()
    return "MKL " + words[words.index("Version") + 1] if "Version" in words[:-1] else "MKL"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
