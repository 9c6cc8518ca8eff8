"""Turns MXNet's symbol and parameter files into a network: its inputs, outputs and inner layers, ready to be bound."""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import ast
import json
from typing import Any, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.modelfile import describe_file
from mlmodelscope.predictors.port import PredictorFault, element_type, select_layers

__all__ = ["Network", "operator_nodes"]

_SUFFIX = "_output"


class Network(object):
    """A symbol with its parameters. `inputs` are the facts of the inputs chosen."""

    def __init__(self, mx: Any, graph_path: str, weights_path: Optional[str]) -> None:
        self._mx = mx
        self.symbol = _read_symbol(mx, graph_path)
        self.parameters = _read_parameters(mx, weights_path)
        self._internals = self.symbol.get_internals()
        arguments, auxiliary = self.symbol.list_arguments(), self.symbol.list_auxiliary_states()
        missing = [name for name in auxiliary if name not in self.parameters]
        if missing:
            raise PredictorFault(
                "model_format",
                f"the parameters of {graph_path} lack {', '.join(missing)}",
                hint="the file of parameters is another model's, or weights_path is not given",
                path=str(weights_path),
                missing=missing,
            )
        free = [name for name in arguments if name not in self.parameters]
        self._labels = [name for name in free if name.endswith("_label") and name != free[0]]
        self._free = [name for name in free if name not in self._labels] + self._labels
        self._weights_path = weights_path
        self.inputs: List[Dict[str, Any]] = []

    def choose_inputs(self, asked: Sequence[Dict[str, Any]]) -> None:
        named = [layer.get("layer_name") for layer in asked]
        shown = self._free if any(label in named for label in self._labels) else self._unlabelled()
        chosen = [shown[index] for index in select_layers("input", asked, shown)]
        left = [name for name in self._unlabelled() if name not in chosen]
        if left:
            raise PredictorFault(
                "predictor_failed",
                f"the model also needs input {', '.join(left)}",
                hint="list every input of the model, in the order in which the tensors are given"
                + ("" if self._weights_path else "; or give its parameters as weights_path"),
                expected=self._unlabelled(),
                missing=left,
            )
        types = self._argument_types()
        attributes = self.symbol.attr_dict()
        self.inputs = [
            {
                "name": name,
                "shape": _declared_shape(attributes.get(name, {}).get("__shape__")),
                "element_type": types.get(name, "float32"),
            }
            for name in chosen
        ]

    def _unlabelled(self) -> List[str]:
        return [name for name in self._free if name not in self._labels]

    def _argument_types(self) -> Dict[str, str]:
        import numpy as np

        known = {name: array.dtype for name, array in self.parameters.items()}
        arguments = self.symbol.list_arguments()
        try:
            types, _, _ = self.symbol.infer_type_partial(**{name: known[name] for name in arguments if name in known})
        except (RuntimeError, ValueError):
            return {}
        return {name: element_type(np.dtype(kind).name) for name, kind in zip(arguments, types or []) if kind}

    def choose_outputs(self, asked: Sequence[Dict[str, Any]]) -> Tuple[Any, List[Dict[str, Any]]]:
        """The symbol that computes what is asked for, and the facts of its outputs."""
        outputs = _bare_names(self.symbol.list_outputs())
        inner = {name: index for index, name in enumerate(_bare_names(self._internals.list_outputs()))}
        # an inner layer is as good as an output, but only those are listed, and counted by indices
        known = list(outputs)
        asked = [dict(layer, layer_name=_without_suffix(layer.get("layer_name"), inner)) for layer in asked]
        known += [layer["layer_name"] for layer in asked if self._is_inner(layer["layer_name"], inner, outputs)]
        bounded = [_refuse_beyond(layer, outputs) for layer in asked]
        picked = select_layers("output", bounded, known) if asked else list(range(len(outputs)))
        if picked == list(range(len(outputs))):
            symbol = self.symbol
        else:
            parts = [self.symbol[i] if i < len(outputs) else self._internals[inner[known[i]]] for i in picked]
            symbol = self._mx.sym.Group(parts)
        return symbol, self._output_facts(symbol, [known[index] for index in picked])

    def _is_inner(self, name: Any, inner: Dict[str, int], outputs: Sequence[str]) -> bool:
        return isinstance(name, str) and name in inner and name not in outputs and name in self.layer_names()

    def _output_facts(self, symbol: Any, names: Sequence[str]) -> List[Dict[str, Any]]:
        shapes = {fact["name"]: fact["shape"] for fact in self.inputs if fact["shape"] is not None}
        given = {name: tuple([size or 0 for size in shape]) for name, shape in shapes.items()}
        try:
            found = symbol.infer_shape_partial(**given)[1]
        except (RuntimeError, ValueError):
            found = None
        found = found or [()] * len(names)
        kinds = self._output_types(symbol)
        return [
            {"name": name, "shape": [size or None for size in shape] or None, "element_type": kind}
            for name, shape, kind in zip(names, found, kinds)
        ]

    def _output_types(self, symbol: Any) -> List[str]:
        import numpy as np

        known = {name: array.dtype for name, array in self.parameters.items()}
        known.update({fact["name"]: np.dtype(fact["element_type"]).type for fact in self.inputs})
        names = symbol.list_arguments()
        try:
            kinds = symbol.infer_type_partial(**{name: known[name] for name in names if name in known})[1]
        except (RuntimeError, ValueError):
            kinds = None
        kinds = kinds or [None] * len(symbol.list_outputs())
        return [element_type(np.dtype(kind).name) if kind else "float32" for kind in kinds]

    def bind(self, symbol: Any, shapes: Sequence[Tuple[int, ...]]) -> Tuple[Any, List[Any]]:
        """An executor of `symbol` for inputs of these shapes, and the arrays that take them. Parameters are shared."""
        mx = self._mx
        given = {fact["name"]: tuple(shape) for fact, shape in zip(self.inputs, shapes)}
        arguments = symbol.list_arguments()
        known = {name: array.shape for name, array in self.parameters.items() if name in arguments}
        known.update({name: shape for name, shape in given.items() if name in arguments})
        try:
            if any(0 in shape for shape in given.values()):
                raise ValueError("a dimension of size 0")
            sizes = dict(zip(arguments, symbol.infer_shape(**known)[0] or []))
            arrays = {
                fact["name"]: mx.nd.zeros(given[fact["name"]], dtype=fact["element_type"]) for fact in self.inputs
            }
            values = {
                name: self.parameters[name] if name in self.parameters else arrays.get(name) for name in arguments
            }
            filled = {name: mx.nd.zeros(sizes[name]) if value is None else value for name, value in values.items()}
            states = {name: self.parameters[name] for name in symbol.list_auxiliary_states()}
            executor = symbol.bind(mx.cpu(), filled, grad_req="null", aux_states=states)
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise self._unfit(given, error) from error
        return executor, [arrays[fact["name"]] for fact in self.inputs]

    def _unfit(self, given: Dict[str, Tuple[int, ...]], error: Exception) -> PredictorFault:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        return PredictorFault(
            "shape_mismatch",
            f"the model cannot take inputs of {given}: {reason}",
            expected=[fact["shape"] for fact in self.inputs],
            got=[list(shape) for shape in given.values()],
            error=str(error),
        )

    def layer_names(self) -> List[str]:
        """Every operator's outputs, in the order of the file."""
        variables = set(self.symbol.list_arguments()) | set(self.symbol.list_auxiliary_states())
        return [name for name in _bare_names(self._internals.list_outputs()) if name not in variables]

    def inner(self, names: Sequence[str]) -> Any:
        known = self.layer_names()
        places = {name: index for index, name in enumerate(_bare_names(self._internals.list_outputs()))}
        asked = [{"layer_name": _without_suffix(name, places)} for name in names]
        chosen = [known[index] for index in select_layers("inner", asked, known)]
        return self._mx.sym.Group([self._internals[places[name]] for name in chosen])

    def outputs_in_use(self, symbol: Any) -> List[str]:
        """The operators whose results are outputs and at the same time inputs of other operators."""
        graph = json.loads(symbol.tojson())
        used = {entry[0] for node in graph["nodes"] for entry in node["inputs"]}
        ends = sorted({head[0] for head in graph["heads"]} & used)
        return [graph["nodes"][end]["name"] for end in ends if graph["nodes"][end]["op"] != "null"]

    def operators(self, symbol: Any) -> List[str]:
        return [node["op"] for node in operator_nodes(symbol)]

    def precision(self, operators: Sequence[str]) -> str:
        """What the operators compute in: that of the parameters, unless some operators quantise or cast."""
        if any("quantize" in operator for operator in operators):
            return "int8 quantised"
        casts = {
            node.get("attrs", {}).get("dtype")
            for node in operator_nodes(self.symbol)
            if node["op"] in ("amp_cast", "amp_multicast", "Cast")
        }
        reduced = sorted(casts & {"bfloat16", "float16"})
        counts: Dict[str, int] = {}
        for array in self.parameters.values():
            kind = element_type(getattr(array.dtype, "__name__", str(array.dtype)))
            counts[kind] = counts.get(kind, 0) + array.size
        if reduced:
            return f"{reduced[0]} mixed"
        if counts:
            return max(sorted(counts), key=lambda kind: counts[kind])
        return self.inputs[0]["element_type"] if self.inputs else "unknown"


