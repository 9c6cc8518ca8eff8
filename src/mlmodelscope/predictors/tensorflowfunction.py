"""Turns a SavedModel or a Keras file into calls of a function of TensorFlow 2."""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import gc
import importlib
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.predictors.tensorflowfile import SAVED_MODEL, Place, check_keras_config, format_fault
from mlmodelscope.predictors.tensorflowgraph import SessionModel, Settings, choose_signature, first_line, layer_fact
from mlmodelscope.predictors.tensorflowprofile import EagerProfile

__all__ = ["FunctionModel"]


class FunctionModel(object):
    """One concrete function. `inputs` and `outputs` are facts in the model's own order."""

    provider = "eager runtime"

    def __init__(self, tf: Any, settings: Settings) -> None:
        self._tf, self._settings = tf, settings
        _start_runtime(tf, settings)
        self._owner: Any = None
        self._function: Any = None
        self._call: Any = None
        self._is_keras = False
        self._frozen: Optional[SessionModel] = None
        self.inputs: List[Dict[str, Any]] = []
        self.outputs: List[Dict[str, Any]] = []

    def open(self, place: Place, asked: str) -> None:
        if place.kind == SAVED_MODEL:
            self._open_saved_model(place.path, asked)
        else:
            self._open_keras(place.path, asked)

    def _open_saved_model(self, folder: str, asked: str) -> None:
        try:
            self._owner = self._tf.saved_model.load(folder)
        except Exception as error:
            raise format_fault(asked, first_line(error), error=str(error)) from error
        signatures = getattr(self._owner, "signatures", {})
        name = choose_signature(self._settings.signature, sorted(signatures), asked)
        self._function = signatures[name]
        specs = self._function.structured_input_signature[1]
        # the function takes its arguments in this order, and gives results in the order of their sorted names
        names = list(getattr(self._function, "_arg_keywords", None) or sorted(specs))
        results = self._function.structured_outputs
        self.inputs = [layer_fact(name, specs[name]) for name in names]
        self.outputs = [layer_fact(name, results[name]) for name in sorted(results)]

    def _open_keras(self, path: str, asked: str) -> None:
        check_keras_config(path)
        tf, self._is_keras = self._tf, True
        try:
            model = _load_keras(tf, path)
        except Exception as error:
            raise format_fault(asked, first_line(error), error=str(error)) from error
        if not getattr(model, "inputs", None):
            raise PredictorFault(
                "model_format",
                f"{asked} is a Keras model that does not say what its inputs are",
                hint="export it as a SavedModel with a signature",
                path=asked,
            )
        names = [_input_name(tensor, place) for place, tensor in enumerate(model.inputs)]
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in model.inputs]

        def call(*tensors: Any) -> Any:
            return tf.nest.flatten(model(tf.nest.pack_sequence_as(model.input, list(tensors)), training=False))

        self._owner = model
        self._function = tf.function(call, input_signature=specs, autograph=False).get_concrete_function()
        self.inputs = [layer_fact(name, spec) for name, spec in zip(names, specs)]
        self.outputs = [layer_fact(name, fact) for name, fact in zip(model.output_names, self._function.outputs)]

    def add_output(self, name: str) -> bool:
        """A function gives its own results only; what is inside it is shown by `reveal`."""
        return False

    def nodes(self) -> List[Any]:
        graph = self._function.graph.as_graph_def()
        return list(graph.node) + [node for function in graph.library.function for node in function.node_def]

    def bind(self, inputs: Sequence[int], outputs: Sequence[int]) -> Callable[..., Any]:
        """A function from arrays to arrays that nobody else holds. Medians of one call on a two-node model, 2.21.0:
        this 81 us, the function's own call 265, `call_flat` of its inside 112 to 180."""
        import numpy as np

        execute = self._executor()
        to_tensor = self._to_tensor()
        kinds = [self._function.inputs[index].dtype.as_datatype_enum for index in inputs]
        if list(inputs) == list(range(len(inputs))):
            order: Sequence[int] = ()
        else:
            order = [list(inputs).index(place) for place in range(len(inputs))]
        copy = np.array

        def call(*arrays: Any) -> List[Any]:
            tensors = [to_tensor(array, kind) for array, kind in zip(arrays, kinds)]
            results = execute([tensors[place] for place in order] if order else tensors)
            # what the runtime shows may be the memory of a variable or of an input
            return [copy(results[place]._numpy()) for place in outputs]  # noqa: SLF001

        self._call = call
        return call

    def element_types(self, inputs: Sequence[int], outputs: Sequence[int]) -> Tuple[List[Any], List[Any]]:
        """TensorFlow's own types of these layers."""
        takes, gives = self._function.inputs, self._function.outputs
        return [takes[index].dtype for index in inputs], [gives[index].dtype for index in outputs]

    def _to_tensor(self) -> Callable[[Any, int], Any]:
        ops: Any = importlib.import_module("tensorflow.python.framework.ops")
        tensor, device = ops.EagerTensor, _context().device_name
        return lambda array, kind: tensor(array, device, kind)

    def _executor(self) -> Callable[[List[Any]], Any]:
        """The function's execution below its Python layers, which look up, check and pack what was settled at load."""
        pywrap_tfe: Any = importlib.import_module("tensorflow.python.pywrap_tfe")
        running = _context()
        inner = self._function._inference_function  # noqa: SLF001
        name = inner.name.decode() if isinstance(inner.name, bytes) else inner.name
        captured, count = list(self._function.captured_inputs), len(self._function.outputs)
        options = running.function_call_options
        attributes = ("executor_type", "", "config_proto", self._function_config(options.config_proto_serialized))
        run, handle, device = pywrap_tfe.TFE_Py_Execute, running._handle, running.device_name  # noqa: SLF001
        return lambda tensors: run(handle, device, name, tensors + captured, attributes, count)

    def _function_config(self, serialized: bytes) -> bytes:
        if self._settings.optimization != "none":
            return serialized
        config = self._tf.compat.v1.ConfigProto.FromString(serialized)
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = -1
        changed: bytes = config.SerializeToString()
        return changed

    def profile(self, folder: str) -> EagerProfile:
        try:
            return EagerProfile(self._tf.profiler.experimental, self._call, folder)
        except self._tf.errors.OpError as error:
            raise PredictorFault(
                "predictor_failed", f"tensorflow cannot profile: {first_line(error)}", error=str(error)
            ) from error

    def layer_names(self) -> List[str]:
        return self._inlined().layer_names()

    def reveal(self, feeds: Sequence[int], inputs: Sequence[Any], names: Sequence[str]) -> List[Any]:
        return self._inlined().reveal(feeds, inputs, names)

    def _inlined(self) -> SessionModel:
        """The function as one flat graph, its variables constants: what is inside a function cannot be fetched."""
        if self._frozen is None:
            convert_to_constants: Any = importlib.import_module("tensorflow.python.framework.convert_to_constants")
            frozen = convert_to_constants.convert_variables_to_constants_v2(self._function)
            model = SessionModel(self._tf, self._settings)
            model.open_function(frozen.graph.as_graph_def(), [tensor.name for tensor in frozen.inputs])
            self._frozen = model
        return self._frozen

    def close(self) -> None:
        if self._frozen is not None:
            self._frozen.close()
        self._owner = self._function = self._frozen = self._call = None
        if self._is_keras:
            self._tf.keras.backend.clear_session()
        # functions and their graphs refer to each other in circles
        gc.collect()


