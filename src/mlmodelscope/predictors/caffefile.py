"""Turns Caffe's files into a verdict before Caffe reads them, because what it refuses ends the process.

Looked at: the grammar of both files, types of layers, where each bottom comes from, and whether the weights fit. What
only a layer itself can tell, such as a kernel larger than its input, is left to Caffe.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

from typing import Any, Dict, List, Optional, Set

from mlmodelscope.predictors.modelfile import describe_file
from mlmodelscope.predictors.port import PredictorFault

__all__ = ["check_weights", "read_network", "read_weights"]

# they read data themselves, from places that the machine of the training had
_SOURCES = frozenset(("Data", "HDF5Data", "ImageData", "MemoryData", "WindowData"))
_TEST = 1


def read_network(text_format: Any, messages: Any, path: str, known_types: Set[str]) -> Any:
    network = messages.NetParameter()
    try:
        with open(path, encoding="utf-8") as file:
            text_format.Merge(file.read(), network)
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise _unreadable(path, error, "a Caffe network (.prototxt)", "give caffe a .prototxt as graph_path") from error
    if not network.layer and not network.layers:
        raise _unreadable(path, ValueError("it has no layers"), "a Caffe network (.prototxt)", None)
    _check_types(network, path, known_types)
    _check_blobs(network, path)
    return network


def read_weights(messages: Any, path: Optional[str]) -> Dict[str, List[Any]]:
    """Blobs by layer; none without a path."""
    if path is None:
        return {}
    weights = messages.NetParameter()
    try:
        with open(path, "rb") as file:
            weights.ParseFromString(file.read())
    except Exception as error:  # protobuf's DecodeError has moved between its versions
        if not isinstance(error, (OSError, ValueError)) and type(error).__name__ != "DecodeError":
            raise
        raise _unreadable(path, error, "Caffe weights", "the file is cut short, damaged, or no .caffemodel") from error
    found = {layer.name: list(layer.blobs) for layer in list(weights.layer) + list(weights.layers) if layer.blobs}
    if not found:
        raise _unreadable(path, ValueError("it has no weights"), "Caffe weights", "give caffe a .caffemodel")
    return found


def check_weights(net: Any, weights: Dict[str, List[Any]], path: str, weights_path: Optional[str]) -> None:
    """Every layer with parameters finds its own in the file, of the same shapes: Caffe leaves others as they are."""
    needed = {name: [_shape(blob) for blob in blobs] for name, blobs in net.params.items()}
    if needed and weights_path is None:
        raise PredictorFault(
            "predictor_failed",
            f"caffe needs the weights of {path}",
            hint="give a .caffemodel as weights_path",
            missing=sorted(needed),
        )
    for name, shapes in needed.items():
        blobs = weights.get(name)
        if blobs is None:
            raise _misfit(path, weights_path, name, shapes, None)
        stored = [_stored_shape(blob) for blob in blobs]
        is_same = len(stored) == len(shapes) and all(_same_shape(a, b) for a, b in zip(shapes, stored))
        sizes = [len(blob.data) or len(blob.double_data) for blob in blobs]
        if not is_same or sizes != [_product(shape) for shape in stored]:
            raise _misfit(path, weights_path, name, shapes, stored)


def _unreadable(path: str, error: Exception, expected: str, hint: Optional[str]) -> PredictorFault:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return PredictorFault(
        "model_format",
        f"caffe cannot read {path}: {reason}",
        hint=hint,
        path=path,
        expected=expected,
        got=describe_file(path),
        error=str(error),
    )


def _misfit(path: str, weights_path: Any, layer: str, expected: Any, got: Any) -> PredictorFault:
    said = "are missing" if got is None else f"have shapes {got} instead of {expected}"
    return PredictorFault(
        "model_format",
        f"the weights of layer {layer!r} {said} in {weights_path}",
        hint=f"the file holds the weights of another network than {path}",
        layer=layer,
        expected=expected,
        got=got,
        path=str(weights_path),
    )


def _check_types(network: Any, path: str, known: Set[str]) -> None:
    for layer in network.layer:
        if layer.type not in known:
            raise PredictorFault(
                "predictor_failed",
                f"caffe has no layer type {layer.type!r}, which layer {layer.name!r} of {path} needs",
                hint="this build has: " + ", ".join(sorted(known)),
                layer=layer.name,
                got=layer.type,
                known=sorted(known),
            )
        if layer.type in _SOURCES and _runs(layer):
            raise PredictorFault(
                "predictor_failed",
                f"layer {layer.name!r} of {path} reads its data from elsewhere ({layer.type})",
                hint="give the deployment network, which begins with an Input layer",
                layer=layer.name,
                got=layer.type,
            )


def _check_blobs(network: Any, path: str) -> None:
    """Each bottom was some layer's top before; no top is made twice, but in place."""
    made = set(network.input)
    for layer in list(network.layer) + list(network.layers):
        if not _runs(layer):
            continue
        for bottom in layer.bottom:
            if bottom not in made:
                raise _broken(path, f"layer {layer.name!r} reads {bottom!r}, which no layer before it makes", layer)
        for top in layer.top:
            if top in made and top not in layer.bottom:
                raise _broken(path, f"layer {layer.name!r} makes {top!r} a second time", layer)
        made.update(layer.top)


def _broken(path: str, problem: str, layer: Any) -> PredictorFault:
    return PredictorFault("model_format", f"{path} is no network: {problem}", path=path, layer=layer.name)


def _runs(layer: Any) -> bool:
    """Whether the layer is part of the network that predicts; rules on levels and stages are Caffe's to judge."""
    if layer.include:
        return any(not rule.HasField("phase") or rule.phase == _TEST for rule in layer.include)
    return not any(rule.HasField("phase") and rule.phase == _TEST for rule in layer.exclude)


def _shape(blob: Any) -> List[int]:
    return [int(size) for size in blob.shape]


def _stored_shape(blob: Any) -> List[int]:
    if blob.HasField("shape"):
        return [int(size) for size in blob.shape.dim]
    return [int(blob.num), int(blob.channels), int(blob.height), int(blob.width)]


def _same_shape(needed: List[int], stored: List[int]) -> bool:
    # files from before shapes had any number of dimensions filled up to four with ones
    return needed == stored or (len(stored) == 4 and [1] * (4 - len(needed)) + needed == stored)


def _product(shape: List[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
