"""Turns tensors into tensors with PyTorch: TorchScript, torch.export, or a module factory with a state dict.

Options: `factory` ("package.module:callable", with `arguments` and `keywords`) makes the module whose state dict
`weights_path`, or `graph_path`, holds; `shapes` states the inputs' shapes (null: any size), which a module needs and
TorchScript may have; `device` (cpu, or cuda:N). Outputs are named by dictionary keys or fields of a named tuple, others
output_0, output_1. The number of threads is the process's: a call restores its own model's number.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import gc
import re
import warnings
from typing import Any, Callable, ClassVar, Dict, List, Optional, Sequence, Tuple

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
from mlmodelscope.predictors.pytorchfile import open_model
from mlmodelscope.predictors.pytorchmodel import Model, follow, numpy_type
from mlmodelscope.predictors.torchprofile import Profile

__all__ = ["Predictor"]

_OPTIONS: Dict[str, Optional[Sequence[str]]] = {
    "arguments": None,
    "device": None,
    "factory": None,
    "keywords": None,
    "shapes": None,
}


class Predictor(object):
    name: ClassVar[str] = "pytorch"
    packages: ClassVar[Tuple[str, ...]] = ("torch",)
    environment: ClassVar[Dict[str, str]] = {
        # the profiler reports its start and stop, and memory older than itself, on stderr otherwise
        "KINETO_LOG_LEVEL": "99",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        # torch.export reads what is no plain tensor with the unsafe reader, unless this forbids it everywhere
        "TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1",
        # no reduced precision behind float32 unasked
        "ONEDNN_DEFAULT_FPMATH_MODE": "STRICT",
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "0",
    }
    formats: ClassVar[Tuple[str, ...]] = (".pt2", ".pt", ".ts", ".pth")

    def __init__(self) -> None:
        self._model: Optional[Model] = None
        self._profile: Optional[Profile] = None
        self._dtypes: List[Any] = []

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        options = model.get("options") or {}
        check_options(self.name, options, _OPTIONS)
        threads = check_threads(self.name, model.get("threads", 1))
        torch = import_framework(self.name, ["torch"])
        device = _device(torch, options.get("device", "cpu"))
        _set_threads(torch, threads)
        _set_precision(torch, device)
        asked = model.get("inputs") or []
        opened = open_model(torch, (model["graph_path"], model.get("weights_path")), asked, options, device)
        chosen = select_layers("input", asked, [fact["name"] for fact in opened.inputs])
        check_all_fed([fact["name"] for fact in opened.inputs], chosen)
        self._inputs = [opened.inputs[index] for index in chosen]
        check_element_types(asked, self._inputs)
        names = [output[0] for output in opened.outputs]
        picked = [opened.outputs[index] for index in select_layers("output", model.get("outputs") or [], names)]
        self._bind(torch, opened, chosen, [output[3] for output in picked], device)
        self._threads = threads
        return {
            "framework": self.name,
            # "+cpu" names the build, not the version
            "version": str(torch.__version__).partition("+")[0],
            "threads": torch.get_num_threads(),
            "provider": type(opened).provider,
            "device": str(device),
            "library": _library(torch, device),
            "optimization": opened.optimization,
            "precision": _precision(torch, opened, device),
            "inputs": self._inputs,
            "outputs": [
                {"name": name, "shape": shape, "element_type": kind or "unknown"} for name, shape, kind, _ in picked
            ],
        }

    def _bind(self, torch: Any, opened: Model, chosen: List[int], paths: List[Any], device: Any) -> None:
        import numpy as np

        for value in opened.module.parameters():
            value.requires_grad_(False)
        self._torch, self._contiguous = torch, np.ascontiguousarray
        self._from_numpy, self._get_threads = torch.from_numpy, torch.get_num_threads
        # a third of the cost of torch.inference_mode(), which is this and a look at its argument
        self._inference = torch._C._InferenceMode  # noqa: SLF001
        self._dtypes = [np.dtype(fact["element_type"]) for fact in self._inputs]
        self._order = None if chosen == sorted(chosen) else [chosen.index(place) for place in range(len(chosen))]
        targets = [opened.dtypes[index] for index in chosen]
        is_plain = device.type == "cpu" and all(numpy_type(kind) == str(kind)[6:] for kind in targets)
        self._targets = [(device, kind) for kind in targets]
        self._is_written_to = bool(opened.is_written_to)
        self._moves = None if is_plain and not self._is_written_to else self._targets
        self._is_single = paths == [()]
        self._is_flat = all(len(path) == 1 for path in paths)
        self._paths = [path[0] for path in paths] if self._is_flat else paths
        self._is_shared = _sharing(torch, opened.held())
        self._fitting: Any = None
        self._call, self._guarded = opened.call, opened.guarded or opened.call
        self._model = opened
        with warnings.catch_warnings():
            # torch warns once per process about arrays that must not be written to; nobody writes to them here
            warnings.simplefilter("ignore")
            locked = np.zeros(1, np.float32)
            locked.flags.writeable = False
            torch.from_numpy(locked)

    def predict(self, inputs: List[Any]) -> List[Any]:
        try:
            tensors = self._tensors(inputs)
            shapes = [value.shape for value in inputs]
            if shapes == self._fitting:
                call = self._call
            else:
                fault = misfit(self._inputs, inputs)
                if fault is not None:
                    raise fault
                call = self._guarded if self._fitting is not None else self._first_call
            with self._inference(True):
                result = call(*tensors)
            self._fitting = shapes
            return self._arrays(result, tensors)
        except PredictorFault:
            raise
        except Exception as error:  # the code of a model may raise anything
            raise self._fault(inputs, error) from error

    def _first_call(self, *tensors: Any) -> Any:
        """On copies, and whether the model writes into its inputs: the caller's memory may not even be writable."""
        with self._inference(False):
            copies = [tensor.clone() for tensor in tensors]
        result = self._guarded(*copies)
        if any(copy._version for copy in copies):  # noqa: SLF001 - nothing else tells of a write
            self._is_written_to, self._moves = True, self._targets
        return result

    def _tensors(self, inputs: List[Any]) -> List[Any]:
        if len(inputs) != len(self._dtypes) or self._model is None:
            raise TypeError("inputs")
        if self._get_threads() != self._threads:
            self._torch.set_num_threads(self._threads)
        tensors = []
        for dtype, value in zip(self._dtypes, inputs):
            if value.dtype is not dtype and value.dtype != dtype:
                raise TypeError("element type")
            # models may rely on the order in memory, and negative strides are more than torch can bear
            tensors.append(self._from_numpy(value if value.flags.c_contiguous else self._contiguous(value)))
        if self._moves is not None:
            copies = self._is_written_to
            tensors = [tensor.to(device, dtype, copy=copies) for tensor, (device, dtype) in zip(tensors, self._moves)]
        return tensors if self._order is None else [tensors[place] for place in self._order]

    def _arrays(self, result: Any, tensors: Sequence[Any]) -> List[Any]:
        if self._is_single:
            found = [result]
        elif self._is_flat:
            found = [result[key] for key in self._paths]
        else:
            found = [follow(result, path) for path in self._paths]
        # one object stands for one tensor as long as it lives: an input that is returned is the same object
        given = list(map(id, tensors))
        return [self._array(tensor, id(tensor) in given) for tensor in found]

    def _array(self, tensor: Any, is_given: bool) -> Any:
        try:
            # an output may be a view of an input, of a weight or of another output; the caller must own it
            return tensor.numpy().copy() if is_given or self._is_shared(tensor) else tensor.numpy()
        except (RuntimeError, TypeError):
            # of another device, in bfloat16, or a lazily negated view
            plain = tensor.detach().cpu().resolve_conj().resolve_neg()
            return (plain.float() if str(plain.dtype) == "torch.bfloat16" else plain).numpy().copy()

    def _fault(self, inputs: Sequence[Any], error: Exception) -> PredictorFault:
        if self._model is None:
            return unloaded(self.name)
        fault = misfit(self._inputs, inputs)
        if fault is not None:
            return fault
        lines = str(error).strip().splitlines()
        text = lines[-1] if lines else type(error).__name__
        if isinstance(error, AssertionError) and text.startswith(("Guard failed", "Expected input")):
            given = [list(value.shape) for value in inputs]
            return PredictorFault(
                "shape_mismatch",
                f"the model was exported for other sizes: {text}",
                expected=[fact["shape"] for fact in self._inputs],
                got=given,
                error=str(error),
            )
        return PredictorFault("predictor_failed", f"pytorch: {text}", framework=self.name, error=str(error))

    def layer_names(self) -> List[str]:
        if self._model is None:
            raise unloaded(self.name)
        return self._model.layer_names()

    def reveal(self, inputs: List[Any], names: Sequence[str]) -> List[Any]:
        known = self.layer_names()
        select_layers("inner", [{"layer_name": name} for name in names], known)
        self.predict(inputs)
        assert self._model is not None
        with self._inference(True):
            return [self._array(tensor, True) for tensor in self._model.reveal(self._tensors(inputs), names)]

    def start_profile(self, folder: str) -> None:
        """The profiler keeps what it sees in memory: `folder` stays empty."""
        if self._model is None:
            raise unloaded(self.name)
        self.stop_profile()
        self._profile = Profile(self._torch, self._model)
        self._call = self._guarded = self._profile.run

    def stop_profile(self) -> List[Optional[List[Dict[str, Any]]]]:
        profile, self._profile = self._profile, None
        if profile is None or self._model is None:
            return []
        self._call, self._guarded = self._model.call, self._model.guarded or self._model.call
        return profile.finish()

    def unload(self) -> None:
        self.stop_profile()
        was_loaded = self._model is not None
        self._model = self._call = self._guarded = None  # type: ignore[assignment]
        self._dtypes = []
        if was_loaded:
            # a program's nodes refer to one another, and would keep the weights until some later collection
            gc.collect()


