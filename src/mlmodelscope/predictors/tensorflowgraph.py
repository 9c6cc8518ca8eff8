"""Turns a frozen graph, or a SavedModel or Keras file under TensorFlow 1, into calls of a session."""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import importlib
import os
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from mlmodelscope.predictors.modelfile import describe_file
from mlmodelscope.predictors.port import PredictorFault, element_type, plain_type
from mlmodelscope.predictors.tensorflowfile import GRAPH, SAVED_MODEL, Place, check_keras_config, format_fault
from mlmodelscope.predictors.tensorflowprofile import SessionProfile

__all__ = ["OWN_POOLS", "SessionModel", "Settings", "choose_signature", "first_line", "layer_fact"]

# with this variable every session has a pool of its own; without it the first one's serves the whole process
OWN_POOLS = "TF_OVERRIDE_GLOBAL_THREADPOOL"

_VARIABLES = frozenset(("Variable", "VariableV2", "VarHandleOp", "TemporaryVariable"))
# what hands on the memory of its input, and what hands out memory that is not made anew in every call
_PASSING = frozenset(
    (
        "ExpandDims",
        "Identity",
        "PlaceholderWithDefault",
        "PreventGradient",
        "Reshape",
        "Snapshot",
        "Squeeze",
        "StopGradient",
    )
)
_KEEPING = frozenset(("Const", "Placeholder", "ReadVariableOp")) | _VARIABLES
# nodes that only mark where a function was before it was put in line
_INLINED = "Func/"
_NO_RESULTS = frozenset(("Assert", "Const", "NoOp", "Placeholder", "PlaceholderWithDefault"))


class Settings(NamedTuple):
    threads: int
    device: str
    optimization: str
    signature: Optional[str]


