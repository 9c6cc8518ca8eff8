"""Turns tensors into tensors with Caffe2: a predict net (`graph_path`) and the init net that makes its weights
(`weights_path`).

Option: `shapes` states the inputs' shapes, a list for every input (null: any size), because a net does not tell them.
Inputs are the external inputs that the init net does not make; where it makes them all, as many published nets do, they
are those that the manifest names, or else the first. Operators run one after the other, whatever type the net asks for,
so that `threads` is the number that compute. The number is the process's: a call restores its own model's.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import re
from typing import Any, ClassVar, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.caffe2file import check_operators, read_net
from mlmodelscope.predictors.caffe2profile import Profile
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
    unloaded,
)
from mlmodelscope.predictors.pytorchmodel import sorted_as, stated_shapes

__all__ = ["Predictor"]

_SHAPE_OPERATORS = 1000

_ALL_FED = "list every input of the model; a weight that is missing is one that the init net does not make"


class Predictor(object):
    name: ClassVar[str] = "caffe2"
    # from 1.0 on Caffe2 is a part of PyTorch, and has its version
    packages: ClassVar[Tuple[str, ...]] = ("torch",)
    environment: ClassVar[Dict[str, str]] = {}
    formats: ClassVar[Tuple[str, ...]] = (".pb",)

    def __init__(self) -> None:
        self._workspace: Any = None
        self._profile: Optional[Profile] = None
        self._inputs: List[Dict[str, Any]] = []
        self._feeds: List[Any] = []

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        options = model.get("options") or {}
        check_options(self.name, options, {"shapes": None})
        threads = check_threads(self.name, model.get("threads", 1))
        framework = import_framework(self.name, ["caffe2.python.workspace"])
        torch = import_framework(self.name, ["torch"])
        torch.set_num_threads(threads)
        net, workspace = _open(framework, model["graph_path"], model.get("weights_path"))
        made = list(workspace.blobs)
        asked = model.get("inputs") or []
        names = _input_names(net, made, asked)
        chosen = select_layers("input", asked, names)
        check_all_fed(names, chosen, _ALL_FED)
        shapes = stated_shapes(self.name, options, names)
        facts = [
            {"name": name, "shape": shape, "element_type": element_type(fact.get("element_type") or "float32")}
            for name, shape, fact in zip(names, shapes, sorted_as(names, asked))
        ]
        weights = _types_of(workspace, made)
        _check_announced(facts)
        self._inputs = [facts[index] for index in chosen]
        outputs = _described_outputs(framework, net, facts, workspace, made)
        picked = [outputs[i] for i in select_layers("output", model.get("outputs") or [], [o["name"] for o in outputs])]
        self._bind(torch, net, workspace, picked, threads)
        return {
            "framework": self.name,
            "version": str(torch.__version__).partition("+")[0],
            "threads": torch.get_num_threads(),
            "provider": "CPU operators",
            "device": "cpu",
            "library": _library(torch),
            "optimization": "none",
            "precision": _precision(weights),
            "inputs": self._inputs,
            "outputs": picked,
        }

    def _bind(self, torch: Any, net: Any, workspace: Any, outputs: List[Dict[str, Any]], threads: int) -> None:
        import numpy as np

        blobs = {fact["name"]: workspace.create_blob(fact["name"]) for fact in self._inputs}
        try:
            opened = workspace.create_net(net.SerializeToString(), True)
        except RuntimeError as error:
            raise PredictorFault(
                "model_format", f"caffe2 cannot make the net: {_first_line(error)}", error=str(error)
            ) from error
        held = workspace.blobs
        self._torch, self._contiguous = torch, np.ascontiguousarray
        self._net, self._run = net, opened.run
        # the blobs' own calls: FeedBlob and FetchBlob of the module look the name and the device up every time, and
        # take 17 and 2 us where these take 1.5 and 0.8
        self._feeds = [blobs[fact["name"]].feed for fact in self._inputs]
        self._fetches = [held[fact["name"]].fetch for fact in outputs]
        self._dtypes = [np.dtype(fact["element_type"]) for fact in self._inputs]
        self._threads, self._get_threads = threads, torch.get_num_threads
        self._fitting: Any = None
        self._opened = opened
        self._workspace = workspace

    def predict(self, inputs: List[Any]) -> List[Any]:
        try:
            self._feed(inputs)
            self._run()
            return [fetch() for fetch in self._fetches]
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            raise self._fault(inputs, error) from error

    def _feed(self, inputs: List[Any]) -> None:
        if len(inputs) != len(self._feeds) or self._workspace is None:
            raise TypeError("inputs")
        if self._get_threads() != self._threads:
            self._torch.set_num_threads(self._threads)
        shapes = []
        for dtype, value in zip(self._dtypes, inputs):
            if value.dtype is not dtype and value.dtype != dtype:
                raise TypeError("element type")
            shapes.append(value.shape)
        if shapes != self._fitting:
            fault = misfit(self._inputs, inputs)
            if fault is not None:
                raise fault
        for feed, value in zip(self._feeds, inputs):
            feed(value if value.flags.c_contiguous else self._contiguous(value))
        self._fitting = shapes

    def _fault(self, inputs: Sequence[Any], error: Exception) -> PredictorFault:
        if self._workspace is None:
            return unloaded(self.name)
        return misfit(self._inputs, inputs) or PredictorFault(
            "predictor_failed", f"caffe2: {_first_line(error)}", framework=self.name, error=str(error)
        )

    def layer_names(self) -> List[str]:
        """Every blob that an operator writes; one that is written twice holds what the last operator wrote."""
        if self._workspace is None:
            raise unloaded(self.name)
        names = [name for operator in self._net.op for name in operator.output]
        return sorted(set(names), key=names.index)

    def reveal(self, inputs: List[Any], names: Sequence[str]) -> List[Any]:
        known = self.layer_names()
        select_layers("inner", [{"layer_name": name} for name in names], known)
        self.predict(inputs)
        held = self._workspace.blobs
        return [held[name].fetch() for name in names]

    def start_profile(self, folder: str) -> None:
        """Calls run operator by operator meanwhile; nothing is written to `folder`."""
        if self._workspace is None:
            raise unloaded(self.name)
        self.stop_profile()
        self._profile = Profile(self._workspace, self._net, [fact["name"] for fact in self._inputs])
        self._run = self._profile.run

    def stop_profile(self) -> List[Optional[List[Dict[str, Any]]]]:
        profile, self._profile = self._profile, None
        if profile is None:
            return []
        self._run = self._opened.run
        return profile.finish()

    def unload(self) -> None:
        self.stop_profile()
        # the workspace is this predictor's alone: with the last of its blobs and nets it is gone
        self._workspace = self._opened = self._run = None
        self._feeds, self._fetches = [], []


def _open(framework: Any, path: str, weights_path: Optional[str]) -> Tuple[Any, Any]:
    """The predict net and a workspace in which the init net has run."""
    net = read_net(path)
    net.type, net.num_workers = "simple", 1
    check_operators(framework, net, path)
    workspace = framework.C.Workspace()
    if weights_path is None:
        return net, workspace
    init = read_net(weights_path)
    check_operators(framework, init, weights_path)
    try:
        workspace._run_net(init.SerializeToString())  # noqa: SLF001 - run() of the module uses the one global workspace
    except RuntimeError as error:
        raise PredictorFault(
            "model_format",
            f"{weights_path} does not run as an init net: {_first_line(error)}",
            hint="weights_path is the init net, graph_path the predict net",
            path=weights_path,
            error=str(error),
        ) from error
    return net, workspace


def _input_names(net: Any, made: Sequence[str], asked: Sequence[Dict[str, Any]]) -> List[str]:
    written = {name for operator in net.op for name in operator.output}
    read = [name for operator in net.op for name in operator.input if name not in written]
    external = list(net.external_input) + sorted(set(read) - set(net.external_input), key=read.index)
    names = [name for name in external if name not in made]
    if names:
        return names
    named = [layer["layer_name"] for layer in asked if layer.get("layer_name") in external]
    return named or external[:1]


def _types_of(workspace: Any, names: Sequence[str]) -> Dict[str, int]:
    """Elements per type of the blobs that the init net made."""
    counts: Dict[str, int] = {}
    for name in names:
        value = workspace.blobs[name].fetch()
        kind = str(value.dtype) if hasattr(value, "dtype") else type(value).__name__
        counts[kind] = counts.get(kind, 0) + (value.size if hasattr(value, "size") else 0)
    return counts


def _check_announced(facts: Sequence[Dict[str, Any]]) -> None:
    """A net does not tell the types of its inputs; but its operators know no others than these."""
    for fact in facts:
        if fact["element_type"] not in ("float32", "float64", "int32", "int64", "uint8", "int8", "bool", "float16"):
            announced, fact["element_type"] = fact["element_type"], "float32"
            check_element_types([{"element_type": announced}], [fact])


def _described_outputs(
    framework: Any, net: Any, inputs: Sequence[Dict[str, Any]], workspace: Any, made: Sequence[str]
) -> List[Dict[str, Any]]:
    read = {name for operator in net.op for name in operator.input}
    written = [name for operator in net.op for name in operator.output]
    names = [name for name in net.external_output if name in written]
    names = names or [name for name in sorted(set(written), key=written.index) if name not in read]
    shapes = _inferred(framework, net, inputs, workspace, made)
    return [{"name": name, "shape": shapes.get(name), "element_type": "float32"} for name in names]


def _inferred(
    framework: Any, net: Any, inputs: Sequence[Dict[str, Any]], workspace: Any, made: Sequence[str]
) -> Dict[str, Any]:
    """Shapes of the blobs, as far as the operators can tell: what differs between two batch sizes is open."""
    if len(net.op) > _SHAPE_OPERATORS or any(fact["shape"] is None or None in fact["shape"][1:] for fact in inputs):
        return {}
    weights = {name: list(workspace.blobs[name].fetch().shape) for name in made}
    found = []
    for batch in (1, 2):
        given = {fact["name"]: [size or batch for size in fact["shape"]] for fact in inputs}
        message = import_framework("caffe2", ["caffe2.proto.caffe2_pb2"]).TensorShapes()
        try:
            message.ParseFromString(
                framework.C.infer_shapes_and_types_from_map([net.SerializeToString()], dict(weights, **given))
            )
        except RuntimeError:  # an operator without a rule
            return {}
        found.append({shape.name: list(shape.dims) for shape in message.shapes if not shape.unknown_shape})
    return {
        name: [size if size == other else None for size, other in zip(shape, found[1].get(name, []))]
        for name, shape in found[0].items()
    }


def _library(torch: Any) -> str:
    mkl = re.search(r"Math Kernel Library Version ([\d.]+)", torch.__config__.show())
    return f"MKL {mkl.group(1)}, Eigen" if mkl else "Eigen"


def _precision(weights: Dict[str, int]) -> str:
    if not weights:
        return "float32"
    commonest = max(sorted(weights), key=lambda name: weights[name])
    return commonest if commonest.startswith("float") else f"{commonest} quantised"


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0].rpartition("] ")[2] or text[0] if text else type(error).__name__
