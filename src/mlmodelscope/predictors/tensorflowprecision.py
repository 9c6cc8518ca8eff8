"""Turns the nodes of a TensorFlow graph, and the process's variables, into the precision and library of its kernels."""

import os
import re
from typing import Any, Dict, Iterable, Mapping, Optional

__all__ = ["TYPES", "kernel_library", "precision_of", "reduced_by"]

# numbers are those of types.proto
TYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64",
    9: "int64", 10: "bool", 11: "qint8", 12: "quint8", 13: "qint32", 14: "bfloat16", 15: "qint16", 16: "quint16",
    17: "uint16", 18: "complex128", 19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip
_COMPUTING = re.compile(
    r"(_Mkl|_Fused|_OneDnn)*(Native)?(Batch|Sparse)?(MatMul|Conv[23]D|DepthwiseConv2d|Einsum|LSTM|GRU|CudnnRNN)"
)
_QUANTISED = re.compile(r"(_Mkl)?_?(Quantized|UniformQuantized)(MatMul|Conv|Dot|DepthwiseConv|Batch)")
_FLOATS = ("float32", "float16", "bfloat16", "float64")
_MATH_MODES = ("TF_SET_ONEDNN_FPMATH_MODE", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")


def precision_of(nodes: Iterable[Any]) -> str:
    """What the multiplying kernels compute in, by number of nodes; of any node where none multiplies.

    A node is a NodeDef: `op`, and `attr` from names to values with a `type`.
    """
    computing: Dict[str, int] = {}
    others: Dict[str, int] = {}
    for node in nodes:
        if _QUANTISED.match(node.op):
            return "int8 quantised"
        kind = TYPES.get(node.attr["T"].type if "T" in node.attr else 0, "")
        if kind in _FLOATS:
            counts = computing if _COMPUTING.match(node.op) else others
            counts[kind] = counts.get(kind, 0) + 1
    counts = computing or others
    return max(sorted(counts), key=lambda name: counts[name]) if counts else "unknown"


def reduced_by(variables: Optional[Mapping[str, str]] = None) -> Optional[str]:
    """The environment variable that lets oneDNN compute in less than float32, if one does."""
    variables = os.environ if variables is None else variables
    for name in _MATH_MODES:
        if variables.get(name, "").upper() not in ("", "STRICT"):
            return name
    return None


def kernel_library(is_onednn: bool, include_folder: str) -> str:
    """Eigen's own kernels, or oneDNN with the version that the framework was built with."""
    if not is_onednn:
        return "Eigen"
    header = os.path.join(include_folder, "external", "onednn", "include", "oneapi", "dnnl", "dnnl_version.h")
    try:
        with open(header, encoding="utf-8") as file:
            numbers = re.findall(r"#define DNNL_VERSION_(?:MAJOR|MINOR|PATCH) +(\d+)", file.read())
    except OSError:
        numbers = []
    return "oneDNN " + ".".join(numbers) if numbers else "oneDNN"
