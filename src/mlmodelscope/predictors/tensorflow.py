"""Turns tensors into tensors with TensorFlow: 2.x by functions, 1.15 and frozen graphs by sessions.

It reads a SavedModel (a folder, or a .zip or .tar of one), a Keras model (.keras, .h5) and a frozen graph (.pb).
Options: `signature` of a SavedModel (default serving_default), `optimization` (all, the default, or none: rewriting of
the graph) and `device` (cpu, the default, or gpu). A frozen graph's inputs are its placeholders; any tensor inside may
be an output.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import ctypes
import gc
import importlib
import warnings
from typing import Any, ClassVar, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.port import (
    PredictorFault,
    check_all_fed,
    check_element_types,
    check_options,
    check_threads,
    import_framework,
    misfit,
    plain_type,
    select_layers,
    thread_ids,
    threads_in_force,
    unloaded,
)
from mlmodelscope.predictors.tensorflowfile import GRAPH, opened
from mlmodelscope.predictors.tensorflowfunction import FunctionModel
from mlmodelscope.predictors.tensorflowgraph import OWN_POOLS, SessionModel, Settings, first_line
from mlmodelscope.predictors.tensorflowprecision import kernel_library, precision_of, reduced_by

__all__ = ["Predictor"]

_OPTIONS: Dict[str, Optional[Sequence[str]]] = {
    "signature": None,
    "optimization": ("all", "none"),
    "device": ("cpu", "gpu"),
}


class Predictor(object):
    name: ClassVar[str] = "tensorflow"
    packages: ClassVar[Tuple[str, ...]] = (
        "tensorflow-cpu",
        "tensorflow",
        "tensorflow-gpu",
        "intel-tensorflow",
        "tensorflow-cpu-aws",
        "tensorflow-intel",
    )
    environment: ClassVar[Dict[str, str]] = {
        "TF_CPP_MIN_LOG_LEVEL": "2",
        OWN_POOLS: "1",
        # float32 means float32: neither oneDNN nor a GPU may shorten it
        "ONEDNN_DEFAULT_FPMATH_MODE": "STRICT",
        "TF_SET_ONEDNN_FPMATH_MODE": "",
        "NVIDIA_TF32_OVERRIDE": "0",
        # Keras would write its settings into the home folder, and may be told there to use another framework
        "KERAS_BACKEND": "tensorflow",
    }
    formats: ClassVar[Tuple[str, ...]] = (".pb", ".keras", ".h5", ".zip", ".tar", ".tar.gz", ".tgz")

    def __init__(self) -> None:
        self._model: Any = None
        self._call: Any = None
        self._plain_call: Any = None
        self._chosen: List[int] = []
        self._profile: Any = None
        self._inputs: List[Dict[str, Any]] = []
        self._dtypes: List[Any] = []
        self._shapes: List[Any] = []
        self._narrower: List[Any] = []
        self._is_plain = True

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        options = model.get("options") or {}
        check_options(self.name, options, _OPTIONS)
        threads = check_threads(self.name, model.get("threads", 1))
        tf = _imported()
        settings = Settings(
            threads, options.get("device", "cpu"), options.get("optimization", "all"), options.get("signature")
        )
        _check_device(tf, settings.device)
        before = thread_ids()
        opened_model = _open_model(tf, model["graph_path"], settings)
        try:
            outputs = self._bind(opened_model, model)
        except BaseException:
            opened_model.close()
            raise
        self._model = opened_model
        in_force = threads_in_force(threads, before, thread_ids())
        if isinstance(opened_model, FunctionModel):
            in_force = tf.config.threading.get_intra_op_parallelism_threads()
        return {
            "framework": self.name,
            "version": str(tf.__version__),
            "threads": in_force,
            "provider": opened_model.provider,
            "device": "cpu" if settings.device == "cpu" else "cuda:0",
            "library": _library(tf),
            "optimization": "grappler" if settings.optimization == "all" else "none",
            "precision": _precision(opened_model),
            "inputs": self._inputs,
            "outputs": outputs,
        }

    def _bind(self, opened_model: Any, model: Dict[str, Any]) -> List[Dict[str, Any]]:
        import numpy as np

        asked_inputs, asked_outputs = model.get("inputs") or [], model.get("outputs") or []
        facts = opened_model.inputs
        chosen = select_layers("input", asked_inputs, [fact["name"] for fact in facts])
        inputs = [facts[index] for index in chosen]
        check_all_fed([fact["name"] for fact in facts], chosen)
        check_element_types(asked_inputs, inputs)
        _add_inner_outputs(opened_model, asked_outputs)
        results = opened_model.outputs
        picked = select_layers("output", asked_outputs, [fact["name"] for fact in results])
        self._call = opened_model.bind(chosen, picked)
        self._chosen, self._inputs = chosen, inputs
        takes, gives = opened_model.element_types(chosen, picked)
        self._narrower = [_narrower(np, kind) for kind in takes]
        self._is_plain = all(plain_type(kind.name) == kind.name for kind in takes + gives)
        # numpy spells strings in several ways: those are left for the framework to check
        self._dtypes = [_dtype(np, fact["element_type"]) for fact in inputs]
        self._shapes = [None] * len(inputs)
        return [results[index] for index in picked]

    def predict(self, inputs: List[Any]) -> List[Any]:
        try:
            # a function takes the tensors it needs, and leaves the rest
            if len(inputs) != len(self._dtypes):
                self._check(inputs)
            for value, dtype, shape in zip(inputs, self._dtypes, self._shapes):
                # neither a session nor a function compares what it is given with what the model declares
                if value.shape != shape or (value.dtype is not dtype and dtype is not None):
                    self._check(inputs)
                    break
            if self._is_plain:
                return self._call(*inputs)  # type: ignore[no-any-return]
            return _widened(self._call(*self._narrowed(inputs)))
        except PredictorFault:
            raise
        except Exception as error:  # the framework's exceptions share no class over its versions
            raise self._fault(inputs, error) from error

    def _narrowed(self, inputs: Sequence[Any]) -> List[Any]:
        return [value if kind is None else value.astype(kind) for value, kind in zip(inputs, self._narrower)]

    def _check(self, inputs: List[Any]) -> None:
        fault = unloaded(self.name) if self._model is None else misfit(self._inputs, inputs)
        if fault is not None:
            raise fault
        self._shapes = [value.shape for value in inputs]

    def _fault(self, inputs: Sequence[Any], error: Exception) -> PredictorFault:
        if self._model is None:
            return unloaded(self.name)
        return misfit(self._inputs, inputs) or PredictorFault(
            "predictor_failed", f"tensorflow: {first_line(error)}", framework=self.name, error=str(error)
        )

    def start_profile(self, folder: str) -> None:
        if self._model is None:
            raise unloaded(self.name)
        self.stop_profile()
        self._plain_call = self._call
        self._profile = self._model.profile(folder)
        self._call = self._profile.run

    def stop_profile(self) -> List[Optional[List[Dict[str, Any]]]]:
        profile, self._profile = self._profile, None
        if profile is None:
            return []
        self._call, self._plain_call = self._plain_call, None
        calls: List[Optional[List[Dict[str, Any]]]] = profile.finish()
        return calls

    def layer_names(self) -> List[str]:
        if self._model is None:
            raise unloaded(self.name)
        names: List[str] = self._model.layer_names()
        return names

    def reveal(self, inputs: List[Any], names: Sequence[str]) -> List[Any]:
        known = self.layer_names()
        chosen = select_layers("inner", [{"layer_name": name} for name in names], known) if names else []
        fault = misfit(self._inputs, inputs)
        if fault is not None:
            raise fault
        try:
            wanted = [known[index] for index in chosen]
            return _widened(self._model.reveal(self._chosen, self._narrowed(inputs), wanted))
        except Exception as error:  # the framework's exceptions share no class over its versions
            raise self._fault(inputs, error) from error

    def unload(self) -> None:
        self.stop_profile()
        model, self._model, self._call, self._plain_call = self._model, None, None, None
        self._dtypes = self._shapes = []
        if model is not None:
            model.close()
            del model
            # graphs and their operations refer to each other in circles
            gc.collect()
            _give_back()


def _give_back() -> None:
    """Asks the C library to return freed memory to the system: it keeps blocks as large as a layer's weights."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # another C library than glibc
        pass


