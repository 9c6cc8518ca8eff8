"""Keras' description of a model, functional or sequential, nested or not, to a graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlmodelscope.core.errors import ConvertError
from mlmodelscope.provision.convert.graph import GraphBuilder, GraphOutput, Shape
from mlmodelscope.provision.convert.tfjs_to_onnx.layer import Layer, Value, WeightStore
from mlmodelscope.provision.convert.tfjs_to_onnx.layers import LAYERS, MERGES

__all__ = ["build_model"]

_FUNCTIONAL = ("Functional", "Model")
_MODELS = (*_FUNCTIONAL, "Sequential")
# Arguments of a call that change nothing at inference.
_IDLE_ARGUMENTS = frozenset(("mask", "training"))


@dataclass(frozen=True, slots=True)
class _Reference:
    """A tensor that the `call`-th use of a layer made; only a nested model has outputs beyond 0."""

    layer: str
    call: int
    output: int


@dataclass(frozen=True, slots=True)
class _Call:
    layer: str
    call: int
    inputs: tuple[_Reference, ...]


class _Builder:
    def __init__(self, graph: GraphBuilder, weights: WeightStore) -> None:
        self._graph, self._weights = graph, weights

    def model(self, model: Any, inputs: Sequence[Value] | None) -> list[tuple[str, Value]]:
        """The model's outputs with the names of their layers; without `inputs`, the graph gets the model's own."""
        kind, config = _described(model)
        if kind == "Sequential":
            return [self._sequential(config, inputs)]
        if kind in _FUNCTIONAL and isinstance(config, dict):
            return self._functional(config, inputs)
        raise ConvertError(f"{kind} is no kind of Keras model that can be converted", kind=kind)

    def _sequential(self, config: Any, inputs: Sequence[Value] | None) -> tuple[str, Value]:
        layers = _layers(config)
        name = _name_of(layers[0])
        if inputs is None:
            input_name = name if layers[0]["class_name"] == "InputLayer" else f"{name}_input"
            shape = _first_shape(layers[0]) or _shape(name, _settings(config).get("build_input_shape"))
            values = [self._input(input_name, shape)]
        else:
            values = list(inputs)
        for layer in layers:
            name = _name_of(layer)
            if layer["class_name"] != "InputLayer":
                values = self._use(layer, name, values)
        return name, values[0]

    def _functional(self, config: Mapping[str, Any], inputs: Sequence[Value] | None) -> list[tuple[str, Value]]:
        layers = {_name_of(layer): layer for layer in _layers(config)}
        starts = [reference.layer for reference in _references(config.get("input_layers"))]
        if inputs is None:
            inputs = [self._input(name, _first_shape(layers.get(name)) or _shape(name, None)) for name in starts]
        if len(inputs) != len(starts):
            raise ConvertError(f"a nested model takes {len(starts)} inputs, not {len(inputs)}")
        made = {(name, 0): [value] for name, value in zip(starts, inputs, strict=True)}
        calls = [call for name, layer in layers.items() if name not in starts for call in _calls(name, layer)]
        for call in _in_order(calls, set(made)):
            values = [_pick(made, reference) for reference in call.inputs]
            made[call.layer, call.call] = self._use(layers[call.layer], call.layer, values)
        ends = _references(config.get("output_layers"))
        return [(reference.layer, _pick(made, reference)) for reference in ends]

    def _use(self, description: Any, name: str, inputs: Sequence[Value]) -> list[Value]:
        kind, config = _described(description)
        if kind in _MODELS:
            return [value for _, value in self.model(description, inputs)]
        emit = LAYERS.get(kind)
        if emit is None:
            raise ConvertError(
                f"layer {name!r} is of the kind {kind}, which cannot be converted",
                hint=f"supported: {', '.join(LAYERS)}",
                layer=name,
                kind=kind,
            )
        layer = Layer(kind, name, _settings(config), self._graph, self._weights)
        if kind not in MERGES and len(inputs) != 1:
            raise layer.error(f"takes one input, not {len(inputs)}")
        return [emit(layer, inputs)]

    def _input(self, name: str, shape: Shape) -> Value:
        return Value(self._graph.add_input(name, shape), shape)

    def output(self, name: str, value: Value, taken: set[str]) -> GraphOutput:
        unique, count = name, 1
        while unique in taken:
            unique, count = f"{name}_{count}", count + 1
        taken.add(unique)
        plain = Layer("output", name, {}, self._graph, self._weights).plain(value)
        return GraphOutput(plain.tensor, unique, plain.shape)


def build_model(model: Mapping[str, Any], graph: GraphBuilder, weights: WeightStore) -> list[GraphOutput]:
    """Adds the model to the graph. Inputs and outputs have Keras' names and layout; the batch is free."""
    builder = _Builder(graph, weights)
    taken: set[str] = set()
    return [builder.output(name, value, taken) for name, value in builder.model(model, None)]


def _described(item: Any) -> tuple[str, Any]:
    if not isinstance(item, dict) or not isinstance(item.get("class_name"), str):
        raise ConvertError("the model holds a layer without class_name")
    return item["class_name"], item.get("config")