def _sharing(torch: Any, held: Sequence[Any]) -> Callable[[Any], bool]:
    """Whether anybody else holds the memory of a tensor: the model, or another tensor. True where nobody can tell."""
    count = getattr(torch._C, "_storage_Use_Count", None)  # noqa: SLF001
    if count is None:
        return lambda _: True
    kept = {value.untyped_storage().data_ptr() for value in held if value.layout == torch.strided}

    def is_shared(tensor: Any) -> bool:
        memory = tensor.untyped_storage()
        # the tensor holds it, and the object through which it is looked at
        return memory.data_ptr() in kept or count(memory._cdata) > 2  # noqa: SLF001

    return is_shared


def _device(torch: Any, asked: Any) -> Any:
    try:
        device = torch.device(asked)
    except (RuntimeError, TypeError) as error:
        raise PredictorFault(
            "predictor_failed",
            f"pytorch: option device cannot be {asked!r}",
            hint="device is cpu or cuda:N",
            option="device",
            got=str(asked),
        ) from error
    if device.type == "cpu":
        return torch.device("cpu")
    count = torch.cuda.device_count() if device.type == "cuda" and torch.cuda.is_available() else 0
    if (device.index or 0) >= count:
        raise PredictorFault(
            "environment_missing",
            f"pytorch finds no device {asked} here",
            hint="it needs an NVIDIA GPU with its driver, and a build of PyTorch for it",
            expected=str(asked),
            got=[f"cuda:{index}" for index in range(count)] or ["cpu"],
        )
    return torch.device("cuda", device.index or 0)


