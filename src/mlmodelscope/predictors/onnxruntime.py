"""Turns tensors into tensors with ONNX Runtime.

Options: `optimization` (all, extended, basic, none: the graph rewriting level, default all) and `providers` (execution
providers in order of preference, default the CPU alone, so that nothing moves to another device unasked). A model's
external data are found beside the graph, under the names the graph gives them.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import os
from typing import Any, ClassVar, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.modelfile import (
    describe_file,
    onnx_precision,
    onnx_with_outputs,
    read_onnx,
    read_onnx_nodes,
)
from mlmodelscope.predictors.onnxprofile import Profile
from mlmodelscope.predictors.port import (
    PredictorFault,
    check_all_fed,
    check_element_types,
    check_options,
    check_threads,
    element_type,
    import_framework,
    misfit,
    select_layers,
    thread_ids,
    threads_in_force,
    unloaded,
)

__all__ = ["Predictor"]

_LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "none": "ORT_DISABLE_ALL",
}
_CPU = "CPUExecutionProvider"
# where providers compute; the preferred one that holds nodes decides, and others are not known to be anywhere
_DEVICES = {
    _CPU: "cpu",
    "ACLExecutionProvider": "cpu",
    "ArmNNExecutionProvider": "cpu",
    "DnnlExecutionProvider": "cpu",
    "XnnpackExecutionProvider": "cpu",
    "CUDAExecutionProvider": "cuda:0",
    "NvTensorRTRTXExecutionProvider": "cuda:0",
    "TensorrtExecutionProvider": "cuda:0",
    "MIGraphXExecutionProvider": "rocm:0",
    "ROCMExecutionProvider": "rocm:0",
}
_UNREADABLE = ("InvalidGraph", "InvalidProtobuf", "NoModel", "NoSuchFile")
_LOG_ERRORS = 3


class Predictor(object):
    name: ClassVar[str] = "onnxruntime"
    packages: ClassVar[Tuple[str, ...]] = (
        "onnxruntime",
        "onnxruntime-gpu",
        "onnxruntime-openvino",
        "onnxruntime-directml",
    )
    # telemetry is on by default from 1.30, and only the variable, set before the process starts, stops it
    environment: ClassVar[Dict[str, str]] = {"ORT_DISABLE_TELEMETRY": "1"}
    formats: ClassVar[Tuple[str, ...]] = (".onnx", ".ort")

    def __init__(self) -> None:
        self._session: Any = None
        self._run: Any = None
        self._profile: Optional[Profile] = None
        self._revealing: Tuple[Sequence[str], Any] = ((), None)

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        options = model.get("options") or {}
        check_options(self.name, options, {"optimization": sorted(_LEVELS), "providers": None})
        threads = check_threads(self.name, model.get("threads", 1))
        ort = import_framework(self.name, ["onnxruntime"])
        path = model["graph_path"]
        providers = _checked_providers(ort, options.get("providers") or [_CPU])
        before = thread_ids()
        opening = (ort, path, threads, options.get("optimization", "all"), providers)
        session = _open_session(*opening)
        after = thread_ids()
        inputs, outputs = _layers(session.get_inputs()), _layers(session.get_outputs())
        chosen = select_layers("input", model.get("inputs") or [], [fact["name"] for fact in inputs])
        check_all_fed([fact["name"] for fact in inputs], chosen + _optional(session))
        self._inputs = [inputs[index] for index in chosen]
        check_element_types(model.get("inputs") or [], self._inputs)
        picked = [outputs[i] for i in select_layers("output", model.get("outputs") or [], [o["name"] for o in outputs])]
        _check_tensors(session.get_outputs(), [fact["name"] for fact in picked])
        self._bind(session, picked)
        self._opening = opening
        computing = _providers_in_force(session)
        in_force = session.get_session_options()
        level = str(getattr(in_force.graph_optimization_level, "name", in_force.graph_optimization_level))
        return {
            "framework": self.name,
            "version": ort.__version__,
            "threads": threads_in_force(in_force.intra_op_num_threads, before, after),
            "provider": "+".join(computing),
            "device": _DEVICES.get(computing[0], "unknown"),
            "library": "MLAS" if computing == [_CPU] else "unknown",
            "optimization": {value: key for key, value in _LEVELS.items()}.get(level, level),
            "precision": _precision(path),
            "inputs": self._inputs,
            "outputs": picked,
        }

    def _bind(self, session: Any, outputs: List[Dict[str, Any]]) -> None:
        import numpy as np

        self._names = [fact["name"] for fact in self._inputs]
        self._dtypes = [_dtype(np, fact["element_type"]) for fact in self._inputs]
        self._output_names = [fact["name"] for fact in outputs]
        self._session = session
        # session.run repeats checks made here at load, and on a provider's failure moves to another one by itself,
        # which would falsify a measurement; the object below it does neither. Medians of one call on a three-node
        # model, interleaved, 1.31.1: this 6.9 us, session.run 8.4, run_with_iobinding 13.1, run_with_ort_values 59.6;
        # on a 7.6 ms model within 0.3 % of session.run, io binding 2 % slower (it copies the results once more).
        self._run = _run_of(session)

    def predict(self, inputs: List[Any]) -> List[Any]:
        feed = {}
        try:
            for name, dtype, value in zip(self._names, self._dtypes, inputs):
                # the runtime takes big-endian numbers for little-endian ones, and lists for arrays, without a word
                if value.dtype is not dtype:
                    if dtype is None:
                        value = _texts(value)
                    elif value.dtype != dtype:
                        raise TypeError(name)
                feed[name] = value
            if len(inputs) != len(feed):
                raise TypeError("inputs")
            return self._run(self._output_names, feed, None)  # type: ignore[no-any-return]
        except Exception as error:  # the runtime's exceptions share no class of their own
            raise self._fault(inputs, error) from error

    def _fault(self, inputs: Sequence[Any], error: Exception) -> PredictorFault:
        if self._session is None:
            return unloaded(self.name)
        return misfit(self._inputs, inputs) or PredictorFault(
            "predictor_failed", f"onnxruntime: {_first_line(error)}", framework=self.name, error=str(error)
        )

    def start_profile(self, folder: str) -> None:
        """A second session does the profiled calls: the runtime decides at load whether it profiles."""
        if self._session is None:
            raise unloaded(self.name)
        self.stop_profile()
        profile = Profile(folder)
        try:
            session = _open_session(*self._opening, profile=profile, saves_graph=True)
        except PredictorFault:
            # a provider that compiles its part of the graph cannot save it
            session = _open_session(*self._opening, profile=profile)
        profile.begin(session, _run_of(session))
        self._profile, self._run = profile, profile.run

    def stop_profile(self) -> List[Optional[List[Dict[str, Any]]]]:
        profile, self._profile = self._profile, None
        if profile is None:
            return []
        self._run = _run_of(self._session)
        return profile.finish(self._opening[1])

    def layer_names(self) -> List[str]:
        """The outputs of the nodes of the main graph, in the order of the file; constants are no layers."""
        if self._session is None:
            raise unloaded(self.name)
        path = self._opening[1]
        looks = describe_file(path)
        if looks != "an ONNX model":
            raise PredictorFault(
                "predictor_failed",
                f"onnxruntime can show the layers of an ONNX model only, and {path} is {looks}",
                framework=self.name,
                path=path,
            )
        made = [name for node in read_onnx_nodes(path) if node.operator != "Constant" for name in node.outputs]
        return list(dict.fromkeys(name for name in made if name))

    def reveal(self, inputs: List[Any], names: Sequence[str]) -> List[Any]:
        """A second session answers: of a copy of the model whose outputs the layers are, so that none is fused away."""
        known = self.layer_names()
        wanted = [known[i] for i in select_layers("inner", [{"layer_name": name} for name in names], known)]
        if self._revealing[0] != wanted:
            self._revealing = ((), None)
            self._revealing = (wanted, self._open_revealing(wanted))
        kept = self._run, self._output_names
        self._run, self._output_names = _run_of(self._revealing[1]), wanted
        try:
            outputs = self.predict(inputs)
        finally:
            self._run, self._output_names = kept
        for name, output in zip(wanted, outputs):
            if not hasattr(output, "dtype"):
                raise PredictorFault(
                    "predictor_failed",
                    f"onnxruntime: layer {name!r} computes no array",
                    framework=self.name,
                    layer=name,
                )
        return outputs

    def _open_revealing(self, names: Sequence[str]) -> Any:
        ort, path, threads, optimization, providers = self._opening
        there = [layer.name for layer in self._session.get_outputs()]
        with open(path, "rb") as file:
            content = onnx_with_outputs(file.read(), [name for name in names if name not in there])
        return _open_session(ort, content, threads, optimization, providers, folder=os.path.dirname(path) or ".")

    def unload(self) -> None:
        self.stop_profile()
        self._session = self._run = None
        self._revealing = ((), None)


def _run_of(session: Any) -> Any:
    return session._sess.run if hasattr(session, "_sess") else session.run  # noqa: SLF001


def _open_session(
    ort: Any,
    model: Any,
    threads: int,
    optimization: str,
    providers: List[str],
    profile: Optional[Profile] = None,
    saves_graph: bool = False,
    folder: Optional[str] = None,
) -> Any:
    """`model` is a path, or the bytes of one; then `folder` is where its external data are."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _LEVELS[optimization])
    options.log_severity_level = _LOG_ERRORS
    if profile is not None:
        profile.prepare(options, saves_graph)
    if providers != [_CPU]:
        # which provider got which node is only known when this was asked for; older versions pass over the entry
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    try:
        session = ort.InferenceSession(model, options, providers=providers)
    except Exception as error:
        if folder is not None:
            text = f"onnxruntime cannot show these layers: {_first_line(error)}"
            raise PredictorFault("predictor_failed", text, error=str(error)) from error
        raise _load_fault(model, error) from error
    lost = [name for name in providers if name not in session.get_providers()]
    if lost:
        raise PredictorFault(
            "environment_missing",
            f"onnxruntime could not start {', '.join(lost)}",
            hint="its driver or libraries are missing here; in use would be: " + ", ".join(session.get_providers()),
            expected=providers,
            got=session.get_providers(),
        )
    return session