def _settings(config: Any) -> Mapping[str, Any]:
    return config if isinstance(config, dict) else {}


def _layers(config: Any) -> list[Any]:
    layers = config if isinstance(config, list) else _settings(config).get("layers")
    if not isinstance(layers, list) or not layers:
        raise ConvertError("the model has no layers")
    names = [_name_of(layer) for layer in layers]
    if len(set(names)) != len(names):
        raise ConvertError("two layers of the model have the same name")
    return layers


def _name_of(layer: Any) -> str:
    kind, config = _described(layer)
    name = layer.get("name") or _settings(config).get("name")
    if not isinstance(name, str):
        raise ConvertError(f"a layer of the kind {kind} has no name", kind=kind)
    return name


def _first_shape(layer: Any) -> Shape | None:
    """The input shape that a layer, or the first layer of a nested model, declares."""
    kind, config = _described(layer)
    settings = _settings(config)
    if kind in _MODELS:
        return _first_shape(_layers(config)[0])
    if settings.get("dtype") not in (None, "float32") and kind == "InputLayer":
        raise ConvertError(f"input {_name_of(layer)!r} is of the type {settings['dtype']!r}, expected float32")
    declared = settings.get("batch_input_shape", settings.get("batch_shape"))
    return None if declared is None else _shape(_name_of(layer), declared)


def _shape(name: str, declared: Any) -> Shape:
    if not isinstance(declared, list) or len(declared) < 2:
        raise ConvertError(f"the model does not say the shape of its input {name!r}", layer=name)
    if not all(size is None or (type(size) is int and size > 0) for size in declared):
        raise ConvertError(f"input {name!r} has the impossible shape {declared}", layer=name)
    return (None, *declared[1:])


def _reference(item: Any) -> _Reference | None:
    if isinstance(item, list) and len(item) >= 3 and isinstance(item[0], str):
        layer, call, output = item[:3]
        if (
            type(call) is int
            and type(output) is int
            and not set(_settings(item[3] if len(item) > 3 else None)) - (_IDLE_ARGUMENTS)
        ):
            return _Reference(layer, call, output)
    return None


def _references(items: Any) -> list[_Reference]:
    """One reference, or a list of them."""
    single = _reference(items)
    found = [single] if single else [_reference(item) for item in items] if isinstance(items, list) else []
    references = [reference for reference in found if reference is not None]
    if not references or len(references) != len(found):
        raise ConvertError("the model connects its layers in a way that cannot be read")
    return references


def _keras_tensors(item: Any) -> list[_Reference]:
    """Keras 3 writes a call as nested arguments with tensors in them."""
    if isinstance(item, dict) and item.get("class_name") == "__keras_tensor__":
        return _references(_settings(item.get("config")).get("keras_history"))
    if isinstance(item, list):
        return [reference for part in item for reference in _keras_tensors(part)]
    raise ConvertError("the model passes something to a layer that is no tensor")


def _calls(name: str, layer: Mapping[str, Any]) -> list[_Call]:
    nodes = layer.get("inbound_nodes")
    if not isinstance(nodes, list) or not nodes:
        raise ConvertError(f"layer {name!r} is connected to nothing", layer=name)
    calls = []
    for index, node in enumerate(nodes):
        if isinstance(node, dict):
            if set(_settings(node.get("kwargs"))) - _IDLE_ARGUMENTS:
                raise ConvertError(f"layer {name!r} is called with arguments that cannot be converted", layer=name)
            inputs = _keras_tensors(node.get("args"))
        else:
            inputs = _references(node)
        calls.append(_Call(name, index, tuple(inputs)))
    return calls


def _in_order(calls: Sequence[_Call], ready: set[tuple[str, int]]) -> list[_Call]:
    """The calls so that each comes after those it needs, otherwise in the model's order."""
    missing: dict[int, int] = {}
    users: dict[tuple[str, int], list[int]] = {}
    for index, call in enumerate(calls):
        needs = {(reference.layer, reference.call) for reference in call.inputs} - ready
        missing[index] = len(needs)
        for need in needs:
            users.setdefault(need, []).append(index)
    waiting = deque(index for index, count in missing.items() if count == 0)
    ordered: list[_Call] = []
    while waiting:
        call = calls[waiting.popleft()]
        ordered.append(call)
        for index in users.get((call.layer, call.call), []):
            missing[index] -= 1
            if missing[index] == 0:
                waiting.append(index)
    if len(ordered) != len(calls):
        done = {(call.layer, call.call) for call in ordered}
        stuck = next(call.layer for call in calls if (call.layer, call.call) not in done)
        raise ConvertError(f"layer {stuck!r} needs an input that nothing makes", layer=stuck)
    return ordered


def _pick(made: Mapping[tuple[str, int], Sequence[Value]], reference: _Reference) -> Value:
    values = made.get((reference.layer, reference.call), ())
    if not 0 <= reference.output < len(values):
        raise ConvertError(f"layer {reference.layer!r} has no output {reference.output}", layer=reference.layer)
    return values[reference.output]
