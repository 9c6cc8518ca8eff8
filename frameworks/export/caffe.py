"""A network folder -> Caffe's files: network.prototxt and network.caffemodel."""

import os
import sys
from typing import Any, Dict, Sequence

# this folder holds files named after frameworks, which would hide the frameworks themselves
sys.path = sys.path[1:] + sys.path[:1]
os.environ.setdefault("GLOG_minloglevel", "2")

import caffe  # noqa: E402
from caffe.proto import caffe_pb2  # noqa: E402
from google.protobuf import text_format  # noqa: E402
from reading import arguments, read_network, write_files  # noqa: E402

_TYPES = {
    "add": "Eltwise",
    "conv": "Convolution",
    "dense": "InnerProduct",
    "mean": "Reduction",
    "relu": "ReLU",
    "softmax": "Softmax",
}


def _add_layer(net: Any, layer: Dict[str, Any], bottoms: Sequence[str], top: str, weights: Dict[str, Any]) -> None:
    op = layer["op"]
    made = net.layer.add(name=layer["name"], type=_TYPES[op], bottom=bottoms, top=[top])
    if op == "conv":
        shape = weights[layer["weight"]].shape
        made.convolution_param.num_output = shape[0]
        made.convolution_param.kernel_size.append(shape[2])
        made.convolution_param.stride.append(layer["stride"])
        made.convolution_param.pad.append(layer["pad"])
    elif op == "dense":
        made.inner_product_param.num_output = weights[layer["weight"]].shape[0]
    elif op == "mean":
        made.reduction_param.operation = caffe_pb2.ReductionParameter.MEAN
        made.reduction_param.axis = 2
    elif op == "softmax":
        made.softmax_param.axis = -1


def _describe(network: Dict[str, Any], weights: Dict[str, Any], batch: int) -> Any:
    net = caffe_pb2.NetParameter(name="network")
    for tensor in network["inputs"]:
        layer = net.layer.add(name=tensor["name"], type="Input", top=[tensor["name"]])
        layer.input_param.shape.add(dim=[batch] + tensor["shape"])
    used = {name for layer in network["layers"] for name in layer.get("inputs") or [layer["input"]]}
    renamed = {}
    for layer in network["layers"]:
        name = layer["name"]
        bottoms = [renamed.get(bottom, bottom) for bottom in layer.get("inputs") or [layer["input"]]]
        if name not in used or name not in network["outputs"]:
            _add_layer(net, layer, bottoms, name, weights)
            continue
        # only what no layer reads is an output of the network: one copy is for the readers
        _add_layer(net, layer, bottoms, name + "_made", weights)
        renamed[name] = name + "_used"
        net.layer.add(name=name + "_copies", type="Split", bottom=[name + "_made"], top=[name, renamed[name]])
    return net


def main() -> None:
    source, folder, batch = arguments()
    network, weights = read_network(source)
    path = os.path.join(folder, "network.prototxt")
    with open(path, "w") as file:
        file.write(text_format.MessageToString(_describe(network, weights, batch or 1)))
    net = caffe.Net(path, caffe.TEST)
    for layer in network["layers"]:
        if "weight" in layer:
            net.params[layer["name"]][0].data[...] = weights[layer["weight"]]
            net.params[layer["name"]][1].data[...] = weights[layer["bias"]]
    net.save(os.path.join(folder, "network.caffemodel"))
    options = {"batch": "fixed"} if batch else {}
    write_files(folder, "network.prototxt", "network.caffemodel", options=options)


if __name__ == "__main__":
    main()