def _imported() -> Any:
    with warnings.catch_warnings():
        # 1.15 names types in ways that numpy warns of
        warnings.simplefilter("ignore")
        tf = import_framework("tensorflow", ["tensorflow"])
    tf.get_logger().setLevel("ERROR")
    return tf


def _open_model(tf: Any, path: str, settings: Settings) -> Any:
    is_old = int(str(tf.__version__).partition(".")[0]) < 2
    with opened(path) as place:
        model: Any = (SessionModel if is_old or place.kind == GRAPH else FunctionModel)(tf, settings)
        try:
            model.open(place, path)
        except BaseException:
            model.close()
            raise
    return model


def _check_device(tf: Any, device: str) -> None:
    if device == "gpu" and not tf.config.experimental.list_physical_devices("GPU"):
        raise PredictorFault(
            "environment_missing",
            "tensorflow finds no GPU here",
            hint="leave the option device out, or install a driver and a build of tensorflow for GPUs",
            option="device",
        )


def _library(tf: Any) -> str:
    for module in ("tensorflow.python.util._pywrap_util_port", "tensorflow.python.pywrap_tensorflow"):
        try:
            is_onednn = importlib.import_module(module).IsMklEnabled()
        except (ImportError, AttributeError):
            continue
        return kernel_library(bool(is_onednn), tf.sysconfig.get_include())
    return "unknown"


def _precision(model: Any) -> str:
    stated = precision_of(model.nodes())
    reduced = reduced_by()
    return f"{stated}, shortened by {reduced}" if reduced and stated == "float32" else stated


def _dtype(np: Any, name: str) -> Any:
    """The dtype to compare with, or None for types that numpy does not have or spells in several ways."""
    try:
        return None if name == "string" else np.dtype(name)
    except TypeError:
        return None


def _narrower(np: Any, kind: Any) -> Any:
    """The type of the arrays that the framework takes for what numpy itself does not have; None for all others."""
    return None if plain_type(kind.name) == kind.name else np.dtype(kind.as_numpy_dtype)


def _widened(results: Sequence[Any]) -> List[Any]:
    own = [array.dtype.name for array in results]
    return [array if plain_type(kind) == kind else array.astype(plain_type(kind)) for array, kind in zip(results, own)]


def _add_inner_outputs(model: Any, asked: Sequence[Dict[str, Any]]) -> None:
    for layer in asked:
        name = layer.get("layer_name")
        bare = [fact["name"][:-2] if fact["name"].endswith(":0") else fact["name"] for fact in model.outputs]
        if isinstance(name, str) and (name[:-2] if name.endswith(":0") else name) not in bare:
            model.add_output(name)
