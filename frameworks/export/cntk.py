"""A network folder -> CNTK's own file: network.model."""

import os
import sys
from typing import Any, Dict, Sequence

# this folder holds files named after frameworks, which would hide the frameworks themselves
sys.path = sys.path[1:] + sys.path[:1]

import cntk  # noqa: E402
from reading import arguments, read_network, write_files  # noqa: E402


def _layer(layer: Dict[str, Any], inputs: Sequence[Any], weights: Dict[str, Any]) -> Any:
    op, name = layer["op"], layer["name"]
    if op == "conv":
        weight, bias = weights[layer["weight"]], weights[layer["bias"]]
        pad, stride = layer["pad"], layer["stride"]
        padded = cntk.pad(inputs[0], pattern=[(0, 0), (pad, pad), (pad, pad)]) if pad else inputs[0]
        product = cntk.convolution(cntk.constant(weight), padded, strides=(stride, stride), auto_padding=[False])
        return cntk.plus(product, cntk.constant(bias.reshape(-1, 1, 1)), name=name)
    if op == "dense":
        product = cntk.times(inputs[0], cntk.constant(weights[layer["weight"]].T.copy()))
        return cntk.plus(product, cntk.constant(weights[layer["bias"]]), name=name)
    if op == "relu":
        return cntk.relu(inputs[0], name=name)
    if op == "add":
        return cntk.plus(inputs[0], inputs[1], name=name)
    if op == "mean":
        return cntk.reshape(cntk.reduce_mean(inputs[0], axis=(1, 2)), (inputs[0].shape[0],), name=name)
    if op == "softmax":
        return cntk.softmax(inputs[0], name=name)
    raise SystemExit(f"cntk: no operator for {op}")


def main() -> None:
    source, folder, batch = arguments()
    network, weights = read_network(source)
    if batch and any(layer["op"] in ("conv", "mean") for layer in network["layers"]):
        raise SystemExit("cntk: an image network has its batch axis open, always")
    # CNTK's batch axis takes any size: a fixed one is a dimension like the others
    kind = {"dynamic_axes": []} if batch else {}  # type: Dict[str, Any]
    made = {
        tensor["name"]: cntk.input_variable(([batch] if batch else []) + tensor["shape"], name=tensor["name"], **kind)
        for tensor in network["inputs"]
    }
    for layer in network["layers"]:
        made[layer["name"]] = _layer(layer, [made[name] for name in layer.get("inputs") or [layer["input"]]], weights)
    outputs = [made[name] for name in network["outputs"]]
    model = outputs[0] if len(outputs) == 1 else cntk.combine(outputs)
    model.save(os.path.join(folder, "network.model"))
    write_files(folder, "network.model")


if __name__ == "__main__":
    main()
