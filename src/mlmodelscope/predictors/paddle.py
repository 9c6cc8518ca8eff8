"""Turns tensors into tensors with Paddle Inference.

The graph is the program (`.json`, or `.pdmodel` of Paddle 2), the weights its parameters (`.pdiparams`; without a path
the file beside the program that differs in its ending). Options: `onednn` (on, off: whether oneDNN's kernels replace
Paddle's own, on as in Paddle itself) and `optimization` (on, off: whether the program is rewritten before it runs).
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import ctypes
import glob
import os
import warnings
from typing import Any, ClassVar, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.modelfile import describe_file
from mlmodelscope.predictors.paddlefile import Program, read_program
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

_SWITCH = ("on", "off")


class Predictor(object):
    name: ClassVar[str] = "paddle"
    packages: ClassVar[Tuple[str, ...]] = ("paddlepaddle", "paddlepaddle-gpu")
    environment: ClassVar[Dict[str, str]] = {
        "GLOG_minloglevel": "2",
        # MKL would take fewer threads than it is told on a machine that it thinks too small
        "MKL_DYNAMIC": "FALSE",
        # oneDNN computes in less than float32 where this says that it may
        "ONEDNN_DEFAULT_FPMATH_MODE": "STRICT",
    }
    formats: ClassVar[Tuple[str, ...]] = (".json", ".pdmodel")

    def __init__(self) -> None:
        self._predictor: Any = None
        self._fitting: Optional[List[Any]] = None

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        options = model.get("options") or {}
        check_options(self.name, options, {"onednn": _SWITCH, "optimization": _SWITCH})
        threads = check_threads(self.name, model.get("threads", 1))
        paddle, inference = _import_paddle()
        path, parameters = model["graph_path"], _parameters_path(model)
        program = _read(path, paddle)
        config = inference.Config(path, parameters)
        config.disable_gpu()
        config.disable_glog_info()
        config.set_cpu_math_library_num_threads(threads)
        config.switch_ir_optim(options.get("optimization", "on") == "on")
        (config.enable_mkldnn if options.get("onednn", "on") == "on" else config.disable_mkldnn)()
        predictor = _create(inference, config, path, parameters)
        inputs = _in_order(program.inputs, predictor.get_input_names())
        outputs = _in_order(program.outputs, predictor.get_output_names())
        chosen = select_layers("input", model.get("inputs") or [], [fact["name"] for fact in inputs])
        check_all_fed([fact["name"] for fact in inputs], chosen)
        self._inputs = [inputs[index] for index in chosen]
        check_element_types(model.get("inputs") or [], self._inputs)
        picked = select_layers("output", model.get("outputs") or [], [fact["name"] for fact in outputs])
        self._bind(predictor, [outputs[index]["name"] for index in picked])
        is_onednn = bool(config.mkldnn_enabled())
        return {
            "framework": self.name,
            "version": str(paddle.__version__),
            "threads": int(config.cpu_math_library_num_threads()),
            "provider": "oneDNN" if is_onednn else "phi",
            "device": "gpu" if config.use_gpu() else "cpu",
            "library": _library(paddle, is_onednn),
            "optimization": "on" if config.ir_optim() else "off",
            "precision": _precision(program),
            "inputs": self._inputs,
            "outputs": [outputs[index] for index in picked],
        }

    def _bind(self, predictor: Any, outputs: List[str]) -> None:
        import numpy as np

        # the call below copy_from_cpu, without its checks of the type: those are made here, once per shape
        self._copies = [_copying(predictor.get_input_handle(fact["name"])) for fact in self._inputs]
        self._handles = [predictor.get_output_handle(name).copy_to_cpu for name in outputs]
        self._contiguous = np.ascontiguousarray
        self._predictor, self._run = predictor, predictor.run

    def predict(self, inputs: List[Any]) -> List[Any]:
        try:
            # a wrong size can end the process inside a kernel, so none gets there unseen
            described = [(value.shape, value.dtype) for value in inputs]
            if described != self._fitting:
                self._check(inputs)
                self._fitting = described
            for copy, value in zip(self._copies, inputs):
                copy(value if value.flags.c_contiguous else self._contiguous(value))
            self._run()
            return [copy() for copy in self._handles]
        except PredictorFault:
            raise
        except Exception as error:  # RuntimeError, ValueError and classes of Paddle's own
            raise self._fault(inputs, error) from error

    def _check(self, inputs: Sequence[Any]) -> None:
        if self._predictor is None:
            raise unloaded(self.name)
        fault = misfit(self._inputs, inputs)
        if fault is not None:
            raise fault

    def _fault(self, inputs: Sequence[Any], error: Exception) -> PredictorFault:
        if self._predictor is None:
            return unloaded(self.name)
        return misfit(self._inputs, inputs) or PredictorFault(
            "predictor_failed", f"paddle: {_reason(error)}", framework=self.name, error=str(error)
        )

    def unload(self) -> None:
        predictor, self._predictor = self._predictor, None
        self._run = None
        self._copies, self._handles, self._fitting = [], [], None
        if predictor is not None:
            predictor.clear_intermediate_tensor()
            predictor.try_shrink_memory()
            del predictor
            _return_memory()


def _copying(handle: Any) -> Any:
    return getattr(handle, "_copy_from_cpu_bind", handle.copy_from_cpu)


def _return_memory() -> None:
    """Gives back what was freed: the C library would keep a model's memory for the next one."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # another C library
        pass


