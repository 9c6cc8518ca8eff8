"""A network folder -> the same network for Caffe2: predict_net.pb, and init_net.pb that makes the weights."""

import sys
from pathlib import Path
from typing import Any, Dict

from reading import arguments, read_network, write_files

# this file has the framework's own name: Python must not take it for the framework
sys.path.pop(0)

from caffe2.python import core

__all__ = ["main"]


def _init_net(weights: Dict[str, Any]) -> Any:
    net = core.Net("init")
    for name in sorted(weights):
        array = weights[name]
        net.GivenTensorFill([], name, shape=list(array.shape), values=array.ravel().tolist())
    return net.Proto()


def _predict_net(network: Dict[str, Any], weights: Dict[str, Any]) -> Any:
    net = core.Net("predict")
    for layer in network["layers"]:
        _add(net, layer, weights)
    proto = net.Proto()
    del proto.external_input[:]
    proto.external_input.extend([one["name"] for one in network["inputs"]] + sorted(weights))
    proto.external_output.extend(network["outputs"])
    return proto


def _add(net: Any, layer: Dict[str, Any], weights: Dict[str, Any]) -> None:
    op, name = layer["op"], layer["name"]
    if op == "conv":
        kernel = list(weights[layer["weight"]].shape[2:])
        given = [layer["input"], layer["weight"], layer["bias"]]
        net.Conv(given, name, kernels=kernel, strides=[layer["stride"]] * 2, pads=[layer["pad"]] * 4, order="NCHW")
    elif op == "dense":
        net.FC([layer["input"], layer["weight"], layer["bias"]], name)
    elif op == "relu":
        net.Relu(layer["input"], name)
    elif op == "add":
        net.Add(layer["inputs"], name)
    elif op == "mean":
        net.ReduceMean(layer["input"], name, axes=[2, 3], keepdims=False)
    else:
        net.Softmax(layer["input"], name, axis=1)


def main() -> None:
    folder, output, batch = arguments()
    network, weights = read_network(folder)
    (Path(output) / "predict_net.pb").write_bytes(_predict_net(network, weights).SerializeToString())
    (Path(output) / "init_net.pb").write_bytes(_init_net(weights).SerializeToString())
    shapes = [[batch, *one["shape"]] for one in network["inputs"]]
    write_files(output, "predict_net.pb", "init_net.pb", options={"shapes": shapes})


if __name__ == "__main__":
    main()
