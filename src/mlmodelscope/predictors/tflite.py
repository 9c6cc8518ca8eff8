"""Turns tensors into tensors with TensorFlow Lite: the interpreter of LiteRT (ai-edge-litert) or of tflite-runtime.

Option: `delegate` (xnnpack, the default, or none). A model whose batch dimension is open (-1 in its shape signature) is
resized when a call brings another batch size; that one call pays for it. A fixed batch dimension is never resized.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import os
from typing import Any, ClassVar, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.litertprofile import CompiledProfile, add_nodes
from mlmodelscope.predictors.modelfile import describe_file
from mlmodelscope.predictors.port import (
    PredictorFault,
    check_all_fed,
    check_element_types,
    check_options,
    check_threads,
    distribution_version,
    element_type,
    import_framework,
    misfit,
    quiet_stderr,
    select_layers,
    thread_ids,
    threads_in_force,
    unloaded,
)

__all__ = ["Predictor"]

_MODULES = {"ai_edge_litert.interpreter": "ai-edge-litert", "tflite_runtime.interpreter": "tflite-runtime"}


class Predictor(object):
    name: ClassVar[str] = "tflite"
    packages: ClassVar[Tuple[str, ...]] = ("ai-edge-litert", "tflite-runtime")
    environment: ClassVar[Dict[str, str]] = {}
    formats: ClassVar[Tuple[str, ...]] = (".tflite", ".lite")

    def __init__(self) -> None:
        self._interpreter: Any = None
        self._set: Any = None
        self._invoke: Any = None
        self._get: Any = None
        self._indexes: List[int] = []
        self._profile: Optional[CompiledProfile] = None
        self._whole: Any = None

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        options = model.get("options") or {}
        check_options(self.name, options, {"delegate": ("xnnpack", "none")})
        threads = check_threads(self.name, model.get("threads", 1))
        module = import_framework(self.name, list(_MODULES))
        before = thread_ids()
        interpreter = _open_interpreter(module, model["graph_path"], threads, options.get("delegate", "xnnpack"))
        after = thread_ids()
        details, results = interpreter.get_input_details(), interpreter.get_output_details()
        chosen = select_layers("input", model.get("inputs") or [], [detail["name"] for detail in details])
        self._details = [details[index] for index in chosen]
        self._inputs = [_layer(detail) for detail in self._details]
        check_all_fed([detail["name"] for detail in details], chosen)
        check_element_types(model.get("inputs") or [], self._inputs)
        picked = select_layers("output", model.get("outputs") or [], [result["name"] for result in results])
        operators = _operators(interpreter)
        is_delegated = any("DELEGATE" in str(operator["op_name"]).upper() for operator in operators)
        facts = {
            "framework": self.name,
            "version": distribution_version([_MODULES[module.__name__]]) or "unknown",
            # a delegate starts its threads at once; the plain kernels start theirs in the first call, and the
            # interpreter cannot be asked for their number
            "threads": threads_in_force(threads, before, after) if is_delegated else threads,
            "provider": "XNNPACK" if is_delegated else "none",
            "device": "cpu",
            "library": "XNNPACK" if is_delegated else "TensorFlow Lite",
            "optimization": "none",
            "precision": _precision(interpreter, operators, details),
            "inputs": self._inputs,
            "outputs": [_layer(results[index]) for index in picked],
        }
        self._bind(interpreter, [results[index]["index"] for index in picked])
        self._opening = (module, model["graph_path"], threads, is_delegated)
        return facts

    def _bind(self, interpreter: Any, outputs: List[int]) -> None:
        import numpy as np

        self._indexes = [detail["index"] for detail in self._details]
        self._dtypes = [None if detail["dtype"] is np.bytes_ else np.dtype(detail["dtype"]) for detail in self._details]
        self._outputs = outputs
        self._interpreter = interpreter
        self._bind_calls()

    def _bind_calls(self) -> None:
        # Medians of one call on a two-node model, interleaved, ai-edge-litert 2.3.0: these three 4.5 us, set_tensor,
        # invoke and get_tensor 5.7, tensor() views with copies 8.2, CompiledModel ten times as much. Views held from
        # call to call take 3.9, but broadcast a wrong shape silently and dangle after a resize. On MobileNet (13.6 ms)
        # all lie within 2 %, about the noise of that run.
        interpreter = self._interpreter
        wrapper: Any = getattr(interpreter, "_interpreter", None)
        if _reads_by_subgraph(wrapper, self._outputs):
            self._set, self._invoke, self._get = wrapper.SetTensor, wrapper.Invoke, wrapper.GetTensor
        else:
            self._set, self._invoke = interpreter.set_tensor, interpreter.invoke
            self._get = lambda index, _: interpreter.get_tensor(index)

    def predict(self, inputs: List[Any]) -> List[Any]:
        try:
            self._feed(inputs)
        except (AttributeError, TypeError, ValueError) as error:
            self._refit(inputs, error)
        try:
            self._invoke()
        except (RuntimeError, TypeError, ValueError) as error:
            raise self._failed(error) from error
        get = self._get
        return [get(index, 0) for index in self._outputs]

    def _feed(self, inputs: List[Any]) -> None:
        if len(inputs) != len(self._indexes):
            raise TypeError("inputs")
        for index, dtype, value in zip(self._indexes, self._dtypes, inputs):
            # the interpreter takes big-endian numbers for little-endian ones without a word
            if value.dtype is not dtype and dtype is not None and value.dtype != dtype:
                raise TypeError(index)
            self._set(index, value)

    def _refit(self, inputs: List[Any], error: Exception) -> None:
        """Gives open dimensions the sizes that came, or says why the inputs cannot fit."""
        if self._interpreter is None:
            raise self._failed(error) from error
        fault = misfit(self._inputs, inputs)
        if fault is not None:
            raise fault from error
        shapes = {detail["index"]: detail["shape"] for detail in self._interpreter.get_input_details()}
        held = [[int(size) for size in shapes[index]] for index in self._indexes]
        given = [list(value.shape) for value in inputs]
        if given == held:
            raise self._failed(error) from error
        try:
            self._resize(given)
            self._feed(inputs)
        except (RuntimeError, ValueError) as refusal:
            self._resize(held)
            raise PredictorFault(
                "batch_unsupported",
                f"the model declares open dimensions but cannot run with {given}: {refusal}",
                expected=held,
                got=given,
            ) from refusal

    def _resize(self, shapes: Sequence[Sequence[int]]) -> None:
        # the interpreter refuses to move its memory while anybody holds its inner object, as bound methods do
        self._set = self._invoke = self._get = None
        try:
            for index, shape in zip(self._indexes, shapes):
                self._interpreter.resize_tensor_input(index, shape)
            with quiet_stderr():
                self._interpreter.allocate_tensors()
        finally:
            self._bind_calls()

    def _failed(self, error: Exception) -> PredictorFault:
        if self._interpreter is None:
            return unloaded(self.name)
        return PredictorFault("predictor_failed", f"tflite: {error}", framework=self.name, error=str(error))

    def start_profile(self, folder: str) -> None:
        """A compiled model of LiteRT does the profiled calls: the interpreter has no profile for Python."""
        if self._interpreter is None:
            raise unloaded(self.name)
        self.stop_profile()
        module, path, threads, is_delegated = self._opening
        if not is_delegated or module.__name__ != "ai_edge_litert.interpreter":
            raise PredictorFault(
                "predictor_failed",
                "tflite: only ai-edge-litert with the delegate xnnpack has a layer profile",
                framework=self.name,
            )
        profile = CompiledProfile(os.path.dirname(module.__file__), path, threads)
        try:
            profile.bind(self._details, self._interpreter.get_output_details())
        except PredictorFault:
            profile.close()
            raise
        self._profile = profile
        self._set, self._invoke, self._get = profile.set, profile.invoke, profile.get

    def stop_profile(self) -> List[Optional[List[Dict[str, Any]]]]:
        profile, self._profile = self._profile, None
        if profile is None:
            return []
        self._bind_calls()
        profile.close()
        for layers in profile.calls:
            add_nodes(layers, _model_operators(self._interpreter))
        return list(profile.calls)

    def layer_names(self) -> List[str]:
        """The tensors that the model's operators compute, in their order."""
        return list(_computed(self._open_whole()))

    def reveal(self, inputs: List[Any], names: Sequence[str]) -> List[Any]:
        """A second interpreter answers, which keeps every tensor: with the plain kernels, a delegate keeps none."""
        whole = self._open_whole()
        computed = _computed(whole)
        known = list(computed)
        wanted = [known[i] for i in select_layers("inner", [{"layer_name": name} for name in names], known)]
        fault = misfit(self._inputs, inputs)
        if fault is not None:
            raise fault
        try:
            for index, value in zip(self._indexes, inputs):
                whole.resize_tensor_input(index, list(value.shape))
            whole.allocate_tensors()
            for index, value in zip(self._indexes, inputs):
                whole.set_tensor(index, value)
            whole.invoke()
            return [whole.get_tensor(computed[name]) for name in wanted]
        except (RuntimeError, ValueError) as error:
            raise self._failed(error) from error

    def _open_whole(self) -> Any:
        if self._interpreter is None:
            raise unloaded(self.name)
        if self._whole is None:
            module, path, threads, _ = self._opening
            try:
                self._whole = _open_interpreter(module, path, threads, "none", keeps_tensors=True)
            except TypeError:
                raise PredictorFault(
                    "predictor_failed", "tflite: this version cannot show what layers compute", framework=self.name
                ) from None
        return self._whole

    def unload(self) -> None:
        self.stop_profile()
        self._interpreter = self._set = self._invoke = self._get = self._whole = None
        self._indexes = []