def _load_fault(path: str, error: Exception) -> PredictorFault:
    looks = describe_file(path)
    if looks not in ("an ONNX model", "an ORT-format model"):
        return PredictorFault(
            "model_format",
            f"{path} is no ONNX model: it is {looks}",
            hint="give onnxruntime an .onnx or .ort file",
            path=path,
            expected="an ONNX model",
            got=looks,
        )
    is_unreadable = type(error).__name__ in _UNREADABLE
    return PredictorFault(
        "model_format" if is_unreadable else "predictor_failed",
        f"onnxruntime cannot load {path}: {_first_line(error)}",
        hint="the file looks like an ONNX model, but is cut short or damaged" if is_unreadable else None,
        path=path,
        error=str(error),
    )


def _checked_providers(ort: Any, asked: Any) -> List[str]:
    available = list(ort.get_available_providers())
    asked = asked.split(",") if isinstance(asked, str) else list(asked)
    absent = [name for name in asked if name not in available]
    if absent:
        raise PredictorFault(
            "environment_missing",
            f"this build of onnxruntime has no {', '.join(str(name) for name in absent)}",
            hint=f"providers here: {', '.join(available)}",
            expected=asked,
            got=available,
        )
    return [str(name) for name in asked]


def _layers(arguments: Sequence[Any]) -> List[Dict[str, Any]]:
    return [
        {"name": layer.name, "shape": _shape(layer.shape), "element_type": _element_type(layer.type)}
        for layer in arguments
    ]