def _context() -> Any:
    return importlib.import_module("tensorflow.python.eager.context").context()


def _start_runtime(tf: Any, settings: Settings) -> None:
    """Threads and devices can be set only until the runtime starts, which the first operation makes it do."""
    threading = tf.config.threading
    try:
        threading.set_intra_op_parallelism_threads(settings.threads)
        threading.set_inter_op_parallelism_threads(1)
        if settings.device == "cpu":
            tf.config.set_visible_devices([], "GPU")
    except RuntimeError as error:
        in_force = threading.get_intra_op_parallelism_threads()
        raise PredictorFault(
            "predictor_failed",
            f"tensorflow has started in this process with {in_force} threads, and cannot change to {settings.threads}",
            hint="load in a fresh process",
            expected=settings.threads,
            got=in_force,
            error=str(error),
        ) from error


def _load_keras(tf: Any, path: str) -> Any:
    try:
        return tf.keras.models.load_model(path, compile=False, safe_mode=True)
    except TypeError as error:
        if "safe_mode" not in str(error):
            raise
        # before 2.13 there is no such argument; the configuration was checked for code already
        return tf.keras.models.load_model(path, compile=False)


def _input_name(tensor: Any, place: int) -> str:
    return str(getattr(tensor, "name", None) or f"input_{place}").partition(":")[0]