def _reads_by_subgraph(wrapper: Any, outputs: Sequence[int]) -> bool:
    """Whether the interpreter's inner object has the calls of today's versions."""
    if not outputs or not all(hasattr(wrapper, call) for call in ("SetTensor", "Invoke", "GetTensor")):
        return False
    try:
        wrapper.GetTensor(outputs[0], 0)
    except TypeError:
        return False
    except ValueError:  # an output of open size has no memory before the first call
        pass
    return True


def _open_interpreter(module: Any, path: str, threads: int, delegate: str, keeps_tensors: bool = False) -> Any:
    resolvers = getattr(module, "OpResolverType", None)
    arguments: Dict[str, Any] = {"model_path": path, "num_threads": threads}
    if keeps_tensors:
        arguments["experimental_preserve_all_tensors"] = True
    if delegate == "none" and resolvers is not None:
        arguments["experimental_op_resolver_type"] = resolvers.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        interpreter = module.Interpreter(**arguments)
    except (RuntimeError, ValueError) as error:
        raise _format_fault(path, error) from error
    try:
        with quiet_stderr():
            interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        raise PredictorFault(
            "predictor_failed", f"tflite cannot prepare {path}: {error}", path=path, error=str(error)
        ) from error
    return interpreter


def _format_fault(path: str, error: Exception) -> PredictorFault:
    looks = describe_file(path)
    if looks == "a TensorFlow Lite model":
        return PredictorFault(
            "model_format",
            f"tflite cannot read {path}: {error}",
            hint="the file looks like a TensorFlow Lite model, but is cut short, damaged or of a newer version",
            path=path,
            error=str(error),
        )
    return PredictorFault(
        "model_format",
        f"{path} is no TensorFlow Lite model: it is {looks}",
        hint="give tflite a .tflite file",
        path=path,
        expected="a TensorFlow Lite model",
        got=looks,
    )


