"""A network folder -> MXNet's files: a symbol and its parameters."""

import os
import sys
from typing import Any, Dict, Sequence

# this folder holds files named after frameworks, which would hide the frameworks themselves
sys.path = sys.path[1:] + sys.path[:1]

import mxnet as mx  # noqa: E402
from reading import arguments, read_network, write_files  # noqa: E402


def _layer(layer: Dict[str, Any], inputs: Sequence[Any], values: Dict[str, Any]) -> Any:
    op, name = layer["op"], layer["name"]
    parameters = {kind: mx.sym.Variable(layer[kind]) for kind in ("weight", "bias") if kind in layer}
    if op == "conv":
        shape = values[layer["weight"]].shape
        return mx.sym.Convolution(
            inputs[0],
            kernel=shape[2:],
            num_filter=shape[0],
            stride=(layer["stride"],) * 2,
            pad=(layer["pad"],) * 2,
            name=name,
            **parameters,
        )
    if op == "dense":
        size = values[layer["weight"]].shape[0]
        return mx.sym.FullyConnected(inputs[0], num_hidden=size, name=name, **parameters)
    if op == "relu":
        return mx.sym.Activation(inputs[0], act_type="relu", name=name)
    if op == "add":
        return mx.sym.elemwise_add(inputs[0], inputs[1], name=name)
    if op == "mean":
        return mx.sym.mean(inputs[0], axis=(2, 3), name=name)
    if op == "softmax":
        return mx.sym.softmax(inputs[0], axis=-1, name=name)
    raise SystemExit(f"mxnet: no operator for {op}")


def main() -> None:
    folder, output, batch = arguments()
    network, values = read_network(folder)
    # size 0 is MXNet's way to leave a dimension open
    symbols = {
        tensor["name"]: mx.sym.Variable(tensor["name"], shape=tuple([batch or 0] + tensor["shape"]))
        for tensor in network["inputs"]
    }
    for layer in network["layers"]:
        names = layer.get("inputs") or [layer["input"]]
        symbols[layer["name"]] = _layer(layer, [symbols[name] for name in names], values)
    outputs = [symbols[name] for name in network["outputs"]]
    symbol = outputs[0] if len(outputs) == 1 else mx.sym.Group(outputs)
    symbol.save(os.path.join(output, "model-symbol.json"))
    used = set(symbol.list_arguments())
    parameters = {"arg:" + name: mx.nd.array(value) for name, value in values.items() if name in used}
    mx.nd.save(os.path.join(output, "model-0000.params"), parameters)
    write_files(output, "model-symbol.json", "model-0000.params")


if __name__ == "__main__":
    main()