class SessionModel(object):
    """One graph in one session. `inputs` and `outputs` are facts in the model's own order."""

    provider = "session"
    _pool_threads: Optional[int] = None  # of the pool that all sessions share

    def __init__(self, tf: Any, settings: Settings) -> None:
        self._tf, self._v1 = tf, tf.compat.v1
        self._settings = settings
        self._check_pool(settings.threads)
        self._graph = self._v1.Graph()
        self._session = self._v1.Session(graph=self._graph, config=self._config())
        self._feeds: List[Any] = []
        self._fetches: List[Any] = []
        self.inputs: List[Dict[str, Any]] = []
        self.outputs: List[Dict[str, Any]] = []

    @classmethod
    def _check_pool(cls, threads: int) -> None:
        if os.environ.get(OWN_POOLS, "").lower() in ("1", "true"):
            return
        if cls._pool_threads not in (None, threads):
            raise PredictorFault(
                "predictor_failed",
                f"tensorflow computes with {cls._pool_threads} threads in this process, and cannot change to {threads}",
                hint=f"load in a fresh process, or set {OWN_POOLS}=1 before it starts",
                expected=threads,
                got=cls._pool_threads,
            )
        cls._pool_threads = threads

    def _config(self) -> Any:
        config = self._v1.ConfigProto(
            intra_op_parallelism_threads=self._settings.threads,
            inter_op_parallelism_threads=1,
            use_per_session_threads=True,
        )
        if self._settings.device == "cpu":
            config.device_count["GPU"] = 0
        if self._settings.optimization == "none":
            config.graph_options.rewrite_options.disable_meta_optimizer = True
            config.graph_options.optimizer_options.opt_level = -1
        return config

    def open(self, place: Place, asked: str) -> None:
        if place.kind == GRAPH:
            self.open_graph(_parse_graph(self._v1, place.path), asked)
        elif place.kind == SAVED_MODEL:
            self._open_saved_model(place.path, asked)
        else:
            self._open_keras(place.path, asked)

    def open_graph(self, graph_def: Any, asked: str) -> None:
        """A frozen graph: placeholders are its inputs, results that no other node uses its outputs."""
        unfrozen = [node.name for node in graph_def.node if node.op in _VARIABLES]
        if unfrozen:
            raise PredictorFault(
                "model_format",
                f"{asked} is a graph without the values of its variables ({unfrozen[0]} ...)",
                hint="freeze the graph, or give the whole SavedModel",
                path=asked,
                variables=unfrozen[:20],
            )
        try:
            with self._graph.as_default():
                self._tf.import_graph_def(graph_def, name="")
        except Exception as error:
            raise format_fault(asked, first_line(error), error=str(error)) from error
        operations = self._graph.get_operations()
        inputs = [tensor for op in operations if op.type == "Placeholder" for tensor in op.outputs]
        outputs = [
            tensor
            for op in operations
            if op.type not in _NO_RESULTS and not any(tensor.consumers() for tensor in op.outputs)
            for tensor in op.outputs
        ]
        if not outputs:
            raise format_fault(asked, f"it holds no TensorFlow graph with results, it is {describe_file(asked)}")
        self._expose([(_label(tensor), tensor) for tensor in inputs], [(_label(tensor), tensor) for tensor in outputs])

    def open_function(self, graph_def: Any, feeds: Sequence[str]) -> None:
        """The graph of a function whose arguments are the tensors `feeds`; only `reveal` is of use then."""
        with self._graph.as_default():
            self._tf.import_graph_def(graph_def, name="")
        self._feeds = [self._graph.get_tensor_by_name(name) for name in feeds]

    def _open_saved_model(self, folder: str, asked: str) -> None:
        saved = self._v1.saved_model
        try:
            with self._graph.as_default():
                meta = saved.loader.load(self._session, [saved.tag_constants.SERVING], folder)
        except Exception as error:
            raise format_fault(asked, first_line(error), error=str(error)) from error
        name = choose_signature(self._settings.signature, sorted(meta.signature_def), asked)
        signature = meta.signature_def[name]
        find = self._graph.get_tensor_by_name
        self._expose(
            [(key, find(signature.inputs[key].name)) for key in sorted(signature.inputs)],
            [(key, find(signature.outputs[key].name)) for key in sorted(signature.outputs)],
        )

    def _open_keras(self, path: str, asked: str) -> None:
        check_keras_config(path)
        keras = self._v1.keras
        try:
            with self._graph.as_default(), self._session.as_default():
                keras.backend.set_session(self._session)
                model = keras.models.load_model(path, compile=False)
                keras.backend.set_learning_phase(0)
        except Exception as error:
            raise format_fault(asked, first_line(error), error=str(error)) from error
        self._expose(list(zip(model.input_names, model.inputs)), list(zip(model.output_names, model.outputs)))

    def _expose(self, inputs: List[Tuple[str, Any]], outputs: List[Tuple[str, Any]]) -> None:
        self._feeds, self._fetches = [tensor for _, tensor in inputs], [tensor for _, tensor in outputs]
        self.inputs = [layer_fact(name, tensor) for name, tensor in inputs]
        self.outputs = [layer_fact(name, tensor) for name, tensor in outputs]

    def add_output(self, name: str) -> bool:
        """Makes a tensor inside the graph an output too; False where there is none of this name."""
        try:
            tensor = self._graph.get_tensor_by_name(name if ":" in name else name + ":0")
        except (KeyError, ValueError):
            return False
        self._fetches.append(tensor)
        self.outputs.append(layer_fact(name, tensor))
        return True

    def nodes(self) -> List[Any]:
        graph = self._graph.as_graph_def()
        return list(graph.node) + [node for function in graph.library.function for node in function.node_def]

    def bind(self, inputs: Sequence[int], outputs: Sequence[int]) -> Callable[..., Any]:
        """A function from arrays to arrays that nobody else holds."""
        self._bound = ([self._feeds[index] for index in inputs], [self._fetches[index] for index in outputs])
        return self._callable(*self._bound)

    def element_types(self, inputs: Sequence[int], outputs: Sequence[int]) -> Tuple[List[Any], List[Any]]:
        """TensorFlow's own types of these layers."""
        return [self._feeds[index].dtype for index in inputs], [self._fetches[index].dtype for index in outputs]

    def _callable(self, feeds: Sequence[Any], fetches: Sequence[Any]) -> Callable[..., Any]:
        call: Callable[..., Any] = self._raw_callable(feeds, fetches, is_traced=False)
        return _copying(call, [place for place, tensor in enumerate(fetches) if _may_be_shared(tensor)])

    def _raw_callable(self, feeds: Sequence[Any], fetches: Sequence[Any], is_traced: bool) -> Any:
        config_pb2 = _protocol()
        options = config_pb2.CallableOptions()
        options.feed.extend(tensor.name for tensor in feeds)
        options.fetch.extend(tensor.name for tensor in fetches)
        if is_traced:
            options.run_options.trace_level = config_pb2.RunOptions.FULL_TRACE
        # session.run and make_callable check and convert once more what is checked already; medians of one call on a
        # two-node graph are in docs/guides/frameworks/tensorflow.md
        return self._session._make_callable_from_options(options)  # noqa: SLF001

    def profile(self, folder: str) -> SessionProfile:
        call = self._raw_callable(*self._bound, is_traced=True)
        copied = [place for place, tensor in enumerate(self._bound[1]) if _may_be_shared(tensor)]
        return SessionProfile(_copying(call, copied), _protocol().RunMetadata)

    def layer_names(self) -> List[str]:
        return [
            _label(tensor)
            for op in self._graph.get_operations()
            if not (op.type in _NO_RESULTS or op.type in _KEEPING or op.name.startswith(_INLINED))
            for tensor in op.outputs
        ]

    def reveal(self, feeds: Sequence[int], inputs: Sequence[Any], names: Sequence[str]) -> List[Any]:
        tensors = [self._graph.get_tensor_by_name(name if ":" in name else name + ":0") for name in names]
        call = self._callable([self._feeds[index] for index in feeds], tensors)
        return list(call(*inputs))

    def close(self) -> None:
        self._session.close()
        self._bound = ([], [])
        self._feeds = self._fetches = []


