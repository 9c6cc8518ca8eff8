"""A network folder -> network.xml and network.bin, OpenVINO's own format, made with OpenVINO's own operators."""

import os
import sys
from typing import Any, Dict, Optional

from reading import arguments, read_network, write_files

# this file must not stand for the package of its name; and the package sends telemetry unless its sender is missing
sys.path = [path for path in sys.path if os.path.abspath(path or ".") != os.path.dirname(os.path.abspath(__file__))]
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]

import numpy as np  # noqa: E402
import openvino as ov  # noqa: E402
from openvino import opset13 as ops  # noqa: E402


def main() -> None:
    source, folder, batch = arguments()
    network, weights = read_network(source)
    # half-precision weights are the default of save_model
    ov.save_model(_model(network, weights, batch), os.path.join(folder, "network.xml"), compress_to_fp16=False)
    write_files(folder, "network.xml", "network.bin")


def _model(network: Dict[str, Any], weights: Dict[str, Any], batch: Optional[int]) -> Any:
    first = -1 if batch is None else batch
    made = {}
    for given in network["inputs"]:
        made[given["name"]] = ops.parameter([first] + list(given["shape"]), np.float32, name=given["name"])
    inputs = list(made.values())
    for layer in network["layers"]:
        made[layer["name"]] = _node(layer, made, weights)
        made[layer["name"]].friendly_name = layer["name"]
    for name, node in made.items():
        node.output(0).set_names({name})
    return ov.Model([ops.result(made[name]) for name in network["outputs"]], inputs, "network")


def _node(layer: Dict[str, Any], made: Dict[str, Any], weights: Dict[str, Any]) -> Any:
    op = layer["op"]
    if op == "add":
        return ops.add(*(made[name] for name in layer["inputs"]))
    data = made[layer["input"]]
    if op == "conv":
        kernel, pads = ops.constant(weights[layer["weight"]]), [layer["pad"]] * 2
        node = ops.convolution(data, kernel, [layer["stride"]] * 2, pads, pads, [1, 1])
        return ops.add(node, ops.constant(weights[layer["bias"]].reshape(1, -1, 1, 1)))
    if op == "dense":
        node = ops.matmul(data, ops.constant(weights[layer["weight"]]), False, True)
        return ops.add(node, ops.constant(weights[layer["bias"]].reshape(1, -1)))
    if op == "mean":
        return ops.reduce_mean(data, np.array([2, 3]), False)
    return ops.relu(data) if op == "relu" else ops.softmax(data, -1)


if __name__ == "__main__":
    main()
