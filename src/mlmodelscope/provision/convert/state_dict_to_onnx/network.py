"""Layers in torch's terms to ONNX nodes in NCHW, with the weights of a state dict."""

from __future__ import annotations

from dataclasses import dataclass

from mlmodelscope.provision.convert.graph import GraphBuilder, same_padding
from mlmodelscope.provision.convert.state_dict_to_onnx.weights import Weights

__all__ = ["Feature", "Network"]


@dataclass(frozen=True, slots=True)
class Feature:
    """A tensor in the graph: N x channels x size x size."""

    tensor: str
    channels: int
    size: int


class Network:
    """Adds layers named as their modules in the state dict."""

    def __init__(self, graph: GraphBuilder, weights: Weights, epsilon: float) -> None:
        self._graph, self._weights, self._epsilon = graph, weights, epsilon

    def input(self, channels: int, size: int) -> Feature:
        return Feature(self._graph.add_input("input", (None, channels, size, size)), channels, size)

    def conv(
        self, source: Feature, name: str, channels: int, kernel: int, stride: int = 1, *, groups: int = 1, same: bool
    ) -> Feature:
        """Without bias. `same`: TensorFlow's padding; else kernel // 2 cells on each side."""
        shape = (channels, source.channels // groups, kernel, kernel)
        weight = self._graph.add_constant(f"{name}.weight", self._weights.take(f"{name}.weight", *shape))
        before, after = same_padding(source.size, kernel, stride) if same else (kernel // 2, kernel // 2)
        tensor = self._graph.add_node(
            "Conv",
            [source.tensor, weight],
            name,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[before, before, after, after],
            group=groups,
        )
        return Feature(tensor, channels, (source.size + before + after - kernel) // stride + 1)

    def norm(self, source: Feature, name: str) -> Feature:
        inputs = [source.tensor]
        for part in ("weight", "bias", "running_mean", "running_var"):
            values = self._weights.take(f"{name}.{part}", source.channels)
            inputs.append(self._graph.add_constant(f"{name}.{part}", values))
        self._weights.ignore(f"{name}.num_batches_tracked")
        tensor = self._graph.add_node("BatchNormalization", inputs, name, epsilon=self._epsilon)
        return Feature(tensor, source.channels, source.size)

    def relu(self, source: Feature, name: str) -> Feature:
        return Feature(self._graph.add_node("Relu", [source.tensor], name), source.channels, source.size)

    def relu6(self, source: Feature, name: str) -> Feature:
        limits = [self._graph.add_constant("zero", 0.0), self._graph.add_constant("six", 6.0)]
        tensor = self._graph.add_node("Clip", [source.tensor, *limits], name)
        return Feature(tensor, source.channels, source.size)

    def add(self, left: Feature, right: Feature, name: str) -> Feature:
        tensor = self._graph.add_node("Add", [left.tensor, right.tensor], name)
        return Feature(tensor, left.channels, left.size)

    def classify(self, source: Feature, name: str, classes: int) -> str:
        """The mean over the picture, then a linear layer."""
        pooled = self._graph.add_node("GlobalAveragePool", [source.tensor], "pool")
        flat = self._graph.add_node("Flatten", [pooled], "flatten", axis=1)
        weight = self._weights.take(f"{name}.weight", classes, source.channels)
        inputs = [
            flat,
            self._graph.add_constant(f"{name}.weight", weight),
            self._graph.add_constant(f"{name}.bias", self._weights.take(f"{name}.bias", classes)),
        ]
        return self._graph.add_node("Gemm", inputs, name, transB=1)