def _protocol() -> Any:
    return importlib.import_module("tensorflow.core.protobuf.config_pb2")


def _parse_graph(v1: Any, path: str) -> Any:
    graph_def = v1.GraphDef()
    try:
        with open(path, "rb") as file:
            graph_def.ParseFromString(file.read())
    except Exception as error:
        raise _graph_fault(path, error) from error
    if not graph_def.node:
        raise _graph_fault(path, None)
    return graph_def


def _graph_fault(path: str, error: Optional[Exception]) -> PredictorFault:
    looks = describe_file(path)
    reason = f"it is {looks}"
    if looks == "a TensorFlow graph (protobuf)":
        reason = "it looks like a TensorFlow graph, but is cut short or damaged"
    return format_fault(path, reason, expected="a frozen graph", got=looks, error=str(error or ""))


def choose_signature(asked: Optional[str], known: Sequence[str], path: str) -> str:
    """The signature asked for, the usual one, or the only one."""
    wanted = asked or "serving_default"
    public = [name for name in known if not name.startswith("__")]
    if wanted in public:
        return wanted
    if asked is None and len(public) == 1:
        return public[0]
    raise PredictorFault(
        "predictor_failed",
        f"{path} has no signature named {wanted!r}",
        hint=f"set the option signature to one of: {', '.join(public)}" if public else "export it with a signature",
        option="signature",
        known=public,
        got=wanted,
    )


def layer_fact(name: str, tensor: Any) -> Dict[str, Any]:
    """The fact of a layer from anything that has TensorFlow's `shape` and `dtype`."""
    sizes = (
        None if tensor.shape.rank is None else [None if size is None else int(size) for size in tensor.shape.as_list()]
    )
    return {"name": name, "shape": sizes, "element_type": plain_type(element_type(tensor.dtype.base_dtype.name))}


def first_line(error: Exception) -> str:
    text = str(getattr(error, "message", "") or error).strip().splitlines()
    return text[0] if text else type(error).__name__


def _label(tensor: Any) -> str:
    name: str = tensor.name
    return name[:-2] if name.endswith(":0") else name


def _may_be_shared(tensor: Any) -> bool:
    """Whether a fetched array may be the memory of an input or a constant, or no array but a number."""
    if not tensor.shape.rank:
        return True
    operation = tensor.op
    while operation.type in _PASSING and len(operation.inputs):
        operation = operation.inputs[0].op
    return operation.type in _KEEPING


def _copying(call: Callable[..., Any], places: Sequence[int]) -> Callable[..., Any]:
    if not places:
        return call
    import numpy as np

    def copied(*inputs: Any, **keywords: Any) -> Any:
        results = list(call(*inputs, **keywords))
        for place in places:
            results[place] = np.array(results[place])
        return results

    return copied