def _import_paddle() -> Tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a compiler cache that inference has no use for
        return import_framework("paddle", ["paddle"]), import_framework("paddle", ["paddle.inference"])


def _parameters_path(model: Dict[str, Any]) -> str:
    given = model.get("weights_path") or os.path.splitext(model["graph_path"])[0] + ".pdiparams"
    if not os.path.isfile(given):
        raise PredictorFault(
            "model_format",
            f"the parameters are not there: {given}",
            hint="give paddle the .pdiparams file as weights",
            path=given,
            expected="a .pdiparams file",
            got=describe_file(given),
        )
    return str(given)


def _read(path: str, paddle: Any) -> Program:
    try:
        return read_program(path)
    except (OSError, ValueError) as error:
        looks = describe_file(path)
        raise PredictorFault(
            "model_format",
            f"{path} is no program of Paddle {paddle.__version__}: it is {looks}",
            hint="give paddle the .json or .pdmodel file of paddle.static.save_inference_model or paddle.jit.save",
            path=path,
            expected="a Paddle program",
            got=looks,
            error=str(error),
        ) from error


def _create(inference: Any, config: Any, path: str, parameters: str) -> Any:
    try:
        return inference.create_predictor(config)
    except Exception as error:
        raise PredictorFault(
            "model_format",
            f"paddle cannot load {path} with {os.path.basename(parameters)}: {_reason(error)}",
            hint="the two files must be of the same model, and whole",
            path=path,
            error=str(error),
        ) from error


def _in_order(facts: Sequence[Dict[str, Any]], names: Sequence[str]) -> List[Dict[str, Any]]:
    """The facts of the file in the order of the predictor, which may know more names than the file says."""
    known = {fact["name"]: fact for fact in facts}
    return [known.get(name) or {"name": name, "shape": None, "element_type": "float32"} for name in names]


def _precision(program: Program) -> str:
    """The element type of most parameters: nothing is cast down unless a reduced precision is switched on."""
    types = {name: count for name, count in program.parameters.items() if "float" in name} or program.parameters
    return max(sorted(types), key=lambda name: types[name]) if types else "unknown"


class _Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int)]


def _library(paddle: Any, is_onednn: bool) -> str:
    """Paddle brings its libraries along; oneDNN is asked for its version."""
    folder = os.path.join(os.path.dirname(paddle.__file__), "libs")
    products = "MKL" if glob.glob(os.path.join(folder, "libmklml*")) else "OpenBLAS"
    if not is_onednn:
        return products
    for path in glob.glob(os.path.join(folder, "libdnnl.so*")):
        try:
            ask: Any = ctypes.CDLL(path).dnnl_version
        except (AttributeError, OSError):
            continue
        ask.restype = ctypes.POINTER(_Version)
        version = ask().contents
        return f"oneDNN {version.major}.{version.minor}.{version.patch}+{products}"
    return f"oneDNN+{products}"


def _reason(error: Exception) -> str:
    """The line with the reason: Paddle puts it behind a trace of its own functions."""
    lines: List[Optional[str]] = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if line and line.startswith("(")]
    return str((named or lines or [type(error).__name__])[0])
