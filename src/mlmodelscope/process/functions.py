"""A manifest's Python functions -> stages of the pipeline, their results checked and their faults made FunctionErrors.

`fun(env, data)` sees one sample at a time. What each function is given and must return is in docs/reference/steps.md.
The part that runs the source is `portable.py`, which knows nothing of the rest. It may do so in another process: how a
function is reached is the caller's to say (`OpenFunctions`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from mlmodelscope.core.errors import FunctionError
from mlmodelscope.core.manifest import ModelManifest, PythonFunction
from mlmodelscope.process.elements import Array
from mlmodelscope.process.portable import FunctionFault, call_function, load_function

__all__ = [
    "LoadFunction",
    "OpenFunctions",
    "arrays_of",
    "function_environment",
    "function_stage",
    "functions_here",
    "plain_value",
]


class LoadFunction(Protocol):
    """Loads the functions of one manifest, which share an `env`: source in, a call with one argument out.

    Both raise FunctionFault. One thread calls the functions of one `env`, one call after the other.
    """

    def __call__(self, stage: str, name: str, source: str) -> Callable[[Any], Any]: ...


OpenFunctions: TypeAlias = "Callable[[dict[str, Any]], LoadFunction]"


def functions_here(env: dict[str, Any]) -> LoadFunction:
    """Functions of this process: `env` and data by reference."""

    def load(stage: str, name: str, source: str) -> Callable[[Any], Any]:
        loaded = load_function(stage, name, source)
        return lambda data: call_function(stage, loaded, env, data)

    return load


def function_stage(function: PythonFunction, load: LoadFunction, stage: str = "preprocess") -> Callable[[Any], Any]:
    """The function as a stage: data in, its result out. FunctionError: the source is wrong, or a call of it failed."""
    try:
        call = load(stage, function.name, function.source)
    except FunctionFault as fault:
        raise _error(fault) from None

    def run(data: Any) -> Any:
        try:
            result = call(data)
        except FunctionFault as fault:
            raise _error(fault) from None
        if result is None:
            raise _wrong(stage, "it returned nothing", "end the function with a return statement")
        return result

    return run


def function_environment(
    model: ModelManifest, labels: Mapping[int, Sequence[str]], scratch: Path | None
) -> dict[str, Any]:
    """The `env` of every function of one model: one dictionary, alive as long as the worker."""
    first = min(labels, default=None)
    return {
        "model": model.name,
        "version": model.version,
        "inputs": [_tensor(value) for value in model.inputs],
        "outputs": [_tensor(value) for value in model.outputs],
        "labels": [] if first is None else list(labels[first]),
        "scratch": None if scratch is None else str(scratch),
    }


def arrays_of(stage: str, value: Any, count: int | None = None) -> list[Array]:
    """What a function returned as tensors: an array, or a list of arrays; `count` of them where it is fixed."""
    arrays = list(value) if isinstance(value, list | tuple) else [value]
    for array in arrays:
        if not isinstance(array, np.ndarray):
            raise _wrong(
                stage,
                f"it returned {_kind(value)} instead of an array",
                "return a NumPy array, or a list of them for several tensors",
            )
    if count is not None and len(arrays) != count:
        raise _wrong(stage, f"it returned {len(arrays)} arrays for {count} tensors", "return one array per tensor")
    return arrays


def plain_value(stage: str, value: Any) -> Any:
    """What a function returned as plain JSON values; NumPy numbers and arrays become numbers and lists."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if math.isfinite(value):
                return value
            raise _wrong(stage, f"its result holds {value}, which JSON cannot say", "replace it, for example by null")
        case np.ndarray() | np.generic():
            return plain_value(stage, value.tolist())
        case Mapping():
            return {str(key): plain_value(stage, item) for key, item in value.items()}
        case list() | tuple():
            return [plain_value(stage, item) for item in value]
        case _:
            raise _wrong(
                stage,
                f"its result holds {_kind(value)}",
                "return numbers, texts, lists and dictionaries",
            )


def _tensor(value: Any) -> dict[str, Any]:
    return {"type": value.type, "layer_name": value.layer_name, "element_type": value.element_type}


def _kind(value: Any) -> str:
    if isinstance(value, list | tuple):
        inner = next((type(item).__name__ for item in value if not isinstance(item, np.ndarray)), "nothing")
        return f"a {type(value).__name__} holding {inner}"
    return f"a value of type {type(value).__name__}"


def _wrong(stage: str, reason: str, hint: str) -> FunctionError:
    return FunctionError(f"the {stage} function failed: {reason}", hint=hint, stage=stage, reason=reason, line=None)


def _error(fault: FunctionFault) -> FunctionError:
    return FunctionError(str(fault), stage=fault.stage, reason=fault.reason, line=fault.line)
