"""Turns a file of PyTorch's (TorchScript, torch.export, or a state dict for a module factory) into something to call.

Each kind answers the same questions: what goes in, what comes out under which names, how it is called, and how its
layers can be watched. No code is read from a file: pickles only with `weights_only`, programs once they were looked
through (`pytorcharchive.py`).
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import logging
import warnings
import zipfile
from typing import Any, Callable, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.modelfile import describe_file
from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.predictors.pytorcharchive import check_archive
from mlmodelscope.predictors.pytorchfactory import MadeModel
from mlmodelscope.predictors.pytorchmodel import (
    TRIAL_BATCHES,
    Fact,
    Model,
    Output,
    common_shape,
    fitting_types,
    follow,
    numpy_type,
    sorted_as,
    stated_shapes,
)

__all__ = ["open_model"]


def open_model(
    torch: Any, paths: Tuple[str, Optional[str]], asked: Sequence[Fact], options: Fact, device: Any
) -> Model:
    graph, weights = paths
    if options.get("factory") is not None:
        return MadeModel(torch, weights or graph, asked, options, device)
    stray = sorted(key for key in ("arguments", "keywords") if key in options)
    if stray:
        raise PredictorFault(
            "predictor_failed", f"pytorch: option {stray[0]} goes with the option factory", option=stray[0]
        )
    kind = _kind(graph)
    if kind == "TorchScript":
        return _Script(torch, graph, asked, options, device)
    if kind == "torch.export":
        return _Exported(torch, graph, options, device)
    raise PredictorFault(
        "model_format",
        f"{graph} is no TorchScript or torch.export file: it is {kind}",
        hint='give a .pt or .pt2 file, or, for a state dict, the option factory: "package.module:callable"',
        path=graph,
        expected="a TorchScript or torch.export file",
        got=kind,
    )


def _unreadable(path: str, error: Exception, hint: Optional[str] = None) -> PredictorFault:
    lines = str(error).strip().splitlines()
    return PredictorFault(
        "model_format",
        f"pytorch cannot read {path}: {lines[0] if lines else type(error).__name__}",
        hint=hint or "the file is cut short, damaged, or of a newer version of PyTorch",
        path=path,
        error=str(error),
    )


def _kind(path: str) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return describe_file(path)
    if any(name.endswith("/constants.pkl") for name in names):
        return "TorchScript"
    if any(name.endswith(("/archive_format", "serialized_exported_program.json")) for name in names):
        return "torch.export"
    return describe_file(path)


class _Script(Model):
    """TorchScript tells the names of its inputs, but neither shapes nor element types."""

    provider = "TorchScript"
    optimization = "graph executor"

    def __init__(self, torch: Any, path: str, asked: Sequence[Fact], options: Fact, device: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                module = torch.jit.load(path, map_location=device)
            except (RuntimeError, ValueError, OSError) as error:
                raise _unreadable(path, error) from error
        module.eval()
        Model.__init__(self, torch, module)
        self.call = module.forward
        # what is asked of a graph lives no longer than the graph
        self._graph = module.inlined_graph
        arguments = [argument for argument in module.forward.schema.arguments[1:] if not argument.has_default_value()]
        for argument in arguments:
            if str(argument.type) != "Tensor":
                raise PredictorFault(
                    "predictor_failed",
                    f"the model's input {argument.name!r} is no tensor, but {argument.type}",
                    hint="wrap the model in one that takes tensors",
                    layer=argument.name,
                )
        names = [argument.name for argument in arguments]
        types, self.dtypes = fitting_types(torch, module, sorted_as(names, asked), len(names))
        self.inputs = [
            {"name": argument.name, "shape": shape, "element_type": name}
            for argument, shape, name in zip(arguments, stated_shapes("pytorch", options, names), types)
        ]
        self.outputs = self._read_outputs()
        if names and "shapes" in options:
            self.outputs = self._try(device)
        self.is_written_to = _is_written_to(self._graph)

    def _read_outputs(self) -> List[Output]:
        """From the type that is returned, and, as types do not hold keys, from the node that makes the value."""
        value = next(iter(self._graph.outputs()))
        kind, node = value.type().kind(), value.node()
        if kind == "TensorType":
            return [("output_0", None, None, ())]
        if kind == "TupleType" and all(part.kind() == "TensorType" for part in value.type().elements()):
            names = _field_names(str(self._graph), len(value.type().elements()))
            return [(name, None, None, (place,)) for place, name in enumerate(names)]
        if node.kind() == "prim::DictConstruct":
            keys = [part.node().s("value") for part in list(node.inputs())[::2] if part.node().hasAttribute("value")]
            if keys and 2 * len(keys) == len(list(node.inputs())):
                return [(key, None, None, (key,)) for key in keys]
        if node.kind() == "prim::ListConstruct" and str(value.type()) == "List[Tensor]":
            return [(f"output_{place}", None, None, (place,)) for place, _ in enumerate(node.inputs())]
        raise PredictorFault(
            "predictor_failed",
            f"what the model returns cannot be told apart: {value.type()}",
            hint="return a tensor, a tuple of tensors, or a dictionary with fixed keys",
            got=str(value.type()),
        )

    def _try(self, device: Any) -> List[Output]:
        """The outputs with their shapes and types, as zeros tell them; as they were where zeros are refused."""
        native = self.torch._C  # noqa: SLF001 - graphs have no public interface
        # a function of its own: the executor of the model itself settles on what it sees first
        function = native._create_function_from_graph("tried", self._graph.copy())  # noqa: SLF001
        found = []
        try:
            with self.torch.inference_mode():
                first, second = [function(self.module, *self.zeros(batch, device)) for batch in TRIAL_BATCHES]
            for name, _, _, keys in self.outputs:
                one, other = follow(first, keys), follow(second, keys)
                found.append((name, common_shape(one, other), numpy_type(one.dtype), keys))
        except Exception:  # a model may bear other sizes than those tried
            return self.outputs
        return found

    def held(self) -> List[Any]:
        constants = self._graph.findAllNodes("prim::Constant")
        inside = [node.t("value") for node in constants if node.hasAttribute("value") and node.kindOf("value") == "t"]
        return Model.held(self) + inside

    def is_quantised(self) -> bool:
        return "quantized::" in str(self._graph)

    def _layers(self, graph: Any) -> List[Any]:
        return [
            value
            for node in graph.nodes()
            if not node.kind().startswith("prim::")
            for value in node.outputs()
            if value.type().kind() == "TensorType"
        ]

    def layer_names(self) -> List[str]:
        return [value.debugName() for value in self._layers(self._graph)]

    def operators(self) -> List[Tuple[str, str]]:
        return [(value.debugName(), value.node().kind()) for value in self._layers(self._graph)]

    def reveal(self, tensors: Sequence[Any], names: Sequence[str]) -> List[Any]:
        """A copy of the graph that returns the named values runs instead."""
        native = self.torch._C  # noqa: SLF001 - graphs have no public interface
        graph = self._graph.copy()
        # a copy numbers its nameless values anew, but keeps their order
        values = dict(zip(self.layer_names(), self._layers(graph)))
        graph.eraseOutput(0)
        node = graph.create("prim::TupleConstruct", [values[name] for name in names], 1)
        graph.appendNode(node)
        node.output().setType(native.TupleType([native.TensorType.get()] * len(names)))
        graph.registerOutput(node.output())
        function = native._create_function_from_graph("revealed", graph)  # noqa: SLF001
        return list(function(self.module, *tensors))


def _is_written_to(graph: Any) -> Optional[bool]:
    """Whether any operator of the graph may write into an input, in whatever branch; None where nobody can tell."""
    try:
        known = graph.alias_db()
        return any(known.has_writers(value) for value in list(graph.inputs())[1:])
    except (AttributeError, RuntimeError):
        return None


def _field_names(graph: str, count: int) -> List[str]:
    """The fields of a named tuple, which only the printed graph tells, or output_0 and so on."""
    line = next((line for line in reversed(graph.splitlines()) if "prim::TupleConstruct" in line), "")
    inside = line.partition("NamedTuple(")[2].partition(") =")[0]
    names = [field.partition(" : ")[0].strip() for field in inside.split(", ")] if inside else []
    return names if len(names) == count else [f"output_{place}" for place in range(count)]


class _Exported(Model):
    """A torch.export program tells everything: names, shapes with their open dimensions, element types."""

    provider = "torch.export"

    def __init__(self, torch: Any, path: str, options: Fact, device: Any) -> None:
        if "shapes" in options:
            raise PredictorFault("predictor_failed", "pytorch: a torch.export file has its own shapes", option="shapes")
        program = _read_program(torch, path)
        if device.type != "cpu":
            program = torch.export.passes.move_to_device_pass(program, device)
        signature = program.graph_signature
        tensors = {node.name: node.meta.get("val") for node in program.graph.nodes}
        names = list(signature.user_inputs)
        _check_inputs(torch, names, tensors, program.call_spec.in_spec)
        try:
            fast = program.module(check_guards=False)
        except TypeError:  # older versions have no choice
            fast = program.module()
        Model.__init__(self, torch, fast)
        guarded = program.module()
        self.inputs = [_described(name, tensors[name]) for name in names]
        self.dtypes = [tensors[name].dtype for name in names]
        keywords = list(_children(program.call_spec.in_spec)[1].context or [])
        self.call = _with_keywords(fast.forward, len(names) - len(keywords), keywords)
        self.guarded = _with_keywords(guarded, len(names) - len(keywords), keywords)
        paths = _leaves(program.call_spec.out_spec)
        values = [tensors.get(name) for name in signature.user_outputs]
        self.outputs = []
        for (name, keys), value in zip(paths, values):
            if isinstance(value, torch.Tensor):
                fact = _described(name, value)
                self.outputs.append((name, fact["shape"], fact["element_type"], keys))

    def is_quantised(self) -> bool:
        return any("quantized" in str(node.target) for node in self.module.graph.nodes)

    def layer_names(self) -> List[str]:
        return [
            node.name
            for node in self.module.graph.nodes
            if node.op == "call_function" and isinstance(node.meta.get("val"), self.torch.Tensor)
        ]

    def reveal(self, tensors: Sequence[Any], names: Sequence[str]) -> List[Any]:
        found: Fact = {}

        class Revealing(self.torch.fx.Interpreter):  # type: ignore[misc, name-defined]
            def run_node(self, node: Any) -> Any:
                value = super().run_node(node)
                if node.name in names:
                    found[node.name] = value
                return value

        # the interpreter takes what the graph's own function takes: keywords come last, by position
        Revealing(self.module).run(*tensors)
        return [found[name] for name in names]

    def watched(self, mark: Callable[[str], Any]) -> Tuple[Callable[..., Any], Callable[[], None]]:
        class Marking(self.torch.fx.Interpreter):  # type: ignore[misc, name-defined]
            def run_node(self, node: Any) -> Any:
                if node.op != "call_function":
                    return super().run_node(node)
                with mark(node.name):
                    return super().run_node(node)

        return Marking(self.module).run, lambda: None


def _check_inputs(torch: Any, names: Sequence[str], tensors: Fact, spec: Any) -> None:
    flat = all(child.is_leaf() for part in _children(spec) for child in _children(part))
    if not flat or not all(isinstance(tensors.get(name), torch.Tensor) for name in names):
        raise PredictorFault(
            "predictor_failed",
            "the model takes other things than tensors",
            hint="wrap the model in one that takes tensors, and export that",
            known=list(names),
        )


def _with_keywords(call: Callable[..., Any], positional: int, keywords: Sequence[str]) -> Callable[..., Any]:
    if not keywords:
        return call
    return lambda *tensors: call(*tensors[:positional], **dict(zip(keywords, tensors[positional:])))


def _read_program(torch: Any, path: str) -> Any:
    """The program, once it is certain that nothing in the file runs code of its own."""
    try:
        check_archive(torch, path)
        logger = logging.getLogger("torch.export")
        was_disabled, logger.disabled = logger.disabled, True
        try:
            return torch.export.load(path)
        finally:
            logger.disabled = was_disabled
    except PredictorFault:
        raise
    except Exception as error:  # a damaged file may fail anywhere in the deserialisation
        raise _unreadable(path, error) from error


def _described(name: str, tensor: Any) -> Fact:
    shape = [size if isinstance(size, int) else None for size in tensor.shape]
    return {"name": name, "shape": shape, "element_type": numpy_type(tensor.dtype)}


def _children(spec: Any) -> List[Any]:
    """The parts of a tree, which older versions keep in an attribute."""
    return list(spec.children() if hasattr(spec, "children") else spec.children_specs)


def _leaves(spec: Any, words: Tuple[str, ...] = (), keys: Tuple[Any, ...] = ()) -> List[Tuple[str, Tuple[Any, ...]]]:
    """Name and keys of every leaf of a tree: dictionary keys and field names, or output_0 and so on."""
    children = _children(spec)
    if not children:
        return [(".".join(words) or "output_0", keys)]
    if issubclass(spec.type, dict):
        steps = list(spec.context)
        labels = [str(step) for step in steps]
    else:
        steps = list(range(len(children)))
        labels = list(getattr(spec.context, "_fields", ())) or [f"output_{step}" for step in steps]
    found = []
    for label, step, child in zip(labels, steps, children):
        found += _leaves(child, words + (label,), keys + (step,))
    return found
