"""One Keras layer and its settings, checked, to ONNX nodes and weights named after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlmodelscope.core.errors import ConvertError
from mlmodelscope.provision.convert.graph import GraphBuilder, Shape

__all__ = ["Layer", "Value", "WeightStore"]

_TO_CHANNELS_FIRST = (0, 3, 1, 2)
_TO_CHANNELS_LAST = (0, 2, 3, 1)


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the model. `shape` is what Keras sees (channels last, batch None); a picture may lie in memory
    with its channels first, as ONNX' convolutions want it.
    """

    tensor: str
    shape: Shape
    channels_first: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)


class WeightStore:
    """The model's weights by layer and role; the names may carry scopes before the layer's."""

    def __init__(self, weights: Mapping[str, npt.NDArray[Any]]) -> None:
        self._weights = weights
        self._by_tail: dict[str, list[str]] = {}
        self._owners: dict[str, Mapping[str, Any]] = {}
        for name in weights:
            parts = name.split("/")
            for start in range(1, min(len(parts) - 1, 8)):
                self._by_tail.setdefault("/".join(parts[start:]), []).append(name)

    def find(self, layer: str, role: str, config: Mapping[str, Any]) -> npt.NDArray[Any]:
        """`config` tells a layer used twice from two layers of one name, in two nested models: those are refused."""
        name = f"{layer}/{role}"
        scoped = self._by_tail.get(name, [])
        if name not in self._weights and len(scoped) == 1:
            name = scoped[0]
        if name not in self._weights:
            problem = "is ambiguous" if scoped else "is missing"
            raise ConvertError(f"weight {name!r} of layer {layer!r} {problem}", layer=layer, weight=name)
        if self._owners.setdefault(name, config) is not config:
            raise ConvertError(f"two layers named {layer!r} claim the weight {name!r}", layer=layer, weight=name)
        return self._weights[name]


class Layer:
    """What a layer's function works with: its settings, its weights and the graph. One per layer of the model."""

    def __init__(
        self, kind: str, name: str, config: Mapping[str, Any], graph: GraphBuilder, weights: WeightStore
    ) -> None:
        self.kind = kind
        self.name = name
        self.config = config
        self._graph = graph
        self._weights = weights

    def error(self, problem: str) -> ConvertError:
        return ConvertError(f"layer {self.name!r} ({self.kind}): {problem}", layer=self.name, kind=self.kind)

    # settings

    def flag(self, key: str, default: bool) -> bool:
        value = self.config.get(key, default)
        if not isinstance(value, bool):
            raise self.error(f"{key} is {value!r}, not true or false")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.config.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(f"{key} is {value!r}, not a number")
        return value

    def integer(self, key: str, default: int) -> int:
        value = self.number(key, default)
        if not isinstance(value, int):
            raise self.error(f"{key} is {value!r}, not a whole number")
        return value

    def pair(self, key: str, default: tuple[int, int] | None) -> tuple[int, int]:
        """Two positive numbers; one stands for both."""
        value = self.config.get(key)
        if value is None and default is not None:
            return default
        items: list[Any] = value if isinstance(value, list) else [value, value]
        if len(items) != 2 or not all(type(item) is int and item > 0 for item in items):
            raise self.error(f"{key} is {value!r}, not one or two positive numbers")
        return items[0], items[1]

    def sides(self, key: str) -> tuple[tuple[int, int], tuple[int, int]]:
        """((top, bottom), (left, right)) from one number, one per axis, or all four."""
        value = self.config.get(key)
        items: list[Any] = value if isinstance(value, list) else [value, value]
        axes: list[list[Any]] = [item if isinstance(item, list) else [item, item] for item in items]
        if len(axes) != 2 or not all(len(axis) == 2 and all(type(n) is int and n >= 0 for n in axis) for axis in axes):
            raise self.error(f"{key} is {value!r}, not sides of a picture")
        (top, bottom), (left, right) = axes
        return (top, bottom), (left, right)

    def same_padding(self) -> bool:
        value = self.config.get("padding", "valid")
        if value not in ("same", "valid"):
            raise self.error(f"padding {value!r} is not supported")
        return bool(value == "same")

    # weights and nodes

    def weight(self, role: str, rank: int) -> npt.NDArray[np.float32]:
        values = self._weights.find(self.name, role, self.config)
        if values.ndim != rank:
            raise self.error(f"weight {role} has the shape {list(values.shape)}, expected {rank} dimensions")
        return values.astype(np.float32)

    def constant(self, role: str, values: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> str:
        return self._graph.add_constant(f"{self.name}/{role}", values, dtype)

    def node(self, operator: str, inputs: Sequence[str], role: str = "", **attributes: Any) -> str:
        return self._graph.add_node(operator, inputs, f"{self.name}/{role}" if role else self.name, **attributes)

    # layout

    def picture(self, value: Value) -> Value:
        """The value with its channels first in memory."""
        if value.rank != 4:
            raise self.error(f"needs a picture (4 dimensions), got {value.rank}")
        if "data_format" in self.config and self.config["data_format"] not in ("channels_last", None):
            raise self.error(f"data_format {self.config['data_format']!r} is not supported")
        if value.channels_first:
            return value
        tensor = self.node("Transpose", [value.tensor], "to_nchw", perm=_TO_CHANNELS_FIRST)
        return Value(tensor, value.shape, channels_first=True)

    def plain(self, value: Value) -> Value:
        """The value as Keras sees it."""
        if not value.channels_first:
            return value
        return Value(self.node("Transpose", [value.tensor], "to_nhwc", perm=_TO_CHANNELS_LAST), value.shape)

    def channels(self, value: Value) -> int:
        count = value.shape[-1]
        if count is None:
            raise self.error("the number of channels is not fixed")
        return count
