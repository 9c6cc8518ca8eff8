"""Nodes and weights, added one by one, to the bytes of a checked ONNX model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlmodelscope.core.errors import ConvertError, EnvironmentMissingError

__all__ = ["IR_VERSION", "OPSET", "GraphBuilder", "GraphOutput", "Shape", "same_padding"]

# The newest pair that onnxruntime 1.17 is sure to load.
OPSET = 17
IR_VERSION = 8

_PROTOBUF_LIMIT_BYTES = 2**31 - 2**20

Shape = tuple[int | None, ...]


def _import_onnx() -> Any:
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
        import onnx.shape_inference
    except ImportError as error:
        raise EnvironmentMissingError(
            "converting a model needs the package onnx, which is not installed",
            hint="pip install 'mlmodelscope[convert]'",
            package="onnx",
        ) from error
    return onnx


@dataclass(frozen=True, slots=True)
class GraphOutput:
    tensor: str
    name: str
    shape: Shape


class GraphBuilder:
    """Collects one graph. The order of calls is the order in the file, so equal calls give equal bytes.

    Every tensor is float32 unless a caller adds a constant of another type. The first axis of inputs and outputs is
    the batch, written as the free dimension `batch`.
    """

    def __init__(self, name: str) -> None:
        self._onnx = _import_onnx()
        self._name = name
        self._inputs: list[Any] = []
        self._input_names: set[str] = set()
        self._nodes: list[Any] = []
        self._node_names: set[str] = set()
        self._constants: dict[str, Any] = {}
        self._size_bytes = 0

    def add_input(self, name: str, shape: Shape) -> str:
        if name in self._input_names:
            raise ConvertError(f"two inputs of the model are named {name!r}")
        self._input_names.add(name)
        self._inputs.append(self._describe(name, shape))
        return name

    def add_constant(self, name: str, array: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> str:
        """Adds a weight once; a second call with the same name refers to the first."""
        if name not in self._constants:
            values = np.ascontiguousarray(array, dtype=dtype)
            self._size_bytes += values.nbytes
            if self._size_bytes > _PROTOBUF_LIMIT_BYTES:
                raise ConvertError("the weights exceed 2 GB, which one ONNX file cannot hold")
            self._constants[name] = self._onnx.numpy_helper.from_array(values.reshape(np.shape(array)), name)
        return name

    def add_node(self, operator: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        """Adds a node with one output and returns that tensor's name; a taken node name gets a number."""
        unique, count = name, 1
        while unique in self._node_names:
            unique, count = f"{name}_{count}", count + 1
        self._node_names.add(unique)
        # The colon keeps tensor names apart from the names that outputs get in `finish`.
        tensor = f"{unique}:0"
        self._nodes.append(self._onnx.helper.make_node(operator, list(inputs), [tensor], name=unique, **attributes))
        return tensor

    def finish(self, outputs: Sequence[GraphOutput]) -> bytes:
        """The serialised model, after ONNX's own checker and strict shape inference agreed to it."""
        self._name_outputs(outputs)
        helper = self._onnx.helper
        graph = helper.make_graph(
            self._nodes,
            self._name,
            self._inputs,
            [self._describe(output.name, output.shape) for output in outputs],
            initializer=list(self._constants.values()),
        )
        model = helper.make_model(
            graph,
            producer_name="mlmodelscope",
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        try:
            self._onnx.checker.check_model(model)
            self._onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        except (self._onnx.checker.ValidationError, self._onnx.shape_inference.InferenceError) as error:
            raise ConvertError(f"the converted graph is not a valid model: {error}") from error
        content: bytes = model.SerializeToString(deterministic=True)
        return content

    def _name_outputs(self, outputs: Sequence[GraphOutput]) -> None:
        names: dict[str, str] = {}
        for output in outputs:
            if output.name in self._input_names or output.name in names.values():
                raise ConvertError(f"two inputs or outputs of the model are named {output.name!r}")
            tensor = output.tensor
            if tensor in self._input_names or tensor in names:
                tensor = self.add_node("Identity", [tensor], f"{output.name}/identity")
            names[tensor] = output.name
        for node in self._nodes:
            node.input[:] = [names.get(tensor, tensor) for tensor in node.input]
            node.output[:] = [names.get(tensor, tensor) for tensor in node.output]

    def _describe(self, name: str, shape: Shape) -> Any:
        helper, elements = self._onnx.helper, self._onnx.TensorProto
        dimensions: list[int | str] = ["batch"]
        dimensions += [f"{name}_dim{axis}" if size is None else size for axis, size in enumerate(shape[1:], 1)]
        return helper.make_tensor_value_info(name, elements.FLOAT, dimensions)


def same_padding(size: int, kernel: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """TensorFlow's SAME rule for one axis: as many outputs as ceil(size / stride), an odd cell goes to the end."""
    outputs = -(-size // stride)
    total = max((outputs - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2
