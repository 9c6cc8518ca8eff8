"""Turns the files or the callable of a JAX model into a function of weights and inputs, and what it takes and gives."""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import contextlib
import importlib
import struct
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set

from mlmodelscope.predictors.modelfile import describe_file
from mlmodelscope.predictors.port import PredictorFault, element_type, import_framework

__all__ = ["allow_x64", "first_line", "needs_x64", "open_callable", "open_exported"]


def open_exported(jax: Any, model: Dict[str, Any]) -> Dict[str, Any]:
    path = model["graph_path"]
    export = import_framework("jax", ["jax.export"])
    try:
        with open(path, "rb") as file:
            exported = export.deserialize(bytearray(file.read()))
    except ImportError as error:
        raise PredictorFault(
            "environment_missing", f"jax cannot read exported files: {error}", hint="add flatbuffers to requirements"
        ) from error
    except (OSError, struct.error, AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
        looks = describe_file(path)
        raise PredictorFault(
            "model_format",
            f"{path} is no function exported by JAX: it is {looks}",
            hint="write the bytes of jax.export.export(function)(...).serialize() to a file",
            path=path,
            expected="an exported JAX function",
            got=looks,
        ) from error
    if "cpu" not in exported.platforms or exported.nr_devices != 1:
        raise PredictorFault(
            "predictor_failed",
            f"{path} was exported for {exported.nr_devices} x {', '.join(exported.platforms)}, not for one CPU",
            hint='export with platforms=["cpu"]',
            path=path,
            expected="cpu",
            got=list(exported.platforms),
        )
    weights = _read_weights(model["weights_path"]) if model.get("weights_path") else None
    tree = jax.tree_util
    leaves = tree.tree_flatten_with_path(tree.tree_unflatten(exported.in_tree, list(exported.in_avals)))[0]
    held = len(weights) if weights else 0
    results = tree.tree_flatten_with_path(tree.tree_unflatten(exported.out_tree, list(exported.out_avals)))[0]
    _check_weights(path, weights, leaves)
    # the file's names, sorted, need not be in the order of the function's tree
    names = [_label(keys[2:]) for keys, _ in leaves[:held]]

    def call(*values: Any) -> List[Any]:
        flat = list(values) if weights is None else [values[0][name] for name in names] + list(values[1:])
        positional, named = tree.tree_unflatten(exported.in_tree, flat)
        return list(tree.tree_leaves(exported.call(*positional, **named)))

    inputs = [_fact(keys[1:], "input", place, value) for place, (keys, value) in enumerate(leaves[held:])]
    outputs = [_fact(keys, "output", place, value) for place, (keys, value) in enumerate(results)]
    return {"call": call, "weights": weights, "inputs": inputs, "outputs": outputs}


def _check_weights(path: str, weights: Optional[Dict[str, Any]], leaves: Sequence[Any]) -> None:
    if weights is None:
        return
    takes = {_label(keys[2:]): list(value.shape) for keys, value in leaves[: len(weights)]}
    gives = {name: list(value.shape) for name, value in weights.items()}
    if takes != gives:
        raise PredictorFault(
            "model_format",
            f"the weights are not those of {path}",
            hint="the .npz must hold the arrays of the function's first argument, by name",
            expected=takes,
            got=gives,
        )


def open_callable(jax: Any, model: Dict[str, Any], options: Dict[str, Any]) -> Dict[str, Any]:
    function = _find_callable(options["callable"])
    inputs = _announced_inputs(options.get("inputs"))
    weights = _read_weights(model.get("weights_path") or model["graph_path"])
    names = [fact["name"] for fact in inputs]

    def call(*values: Any) -> List[Any]:
        return list(jax.tree_util.tree_leaves(function(values[0], *values[1:])))

    # the sizes of the results that follow an open size are those that change with it
    looks = []
    with allow_x64(jax, needs_x64(options, inputs, weights)):
        for size in (2, 3):
            shapes = [[size if given is None else given for given in fact["shape"]] for fact in inputs]
            given = [jax.ShapeDtypeStruct(tuple(shape), fact["element_type"]) for shape, fact in zip(shapes, inputs)]
            try:
                answer = jax.eval_shape(lambda *values: function(values[0], *values[1:]), weights, *given)
            except Exception as error:
                raise PredictorFault(
                    "predictor_failed",
                    f"{options['callable']} failed for inputs {', '.join(names)} of {shapes}: {first_line(error)}",
                    error=str(error),
                ) from error
            looks.append(jax.tree_util.tree_flatten_with_path(answer)[0])
    outputs = [_fact(keys, "output", place, value) for place, (keys, value) in enumerate(looks[0])]
    for fact, (_, other) in zip(outputs, looks[1]):
        fact["shape"] = [size if size == again else None for size, again in zip(fact["shape"], other.shape)]
    return {"call": call, "weights": weights, "inputs": inputs, "outputs": outputs}


def _find_callable(described: Any) -> Any:
    module, _, name = str(described).partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # somebody else's module can fail in any way
        raise PredictorFault(
            "environment_missing",
            f"jax: {described!r} cannot be imported: {type(error).__name__}: {error}",
            hint='callable is "package.module:function"; its package belongs into the manifest\'s requirements',
            callable=str(described),
        ) from error
    return found


def _announced_inputs(given: Any) -> List[Dict[str, Any]]:
    try:
        facts = [
            {
                "name": str(layer["name"]),
                "shape": [None if size is None else int(size) for size in layer["shape"]],
                "element_type": element_type(layer.get("element_type", "float32")),
            }
            for layer in given
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PredictorFault(
            "predictor_failed",
            "jax: a callable does not tell what it takes: option inputs must",
            hint='inputs: [{"name": "x", "shape": [null, 4], "element_type": "float32"}]',
            option="inputs",
            got=repr(given),
        ) from error
    return facts


def _read_weights(path: str) -> Dict[str, Any]:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except Exception as error:  # numpy and zipfile raise what they like for damaged files
        looks = describe_file(path)
        raise PredictorFault(
            "model_format",
            f"{path} holds no weights for jax: it is {looks}",
            hint="save the weights with numpy.savez, without objects",
            path=path,
            expected="an .npz file",
            got=looks,
        ) from error


def _fact(keys: Sequence[Any], kind: str, place: int, value: Any) -> Dict[str, Any]:
    return {
        "name": _label(keys) or f"{kind}{place}",
        "shape": [int(size) if isinstance(size, int) else None for size in value.shape],
        "element_type": str(value.dtype),
    }


def _label(keys: Sequence[Any]) -> str:
    """The dict keys and attributes on the way to a leaf; places in lists and tuples have no names."""
    names = [getattr(key, "key", getattr(key, "name", None)) for key in keys]
    return ".".join(str(name) for name in names if name is not None)


def needs_x64(options: Dict[str, Any], facts: Sequence[Dict[str, Any]], weights: Optional[Dict[str, Any]]) -> bool:
    if "x64" in options:
        return bool(options["x64"] == "on")
    types: Set[str] = {fact["element_type"] for fact in facts}
    types |= {str(value.dtype) for value in (weights or {}).values()}
    return bool(types & {"float64", "int64", "uint64", "complex128"})


@contextlib.contextmanager
def allow_x64(jax: Any, wanted: bool) -> Iterator[None]:
    held = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", wanted)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", held or wanted)


def first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__
