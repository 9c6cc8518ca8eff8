"""Small networks with known answers -> folders that every exporter reads (see `export/reading.py`)."""

from __future__ import annotations

import hashlib
import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BIAS",
    "WEIGHTS",
    "Network",
    "convolutional",
    "kept_network",
    "large",
    "linear",
    "resnet18",
    "write_network",
]

Network = tuple[dict[str, Any], dict[str, NDArray[np.float32]]]

# whole numbers, so that every framework gives the same floats
WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4)
BIAS = np.array([-20, 0, 1], dtype=np.float32)


def linear() -> Network:
    """y = x . w + b and z = max(y, 0): the network of the contract suite."""
    layers = [
        {"op": "dense", "name": "y", "input": "x", "weight": "w", "bias": "b"},
        {"op": "relu", "name": "z", "input": "y"},
    ]
    network = {"inputs": [{"name": "x", "shape": [4]}], "layers": layers, "outputs": ["y", "z"]}
    return network, {"w": WEIGHTS, "b": BIAS}


def large(hidden: int = 2600) -> Network:
    """27 MB of weights unless told, to see memory come and go; almost all its work is one product of matrices."""
    generator = np.random.default_rng(0)
    layers = [
        {"op": "dense", "name": "h1", "input": "x", "weight": "w1", "bias": "b1"},
        {"op": "relu", "name": "r1", "input": "h1"},
        {"op": "dense", "name": "h2", "input": "r1", "weight": "w2", "bias": "b2"},
        {"op": "relu", "name": "r2", "input": "h2"},
        {"op": "dense", "name": "y", "input": "r2", "weight": "w3", "bias": "b3"},
    ]
    network = {"inputs": [{"name": "x", "shape": [4]}], "layers": layers, "outputs": ["y"]}
    return network, {
        "w1": generator.standard_normal((hidden, 4), dtype=np.float32),
        "b1": np.zeros(hidden, np.float32),
        "w2": generator.standard_normal((hidden, hidden), dtype=np.float32) / np.float32(hidden),
        "b2": np.zeros(hidden, np.float32),
        "w3": generator.standard_normal((3, hidden), dtype=np.float32) / np.float32(hidden),
        "b3": np.zeros(3, np.float32),
    }


def convolutional() -> Network:
    """A residual block of every kind of layer, with random weights: quick to export, and nothing is left out."""
    generator = np.random.default_rng(0)
    layers = [
        {"op": "conv", "name": "c1", "input": "x", "weight": "w1", "bias": "b1", "stride": 2, "pad": 1},
        {"op": "relu", "name": "r1", "input": "c1"},
        {"op": "conv", "name": "c2", "input": "r1", "weight": "w2", "bias": "b2", "stride": 1, "pad": 1},
        {"op": "conv", "name": "c3", "input": "r1", "weight": "w3", "bias": "b3", "stride": 1, "pad": 0},
        {"op": "add", "name": "a", "inputs": ["c2", "c3"]},
        {"op": "relu", "name": "r2", "input": "a"},
        {"op": "mean", "name": "m", "input": "r2"},
        {"op": "dense", "name": "d", "input": "m", "weight": "w4", "bias": "b4"},
        {"op": "softmax", "name": "p", "input": "d"},
    ]
    shapes = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (8, 8, 1, 1), "w4": (10, 8)}
    weights = {name: generator.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    biases = {f"b{name[1:]}": generator.standard_normal(shape[0], dtype=np.float32) for name, shape in shapes.items()}
    network = {"inputs": [{"name": "x", "shape": [3, 32, 32]}], "layers": layers, "outputs": ["p"]}
    return network, weights | biases


def resnet18(onnx_file: Path) -> Network:
    """The zoo's residual network for CIFAR-10: every batch normalisation folded into the convolution before it."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(onnx_file).graph
    arrays = {item.name: numpy_helper.to_array(item).astype(np.float64) for item in graph.initializer}
    weights: dict[str, NDArray[np.float32]] = {}
    layers: list[dict[str, Any]] = []
    # the name under which each tensor of the file is known here
    names = {graph.input[0].name: "x"}
    for node in graph.node:
        given = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        name = node.name.replace(".", "_")
        sources = [names[text] for text in node.input if text in names]
        made = name
        match node.op_type:
            case "Conv":
                kernel = arrays[node.input[1]]
                weights |= {f"{name}_w": kernel, f"{name}_b": np.zeros(len(kernel))}
                layers.append(
                    {"op": "conv", "name": name, "input": sources[0], "weight": f"{name}_w", "bias": f"{name}_b"}
                )
                layers[-1] |= {"stride": given["strides"][0], "pad": given["pads"][0]}
            case "BatchNormalization":
                scale, bias, mean, variance = (arrays[text] for text in node.input[1:])
                factor = scale / np.sqrt(variance + given["epsilon"])
                made = sources[0]
                weights[f"{made}_w"] = weights[f"{made}_w"] * factor[:, None, None, None]
                weights[f"{made}_b"] = (weights[f"{made}_b"] - mean) * factor + bias
            case "Relu":
                layers.append({"op": "relu", "name": name, "input": sources[0]})
            case "Add":
                layers.append({"op": "add", "name": name, "inputs": sources})
            case "GlobalAveragePool":
                layers.append({"op": "mean", "name": name, "input": sources[0]})
            case "Flatten":
                made = sources[0]
            case "Gemm":
                weights |= {f"{name}_w": arrays[node.input[1]], f"{name}_b": arrays[node.input[2]]}
                layers.append(
                    {"op": "dense", "name": name, "input": sources[0], "weight": f"{name}_w", "bias": f"{name}_b"}
                )
            case other:
                raise ValueError(f"the network has a layer of the kind {other}")
        names[node.output[0]] = made
    network = {"inputs": [{"name": "x", "shape": [3, 32, 32]}], "layers": layers, "outputs": [names["logits"]]}
    return network, {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in weights.items()}


def write_network(network: Network, folder: Path) -> None:
    """In one step: of several processes that write the same, one is first and the others' work is dropped."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    described, weights = network
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as made:
        whole = Path(made) / folder.name
        whole.mkdir()
        (whole / "network.json").write_text(json.dumps(described, indent=1))
        np.savez(whole / "weights.npz", **weights)
        # another process was quicker where a folder that is not empty stands there
        with suppress(OSError):
            whole.rename(folder)


def kept_network(network: Network, root: Path) -> Path:
    """The folder below `root` that holds the network, found by its content."""
    described, weights = network
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for name, array in sorted(weights.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    folder = root / digest.hexdigest()[:16]
    if not folder.is_dir():
        write_network(network, folder)
    return folder