def operator_nodes(symbol: Any) -> List[Dict[str, Any]]:
    """The nodes that compute something, in the order of execution."""
    return [node for node in json.loads(symbol.tojson())["nodes"] if node["op"] != "null"]


def _read_symbol(mx: Any, path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            described = json.load(file)
        if not isinstance(described, dict) or "nodes" not in described:
            raise ValueError("it has no nodes")
        return mx.sym.load(path)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        looks = describe_file(path)
        raise PredictorFault(
            "model_format",
            f"mxnet cannot read {path}: {_reason(error)}",
            hint="give mxnet a symbol file (-symbol.json) as graph_path, and its .params as weights_path",
            path=path,
            expected="an MXNet symbol",
            got=looks,
            error=str(error),
        ) from error


def _read_parameters(mx: Any, path: Optional[str]) -> Dict[str, Any]:
    if path is None:
        return {}
    try:
        # an absent file would be reported together with a page of addresses
        with open(path, "rb"):
            pass
        loaded = mx.nd.load(path)
        if not isinstance(loaded, dict):
            raise TypeError("its arrays have no names")
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise PredictorFault(
            "model_format",
            f"mxnet cannot read the parameters in {path}: {_reason(error)}",
            hint="the file is cut short, damaged, or no file of MXNet parameters",
            path=path,
            expected="MXNet parameters",
            got=describe_file(path),
            error=str(error),
        ) from error
    return {name[4:] if name[:4] in ("arg:", "aux:") else name: array for name, array in loaded.items()}


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return str(error.strerror or error)
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def _declared_shape(text: Optional[str]) -> Optional[List[Optional[int]]]:
    """What the file says of an input's shape, with None for sizes left open; None where it says nothing."""
    try:
        shape = ast.literal_eval(text) if text else ()
    except (SyntaxError, ValueError):
        return None
    if not isinstance(shape, (list, tuple)) or not shape:
        return None
    return [int(size) if size > 0 else None for size in shape]


def _bare_names(outputs: Sequence[str]) -> List[str]:
    """Names of operators instead of their outputs, where that tells them apart."""
    bare = [name[: -len(_SUFFIX)] if name.endswith(_SUFFIX) else name for name in outputs]
    return [short if bare.count(short) == 1 else name for short, name in zip(bare, outputs)]


def _without_suffix(name: Any, known: Dict[str, int]) -> Any:
    if isinstance(name, str) and name not in known and name.endswith(_SUFFIX):
        return name[: -len(_SUFFIX)]
    return name


def _refuse_beyond(layer: Dict[str, Any], outputs: Sequence[str]) -> Dict[str, Any]:
    """Lists the outputs where an index lies beyond them."""
    if isinstance(layer["layer_name"], int):
        select_layers("output", [layer], outputs)
    return layer