def _shape(shape: Any) -> Any:
    # symbolic sizes come as names, unknown ones as None, an unknown rank as no list at all
    return None if shape is None else [size if isinstance(size, int) else None for size in shape]


def _element_type(described: str) -> str:
    inner = described[len("tensor(") : -1] if described.startswith("tensor(") else described
    return element_type(inner)


def _dtype(np: Any, name: str) -> Any:
    """The dtype to compare with, or None for types that numpy does not have or spells in several ways."""
    try:
        return None if name == "string" else np.dtype(name)
    except TypeError:
        return None


def _texts(value: Any) -> Any:
    """Bytes as the texts that they are: the runtime reads bytes of one width on to the next NUL, into their neighbours,
    and writes other objects as Python shows them (b'abc')."""
    if value.dtype.kind not in "OS":
        return value
    import numpy as np

    texts = [item.decode() if isinstance(item, bytes) else item for item in value.ravel().tolist()]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("an array of texts holds something else")
    made = np.empty(len(texts), object)
    made[:] = texts
    return made.reshape(value.shape)


def _optional(session: Any) -> List[int]:
    """The inputs that need no tensor."""
    return [index for index, layer in enumerate(session.get_inputs()) if layer.type.startswith("optional")]


def _check_tensors(outputs: Sequence[Any], picked: Sequence[str]) -> None:
    """Lists and maps, as classifiers converted from scikit-learn give unless told otherwise, are no answers here."""
    kinds = {layer.name: layer.type for layer in outputs}
    others = [name for name in picked if not kinds[name].startswith("tensor(")]
    if others:
        tensors = [name for name in kinds if kinds[name].startswith("tensor(")]
        named = f", or name other outputs: {', '.join(tensors)}" if tensors else ""
        raise PredictorFault(
            "predictor_failed",
            f"output {others[0]!r} is no tensor, but {kinds[others[0]]}",
            hint=f"export the model with tensors only (skl2onnx: options={{'zipmap': False}}){named}",
            layer=others[0],
            expected="tensor",
            got=kinds[others[0]],
            known=tensors,
        )


def _providers_in_force(session: Any) -> List[str]:
    """The providers that really hold nodes, the preferred first; as registered where the version cannot tell."""
    registered = list(session.get_providers())
    if registered == [_CPU] or not hasattr(session, "get_provider_graph_assignment_info"):
        return registered
    holders = {part.ep_name for part in session.get_provider_graph_assignment_info()}
    return [name for name in registered if name in holders] or registered


def _precision(path: str) -> str:
    if describe_file(path) != "an ONNX model":
        return "unknown"
    try:
        return onnx_precision(read_onnx(path))
    except ValueError:
        return "unknown"


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0].rpartition(" : ")[2] if text else type(error).__name__
