"""A network folder -> its layers and weights, for the exporters beside this file (Python 3.6 syntax, numpy only).

    network.json   {"inputs": [{"name": "x", "shape": [3, 32, 32]}],    shapes without the batch dimension, CHW
                    "layers": [...], "outputs": ["y", "z"]}             outputs are names of layers
    weights.npz    float32 arrays

A layer is {"op", "name", "input"} and, by op:

    conv      weight (OIHW), bias, stride, pad      names of arrays, and numbers
    relu
    add       inputs [a, b] instead of input
    mean      over height and width: [N, C, H, W] -> [N, C]
    dense     weight (out, in), bias
    softmax   over the last dimension
"""

import argparse
import json
import os
from typing import Any, Dict, Optional, Tuple

import numpy as np

__all__ = ["arguments", "read_network", "write_files"]


def arguments() -> Tuple[str, str, Optional[int]]:
    """The network's folder, the folder to write to, and the batch size that is fixed, if any."""
    parser = argparse.ArgumentParser()
    parser.add_argument("network")
    parser.add_argument("output")
    parser.add_argument("--batch", type=int, default=None)
    given = parser.parse_args()
    os.makedirs(given.output, exist_ok=True)
    return given.network, given.output, given.batch


def read_network(folder: str) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """The network as `network.json` says it, and its arrays by name."""
    with open(os.path.join(folder, "network.json")) as file:
        network = json.load(file)
    with np.load(os.path.join(folder, "weights.npz")) as arrays:
        return network, {name: arrays[name] for name in arrays.files}


def write_files(folder: str, graph: str, weights: Optional[str] = None, **facts: Any) -> None:
    """Says what was exported: file names in the folder, `layout` of the input (NCHW unless told), `options`."""
    said = {"graph": graph, "weights": weights, "layout": "NCHW", "options": {}}
    said.update(facts)
    with open(os.path.join(folder, "files.json"), "w") as file:
        json.dump(said, file, indent=1, sort_keys=True)
