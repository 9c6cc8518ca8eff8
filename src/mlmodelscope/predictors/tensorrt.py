"""Turns tensors into tensors with TensorRT on an NVIDIA GPU, from an engine file or from ONNX, which is built at load.

Options: `precision` (float32, float16, int8: what a build may compute in; an engine file has decided already), `tf32`
(on, off: whether float32 products may round their operands to TF32; off), `device` (the GPU: N or cuda:N), `max_batch`
(largest batch of an ONNX model whose batch size is open) and `workspace_mb`. The number of threads is of no
account: one feeds the GPU.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

from typing import Any, ClassVar, Dict, List, Optional, Sequence, Tuple

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
from mlmodelscope.predictors.tensorrtcuda import Cuda, open_cuda
from mlmodelscope.predictors.tensorrtengine import build_engine, read_engine
from mlmodelscope.predictors.tensorrtprofile import Profile, layer_profiler

__all__ = ["Predictor"]

_ENGINES = (".plan", ".engine")


class Predictor(object):
    name: ClassVar[str] = "tensorrt"
    packages: ClassVar[Tuple[str, ...]] = ("tensorrt", "tensorrt-cu12", "tensorrt-cu13")
    # the default of CUDA loads every kernel at start
    environment: ClassVar[Dict[str, str]] = {"CUDA_MODULE_LOADING": "LAZY"}
    formats: ClassVar[Tuple[str, ...]] = (".plan", ".engine", ".onnx")

    def __init__(self) -> None:
        self._context: Any = None
        self._cuda: Optional[Cuda] = None
        self._buffers: Dict[str, Tuple[int, int]] = {}
        self._stream: Any = None
        self._profile: Optional[Profile] = None

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        options = model.get("options") or {}
        choices = {"precision": ("float32", "float16", "int8"), "tf32": ("on", "off")}  # type: Dict[str, Any]
        check_options(self.name, options, dict(choices, device=None, max_batch=None, workspace_mb=None))
        check_threads(self.name, model.get("threads", 1))
        # before the package: its stub says less about what is missing
        cuda = open_cuda(_index(options.get("device", 0)))
        trt = import_framework(self.name, ["tensorrt"])
        if not hasattr(trt, "Runtime"):
            raise PredictorFault(
                "environment_missing",
                "the tensorrt package here is a stub without its libraries",
                hint="install tensorrt from NVIDIA's package index",
                framework=self.name,
            )
        engine, said = self._engine(trt, model["graph_path"], options)
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        inputs = _facts(trt, engine, [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT])
        outputs = _facts(
            trt, engine, [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT]
        )
        chosen = select_layers("input", model.get("inputs") or [], [fact["name"] for fact in inputs])
        check_all_fed([fact["name"] for fact in inputs], chosen)
        self._inputs = [inputs[index] for index in chosen]
        check_element_types(model.get("inputs") or [], self._inputs)
        picked = select_layers("output", model.get("outputs") or [], [fact["name"] for fact in outputs])
        self._all_outputs = outputs
        self._outputs = [outputs[index] for index in picked]
        self._bind(trt, engine, cuda)
        return {
            "framework": self.name,
            "version": trt.__version__,
            "threads": 1,
            "provider": "TensorRT",
            "device": f"cuda:{cuda.device} ({cuda.device_name()})",
            "library": f"TensorRT {trt.__version__}, CUDA {cuda.version()}",
            "optimization": said["optimization"],
            "precision": said["precision"],
            "inputs": self._inputs,
            "outputs": self._outputs,
        }

    def _engine(self, trt: Any, path: str, options: Dict[str, Any]) -> Tuple[Any, Dict[str, str]]:
        looks = describe_file(path)
        if looks == "an ONNX model":
            return build_engine(trt, path, options)
        if not path.endswith(_ENGINES) or looks.startswith("unreadable") or looks == "an empty file":
            raise PredictorFault(
                "model_format",
                f"{path} is no TensorRT engine and no ONNX model: it is {looks}",
                hint="give tensorrt a .plan or .engine file of this version and GPU, or an .onnx file",
                path=path,
                expected="a TensorRT engine or an ONNX model",
                got=looks,
            )
        asked = sorted(set(options) & {"precision", "tf32", "max_batch", "workspace_mb"})
        if asked:
            raise PredictorFault(
                "predictor_failed",
                f"tensorrt: {', '.join(asked)} was decided when the engine was built",
                hint="give the .onnx file to build an engine with these options",
                option=asked[0],
            )
        return read_engine(trt, path)

    def _bind(self, trt: Any, engine: Any, cuda: Cuda) -> None:
        import numpy as np

        self._trt, self._engine_in_use, self._cuda = trt, engine, cuda
        self._dtypes = {fact["name"]: np.dtype(fact["element_type"]) for fact in self._inputs + self._all_outputs}
        self._empty, self._contiguous = np.empty, np.ascontiguousarray
        self._context = engine.create_execution_context()
        if self._context is None:
            raise PredictorFault(
                "predictor_failed", "tensorrt cannot make an execution context: is there enough memory on the GPU?"
            )
        self._stream, self._run = cuda.make_stream(), self._run_plain
        self._shapes: Any = None

    def predict(self, inputs: List[Any]) -> List[Any]:
        if self._context is None or self._cuda is None:
            raise unloaded(self.name)
        cuda, stream = self._cuda, self._stream
        try:
            if self._shapes != [(value.shape, value.dtype) for value in inputs]:
                self._reshape(inputs)
            for fact, value in zip(self._inputs, inputs):
                given = value if value.flags.c_contiguous else self._contiguous(value)
                # blocking: the caller's memory is free again when this returns
                cuda.copy_in(self._buffers[fact["name"]][0], given.ctypes.data, given.nbytes)
            self._run(stream)
            results = [self._empty(shape, dtype) for shape, dtype in self._result_forms]
            for fact, result in zip(self._outputs, results):
                cuda.copy_out(result.ctypes.data, self._buffers[fact["name"]][0], result.nbytes)
            return results
        except PredictorFault:
            raise
        except Exception as error:
            raise misfit(self._inputs, inputs) or PredictorFault(
                "predictor_failed", f"tensorrt: {error}", framework=self.name, error=str(error)
            ) from error

    def _run_plain(self, stream: Any) -> None:
        if self._cuda is None or not self._context.execute_async_v3(stream):
            raise RuntimeError("the engine did not run")
        self._cuda.wait(stream)

    def _reshape(self, inputs: Sequence[Any]) -> None:
        """Makes context and memory fit to these sizes; the one call that brings new sizes pays for it."""
        self._shapes = None
        fault = misfit(self._inputs, inputs)
        if fault is not None:
            raise fault
        for fact, value in zip(self._inputs, inputs):
            if not self._context.set_input_shape(fact["name"], tuple(value.shape)):
                low, _, high = self._engine_in_use.get_tensor_profile_shape(fact["name"], 0)
                raise PredictorFault(
                    "batch_unsupported",
                    f"the engine takes {fact['name']!r} from {list(low)} to {list(high)}, not {list(value.shape)}",
                    hint="build it from ONNX with a larger max_batch",
                    layer=fact["name"],
                    expected=list(high),
                    got=list(value.shape),
                )
            self._allocate(fact["name"], value.nbytes)
        forms = {}
        for fact in self._all_outputs:
            shape, dtype = tuple(self._context.get_tensor_shape(fact["name"])), self._dtypes[fact["name"]]
            count = 1
            for size in shape:
                count *= int(size)
            forms[fact["name"]] = (shape, dtype)
            self._allocate(fact["name"], count * dtype.itemsize)
        self._result_forms = [forms[fact["name"]] for fact in self._outputs]
        self._shapes = [(value.shape, value.dtype) for value in inputs]

    def _allocate(self, name: str, size: int) -> None:
        assert self._cuda is not None
        address, held = self._buffers.get(name, (0, 0))
        if size > held or not address:
            if address:
                self._cuda.free(self._buffers.pop(name)[0])
            address, held = self._cuda.allocate(max(size, 1)), size
            self._buffers[name] = (address, held)
        self._context.set_tensor_address(name, address)

    def start_profile(self, folder: str) -> None:
        if self._context is None:
            raise unloaded(self.name)
        self.stop_profile()
        profile = Profile()
        profile.attach(self._context, layer_profiler(self._trt, profile))
        self._profile, self._run = profile, profile.around(self._run_plain)

    def stop_profile(self) -> List[Optional[List[Dict[str, Any]]]]:
        profile, self._profile = self._profile, None
        if profile is None:
            return []
        self._run = self._run_plain
        # a context keeps its profiler: the next calls get a new one
        self._context = self._engine_in_use.create_execution_context()
        self._shapes = None
        return list(profile.calls)

    def unload(self) -> None:
        self.stop_profile()
        cuda, self._cuda = self._cuda, None
        self._context = self._engine_in_use = None
        if cuda is not None:
            for address, _ in self._buffers.values():
                cuda.free(address)
            cuda.drop_stream(self._stream)
        self._buffers, self._stream = {}, None


def _index(device: Any) -> int:
    number = str(device)[len("cuda:") :] if str(device).startswith("cuda:") else str(device)
    if not number.isdecimal():
        raise PredictorFault(
            "predictor_failed",
            f"tensorrt: option device cannot be {device!r}",
            hint="device is the number of the GPU, or cuda:N",
            option="device",
            expected="cuda:N",
            got=str(device),
        )
    return int(number)


def _facts(trt: Any, engine: Any, names: Sequence[str]) -> List[Dict[str, Any]]:
    import numpy as np

    return [
        {
            "name": name,
            "shape": [int(size) if size >= 0 else None for size in engine.get_tensor_shape(name)],
            "element_type": np.dtype(trt.nptype(engine.get_tensor_dtype(name))).name,
        }
        for name in names
    ]
