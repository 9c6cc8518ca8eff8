"""A TensorFlow.js model.json to its layers' description and its weights, each checked before it is believed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from mlmodelscope.core.errors import ConvertError

__all__ = ["ModelFile", "read_model_file", "read_weights"]

_SIZE_LIMIT_BYTES = 256 * 2**20
_RANK_LIMIT = 16

# TensorFlow.js' words for element types; all are little-endian in the shards.
_DTYPES = {"float32": "<f4", "float16": "<f2", "int32": "<i4", "uint8": "u1", "uint16": "<u2", "bool": "?"}
_QUANTIZED = ("uint8", "uint16", "float16")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """`model` is Keras' {class_name, config}; of `groups`, the weights manifest, only the paths are checked yet."""

    model: Mapping[str, Any]
    groups: Sequence[Mapping[str, Any]]

    def shard_paths(self) -> list[str]:
        paths = (path for group in self.groups for path in group["paths"])
        return list(dict.fromkeys(paths))


def read_model_file(source: Path) -> ModelFile:
    """Raises ConvertError; a file that is no JSON may also raise OSError, ValueError or RecursionError."""
    if source.stat().st_size > _SIZE_LIMIT_BYTES:
        raise ConvertError(f"{source.name} is far larger than a model description")
    document = json.loads(source.read_bytes())
    if not isinstance(document, dict):
        raise ConvertError(f"{source.name} is no TensorFlow.js model: it is not a JSON object")
    if document.get("format") == "graph-model":
        raise ConvertError(
            f"{source.name} is a TensorFlow.js graph model; this converter reads layers models (Keras)",
            format="graph-model",
        )
    topology = document.get("modelTopology")
    if not isinstance(topology, dict):
        raise ConvertError(f"{source.name} is no TensorFlow.js layers model: it has no modelTopology")
    model = topology.get("model_config", topology)
    if not isinstance(model, dict) or not isinstance(model.get("class_name"), str):
        raise ConvertError(f"{source.name} describes no Keras model")
    groups = document.get("weightsManifest", [])
    if not isinstance(groups, list):
        raise ConvertError(f"the weights manifest of {source.name} is not a list")
    for group in groups:
        _check_group(group)
    return ModelFile(model, groups)


def _check_group(group: Any) -> None:
    if not isinstance(group, dict):
        raise ConvertError("a group of the weights manifest is not an object")
    paths, weights = group.get("paths"), group.get("weights")
    if not isinstance(paths, list) or not isinstance(weights, list):
        raise ConvertError("a group of the weights manifest lacks its paths or weights")
    for path in paths:
        if not _is_safe(path):
            raise ConvertError(f"the weights manifest names a file that is not beside the model: {path!r}", path=path)


def _is_safe(path: Any) -> bool:
    if not isinstance(path, str) or not path or len(path) > 1024:
        return False
    if any(sign in path for sign in ":\\?#") or not path.isprintable():
        return False
    return not path.startswith("/") and path == str(PurePosixPath(path)) and ".." not in path.split("/") and path != "."


def read_weights(folder: Path, groups: Sequence[Mapping[str, Any]]) -> dict[str, npt.NDArray[Any]]:
    """Every weight by name. Quantised weights come back as float32, computed as TensorFlow.js does."""
    found: dict[str, npt.NDArray[Any]] = {}
    for group in groups:
        content = b"".join((folder / path).read_bytes() for path in group["paths"])
        for name, values in _split(content, group["weights"]):
            if name in found:
                raise ConvertError(f"the weights manifest names {name!r} twice", weight=name)
            found[name] = values
    return found


def _split(content: bytes, entries: Sequence[Any]) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    position = 0
    for entry in entries:
        name, shape, dtype, quantization = _read_entry(entry)
        stored = np.dtype(_DTYPES[quantization["dtype"] if quantization else dtype])
        count = math.prod(shape)
        end = position + count * stored.itemsize
        if end > len(content):
            raise ConvertError(f"the shards end before weight {name!r}", weight=name)
        values = np.frombuffer(content, stored, count, position).reshape(shape)
        yield name, _dequantize(name, values, dtype, quantization) if quantization else values
        position = end
    if position != len(content):
        raise ConvertError(f"the shards hold {len(content) - position} bytes that belong to no weight")


def _read_entry(entry: Any) -> tuple[str, tuple[int, ...], str, Mapping[str, Any] | None]:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ConvertError("the weights manifest holds an entry without a name")
    name, shape, dtype = entry["name"], entry.get("shape"), entry.get("dtype")
    if not isinstance(shape, list) or len(shape) > _RANK_LIMIT:
        raise ConvertError(f"weight {name!r} has no shape", weight=name)
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ConvertError(f"weight {name!r} has a shape that is no list of whole numbers", weight=name)
    if dtype not in _DTYPES:
        raise ConvertError(f"weight {name!r} is of the unsupported type {dtype!r}", weight=name)
    quantization = entry.get("quantization")
    if quantization is not None and (not isinstance(quantization, dict) or quantization.get("dtype") not in _QUANTIZED):
        raise ConvertError(f"weight {name!r} is quantised in an unknown way", weight=name)
    return name, tuple(shape), dtype, quantization


def _dequantize(name: str, values: npt.NDArray[Any], dtype: str, quantization: Mapping[str, Any]) -> npt.NDArray[Any]:
    if quantization["dtype"] == "float16":
        return values.astype(np.float32)
    scale, least = quantization.get("scale"), quantization.get("min")
    if not isinstance(scale, int | float) or not isinstance(least, int | float):
        raise ConvertError(f"weight {name!r} is quantised without scale and min", weight=name)
    # In double precision, as JavaScript computes, then rounded once.
    real = values.astype(np.float64) * scale + least
    return np.rint(real).astype(np.int32) if dtype == "int32" else real.astype(np.float32)
