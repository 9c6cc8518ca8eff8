"""Turns Caffe's files into a verdict before Caffe reads them, because what it refuses ends the process.

Looked at: the grammar of both files, types of layers, where each bottom comes from, and whether the weights fit. What
only a layer itself can tell, such as a kernel larger than its input, is left to Caffe.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

from typing import Any, Dict, List, NamedTuple, Optional, Set

from mlmodelscope.predictors.modelfile import describe_file
from mlmodelscope.predictors.port import PredictorFault

__all__ = ["check_weights", "read_network", "read_weights"]

# they read data themselves, from places that the machine of the training had
_SOURCES = frozenset(("Data", "HDF5Data", "ImageData", "MemoryData", "WindowData"))
# they do more than compute
_REACHING = {"Python": "runs Python code", "HDF5Output": "writes a file"}
_TRAIN, _TEST = 0, 1
# what old files call otherwise than with the letters of today's name
_OLD_NAMES = {"conv": "convolution", "images": "imagedata", "pool": "pooling", "softmaxloss": "softmaxwithloss"}
# the oldest files' own layer for what the next convolution does today: Caffe merges the two
_MERGED = "padding"


class _Layer(NamedTuple):
    """A layer of any age: `type` in the words of today, where there is one."""

    name: str
    type: str
    written: Any


def read_network(text_format: Any, messages: Any, path: str, known_types: Set[str]) -> Any:
    network = messages.NetParameter()
    try:
        with open(path, encoding="utf-8") as file:
            text_format.Merge(file.read(), network)
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise _unreadable(path, error, "a Caffe network (.prototxt)", "give caffe a .prototxt as graph_path") from error
    if not network.layer and not network.layers:
        raise _unreadable(path, ValueError("it has no layers"), "a Caffe network (.prototxt)", None)
    if network.layer and network.layers:
        mixed = ValueError("it has both `layer` and `layers`, which are of different versions of the format")
        raise _unreadable(path, mixed, "a Caffe network (.prototxt)", None)
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
    for layer in _layers(network, known):
        if layer.type not in known:
            raise PredictorFault(
                "predictor_failed",
                f"caffe has no layer type {layer.type!r}, which layer {layer.name!r} of {path} needs",
                hint="this build has: " + ", ".join(sorted(known)),
                layer=layer.name,
                got=layer.type,
                known=sorted(known),
            )
        if layer.type in _SOURCES and _runs(layer.written):
            raise PredictorFault(
                "predictor_failed",
                f"layer {layer.name!r} of {path} reads its data from elsewhere ({layer.type})",
                hint="give the deployment network, which begins with an Input layer",
                layer=layer.name,
                got=layer.type,
            )
        if layer.type in _REACHING and _may_run(layer.written):
            raise PredictorFault(
                "model_format",
                f"layer {layer.name!r} of {path} ({layer.type}) {_REACHING[layer.type]}, and is not run",
                hint="give a deployment network, whose layers only compute",
                path=path,
                layer=layer.name,
                got=layer.type,
            )


def _layers(network: Any, known: Set[str]) -> List[_Layer]:
    """Those of today (`layer`, types by name), or of version 1 (`layers`, numbered types) or 0 (inside of those)."""
    found = [_Layer(layer.name, layer.type, layer) for layer in network.layer]
    words = {name.lower(): name for name in known}
    for old in network.layers:
        is_oldest = old.HasField("layer")
        written = old.layer.type if is_oldest else old.LayerType.Name(old.type)
        word = written.replace("_", "").lower()
        if not (is_oldest and word == _MERGED):
            name = old.layer.name if is_oldest else old.name
            found.append(_Layer(name, words.get(_OLD_NAMES.get(word, word), written), old))
    return found


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


def _may_run(layer: Any) -> bool:
    """Whether some state of the network, which the file has a part in, could make the layer run."""
    if layer.include:
        return any(not rule.HasField("phase") or rule.phase != _TRAIN for rule in layer.include)
    return not any(_is_test_alone(rule) for rule in layer.exclude)


def _is_test_alone(rule: Any) -> bool:
    has_more = rule.HasField("min_level") or rule.HasField("max_level") or rule.stage or rule.not_stage
    return bool(rule.HasField("phase") and rule.phase == _TEST and not has_more)


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