def _set_threads(torch: Any, threads: int) -> None:
    torch.set_num_threads(threads)
    if torch.get_num_interop_threads() != 1:
        try:
            torch.set_num_interop_threads(1)
        except RuntimeError as error:  # only possible before the first parallel work of the process
            raise PredictorFault(
                "predictor_failed",
                "pytorch was already at work in this process: its threads can no longer be limited",
                hint="start a new process for this model",
                framework="pytorch",
                error=str(error),
            ) from error


def _set_precision(torch: Any, device: Any) -> None:
    torch.set_float32_matmul_precision("highest")
    if device.type == "cuda":
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True


def _library(torch: Any, device: Any) -> str:
    if device.type == "cuda":
        return f"cuDNN {torch.backends.cudnn.version()}, CUDA {torch.version.cuda}"
    said = torch.__config__.show()
    found = []
    onednn = re.search(r"(?:MKL-DNN|oneDNN) v([\d.]+)", said)
    if onednn and torch.backends.mkldnn.is_available():
        found.append(f"oneDNN {onednn.group(1)}")
    mkl = re.search(r"Math Kernel Library Version ([\d.]+)", said)
    if mkl and torch.backends.mkl.is_available():
        found.append(f"MKL {mkl.group(1)}")
    return ", ".join(found) or "unknown"


def _precision(torch: Any, opened: Model, device: Any) -> str:
    """What the weights are, and how the products of float32 numbers are made."""
    counts: Dict[str, int] = {}
    for value in opened.module.state_dict().values():
        if hasattr(value, "numel") and (value.is_floating_point() or "qint" in str(value.dtype)):
            name = str(value.dtype).rpartition(".")[2]
            counts[name] = counts.get(name, 0) + value.numel()
    if opened.is_quantised():
        return "int8 quantised"
    weights = max(sorted(counts), key=lambda name: counts[name]) if counts else "float32"
    automatic = _automatic_type(torch, device)
    if automatic is not None:
        return f"{weights} with automatic {automatic}".replace("torch.", "")
    products = torch.get_float32_matmul_precision()
    return weights if weights != "float32" or products == "highest" else f"float32 ({products} products)"


def _automatic_type(torch: Any, device: Any) -> Any:
    """The type to which PyTorch casts on its own, or None."""
    try:
        return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None
    except TypeError:  # before 2.4 every kind of device had functions of its own
        if device.type == "cpu":
            return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
