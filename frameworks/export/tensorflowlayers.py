"""A network folder -> operations of TensorFlow, 1.15 or 2.x, for the exporters beside this file.

Images are NHWC here, because TensorFlow convolves on a CPU in this layout only.
"""

import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

import numpy as np

__all__ = ["build", "framework", "input_shape", "layout", "ordered"]


def framework() -> Any:
    """TensorFlow itself: while this folder is on the path, the exporter of that name hides it."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != here]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    return tf


def layout(network: Dict[str, Any]) -> str:
    return "NHWC" if any(len(layer["shape"]) == 3 for layer in network["inputs"]) else "NCHW"


def input_shape(layer: Dict[str, Any], batch: Optional[int]) -> List[Optional[int]]:
    shape = list(layer["shape"])
    return [batch] + (shape[1:] + shape[:1] if len(shape) == 3 else shape)


def build(tf: Any, network: Dict[str, Any], weights: Dict[str, Any], tensors: Dict[str, Any]) -> Dict[str, Any]:
    """Every layer's tensor by name. `weights` are arrays or variables in TensorFlow's own order of dimensions."""
    tensors = dict(tensors)
    for layer in network["layers"]:
        tensors[layer["name"]] = _layer(tf, layer, weights, tensors)
    return tensors


def ordered(network: Dict[str, Any], arrays: Dict[str, Any]) -> Dict[str, Any]:
    """The arrays as TensorFlow wants them: kernels HWIO, matrices (in, out)."""
    turned = dict(arrays)
    for layer in network["layers"]:
        if layer["op"] == "conv":
            turned[layer["weight"]] = np.ascontiguousarray(arrays[layer["weight"]].transpose(2, 3, 1, 0))
        elif layer["op"] == "dense":
            turned[layer["weight"]] = np.ascontiguousarray(arrays[layer["weight"]].T)
    return turned


def _layer(tf: Any, layer: Dict[str, Any], weights: Dict[str, Any], tensors: Dict[str, Any]) -> Any:
    kind, source = layer["op"], tensors.get(layer.get("input"))
    if kind == "conv":
        pad, stride = layer["pad"], layer["stride"]
        edges = [[0, 0], [pad, pad], [pad, pad], [0, 0]]
        convolved = tf.nn.conv2d(source, weights[layer["weight"]], [1, stride, stride, 1], edges)
        return tf.nn.bias_add(convolved, weights[layer["bias"]])
    if kind == "dense":
        return tf.nn.bias_add(tf.linalg.matmul(source, weights[layer["weight"]]), weights[layer["bias"]])
    if kind == "add":
        return tf.add(tensors[layer["inputs"][0]], tensors[layer["inputs"][1]])
    if kind == "mean":
        return tf.reduce_mean(source, axis=[1, 2])
    if kind == "relu":
        return tf.nn.relu(source)
    if kind == "softmax":
        return tf.nn.softmax(source)
    raise ValueError(f"unknown layer kind {kind!r}")