def _layer(detail: Dict[str, Any]) -> Dict[str, Any]:
    signature = detail.get("shape_signature")
    shape = detail["shape"] if signature is None or len(signature) == 0 else signature
    return {
        "name": detail["name"],
        "shape": [None if size < 0 else int(size) for size in shape],
        "element_type": _type_name(detail),
    }


def _type_name(detail: Dict[str, Any]) -> str:
    name = detail["dtype"].__name__.rstrip("_")
    return "string" if name == "bytes" else element_type(name)


def _operators(interpreter: Any) -> List[Dict[str, Any]]:
    """The nodes of the graph, a delegate's included; none where the version cannot list them."""
    try:
        return list(interpreter._get_ops_details())  # noqa: SLF001 - no public call tells whether a delegate took over
    except (AttributeError, ValueError):
        return []


def _model_operators(interpreter: Any) -> List[Dict[str, Any]]:
    """The model's own operators in order; they have no names, so they go by their first output."""
    tensors = {detail["index"]: detail for detail in interpreter.get_tensor_details()}
    found = []
    for operator in _operators(interpreter):
        outputs = [tensors[int(index)] for index in operator["outputs"] if int(index) in tensors]
        if outputs and "DELEGATE" not in str(operator["op_name"]).upper():
            shapes = [
                {"element_type": _type_name(detail), "shape": [int(size) for size in detail["shape"]]}
                for detail in outputs
            ]
            found.append({"operator": operator["op_name"], "name": outputs[0]["name"], "outputs": shapes})
    return found


def _computed(interpreter: Any) -> Dict[str, int]:
    """The tensors that operators compute, by name; one whose name another has already goes by its number too."""
    names = {int(detail["index"]): str(detail["name"]) for detail in interpreter.get_tensor_details()}
    found: Dict[str, int] = {}
    for operator in _operators(interpreter):
        for index in map(int, operator["outputs"]):
            if index in names:
                found[f"{names[index]}#{index}" if names[index] in found else names[index]] = index
    return found


def _precision(interpreter: Any, operators: Sequence[Dict[str, Any]], inputs: Sequence[Dict[str, Any]]) -> str:
    """What the weights are and whether the operators between them compute in integers too."""
    weights, results = _element_counts(interpreter, operators, inputs)
    if not weights:
        return _type_name(inputs[0]) if inputs else "unknown"
    commonest = max(sorted(weights), key=lambda name: weights[name])
    if commonest.startswith("float"):
        return commonest if commonest == "float32" else f"{commonest} weights"
    return f"{commonest} quantised" if results.get(commonest, 0) > 0 else f"{commonest} weights"


def _element_counts(
    interpreter: Any, operators: Sequence[Dict[str, Any]], inputs: Sequence[Dict[str, Any]]
) -> Tuple[Dict[str, int], Dict[str, int]]:
    """Elements per type of the constant tensors and of the computed ones."""
    computed = {int(index) for operator in operators for index in operator["outputs"]}
    given = {int(detail["index"]) for detail in inputs}
    weights: Dict[str, int] = {}
    results: Dict[str, int] = {}
    for detail in interpreter.get_tensor_details():
        shape = [int(size) for size in detail["shape"]]
        if detail["index"] in given or len(shape) < 2:
            continue
        counts = results if detail["index"] in computed else weights
        elements = 1
        for size in shape:
            elements *= size
        counts[_type_name(detail)] = counts.get(_type_name(detail), 0) + elements
    return weights, results
