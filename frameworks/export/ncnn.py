"""A network folder -> network.param and network.bin, ncnn's own format; nothing but numpy is needed to write it.

The text file lists layers with their blobs; the binary one holds the weights in the order of the layers. ncnn has no
batch dimension, so a fixed batch size cannot be said.
"""

import os
import struct
from typing import Any, Dict, List

from reading import arguments, read_network, write_files

_MAGIC = "7767517"
# before the weights of a layer, not before its bias: float32 as it is
_PLAIN = struct.pack("<I", 0)


def main() -> None:
    source, folder, _ = arguments()
    network, weights = read_network(source)
    writer = Writer(network)
    for given in network["inputs"]:
        # width first; a network's shapes have the channels first
        sizes = " ".join("{}={}".format(place, size) for place, size in enumerate(reversed(given["shape"])))
        writer.layer("Input", given["name"], [], sizes)
    with open(os.path.join(folder, "network.bin"), "wb") as file:
        for layer in network["layers"]:
            writer.layer(*_described(layer, weights))
            if "weight" in layer:
                file.write(_PLAIN + weights[layer["weight"]].astype("<f4").tobytes())
                file.write(weights[layer["bias"]].astype("<f4").tobytes())
    with open(os.path.join(folder, "network.param"), "w") as text:
        text.write(writer.text())
    write_files(folder, "network.param", "network.bin", has_fixed_batch=False)


def _described(layer: Dict[str, Any], weights: Dict[str, Any]) -> Any:
    """The operator, the name, the blobs it reads and its parameters by number, as in ncnn's operator list."""
    op, name = layer["op"], layer["name"]
    if op == "add":
        return "BinaryOp", name, layer["inputs"], "0=0"
    inputs = [layer["input"]]
    if op == "conv":
        weight = weights[layer["weight"]]
        sizes = (weight.shape[0], weight.shape[3], weight.shape[2], layer["stride"], layer["pad"], weight.size)
        return "Convolution", name, inputs, "0={} 1={} 11={} 3={} 4={} 5=1 6={}".format(*sizes)
    if op == "dense":
        weight = weights[layer["weight"]]
        return "InnerProduct", name, inputs, "0={} 1=1 2={}".format(weight.shape[0], weight.size)
    if op == "mean":
        return "Pooling", name, inputs, "0=1 4=1"
    return ("ReLU", name, inputs, "") if op == "relu" else ("Softmax", name, inputs, "0=0")


class Writer(object):
    """Collects layers. A blob has one reader in ncnn, so that one with several is split into copies."""

    def __init__(self, network: Dict[str, Any]) -> None:
        self._left = {}  # type: Dict[str, List[str]]
        self._uses = {}  # type: Dict[str, int]
        self._outputs = network["outputs"]
        for layer in network["layers"]:
            for name in layer.get("inputs", [layer.get("input")]):
                self._uses[name] = self._uses.get(name, 0) + 1
        self._lines = []  # type: List[str]
        self._blobs = 0

    def layer(self, operator: str, name: str, inputs: List[str], parameters: str) -> None:
        read = [self._left[blob].pop() for blob in inputs]
        readers = self._uses.get(name, 0) + (name in self._outputs)
        # the copy that nobody reads keeps the name: an output is called as the network calls it
        copies = [name] + ["{}/{}".format(name, place) for place in range(1, readers)]
        made = name if readers < 2 else name + "/made"
        self._line(operator, name, read, [made], parameters)
        if readers > 1:
            self._line("Split", name + "/split", [made], copies, "")
        self._left[name] = copies

    def _line(self, operator: str, name: str, read: List[str], made: List[str], parameters: str) -> None:
        fields = [operator, name, str(len(read)), str(len(made))] + read + made + [parameters]
        self._lines.append(" ".join(fields).rstrip())
        self._blobs += len(made)

    def text(self) -> str:
        return "\n".join([_MAGIC, "{} {}".format(len(self._lines), self._blobs)] + self._lines) + "\n"


if __name__ == "__main__":
    main()
