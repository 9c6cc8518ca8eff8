"""Turns rows of features into predictions with XGBoost, from its own formats (.json, .ubj); pickles are refused.

The input is a float32 matrix, a row per sample; a missing feature is NaN. The outputs are `probability` (`prediction`
for a model that is no classifier with probabilities) and `margin` (before the last transformation). Option: `output`
(probability, prediction, margin or leaf) leaves only that one; `leaf` is the index of the leaf in each tree.
"""

import ctypes
import json
import os
from typing import Any, ClassVar, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.modelfile import describe_file
from mlmodelscope.predictors.port import (
    PredictorFault,
    check_element_types,
    check_options,
    check_threads,
    import_framework,
    misfit,
    select_layers,
    unloaded,
)
from mlmodelscope.predictors.xgboostfile import read_model

__all__ = ["Predictor"]

_KINDS = ("probability", "prediction", "margin", "leaf")
# numbers of XGBoosterPredictFromDense: transformed, before it, leaves
_TYPES = {"probability": 0, "prediction": 0, "margin": 1, "leaf": 6}
_WITH_PROBABILITIES = ("binary:logistic", "multi:softprob", "reg:logistic")


class Predictor(object):
    name: ClassVar[str] = "xgboost"
    packages: ClassVar[Tuple[str, ...]] = ("xgboost-cpu", "xgboost")
    environment: ClassVar[Dict[str, str]] = {}
    formats: ClassVar[Tuple[str, ...]] = (".json", ".ubj")

    def __init__(self) -> None:
        self._booster: Any = None
        self._calls: List[Any] = []
        self._features: Any = None

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        options = model.get("options") or {}
        check_options(self.name, options, {"output": _KINDS})
        threads = check_threads(self.name, model.get("threads", 1))
        xgboost = import_framework(self.name, ["xgboost"])
        path = model["graph_path"]
        _check_file(path)
        booster = _open(xgboost, path, threads)
        config = json.loads(booster.save_config())["learner"]
        features = int(booster.num_features())
        outputs = _outputs(config, options.get("output"))
        inputs = [{"name": "features", "shape": [None, features], "element_type": "float32"}]
        select_layers("input", model.get("inputs") or [], ["features"])
        check_element_types(model.get("inputs") or [], inputs)
        picked = select_layers("output", model.get("outputs") or [], [fact["name"] for fact in outputs])
        self._inputs = inputs
        kind = str(config["gradient_booster"]["name"])
        self._bind(xgboost, booster, features, kind, [outputs[index] for index in picked])
        generic = config["generic_param"]
        return {
            "framework": self.name,
            "version": xgboost.__version__,
            "threads": _threads_in_force(int(generic.get("nthread", generic.get("n_jobs", threads)))),
            "provider": kind,
            "device": str(generic.get("device", "cpu")),
            "library": "XGBoost",
            "optimization": "none",
            # thresholds, leaves and sums
            "precision": "float32",
            "inputs": inputs,
            "outputs": [outputs[index] for index in picked],
        }

    def _bind(self, xgboost: Any, booster: Any, features: int, kind: str, outputs: Sequence[Dict[str, Any]]) -> None:
        import numpy as np

        library, handle = xgboost.core._LIB, booster.handle  # noqa: SLF001 - the C interface is the public one
        copies = [kind == "gblinear" or fact["name"] == "leaf" for fact in outputs]
        self._calls = [_Call(np, library, handle, fact, copies[place]) for place, fact in enumerate(outputs)]
        self._dtype, self._contiguous = np.dtype("float32"), np.ascontiguousarray
        self._features, self._booster = features, booster

    def predict(self, inputs: List[Any]) -> List[Any]:
        # inplace_predict looks for pandas and others in each call, which takes a millisecond where they are absent;
        # the C function below it answers the same
        try:
            (value,) = inputs
            if value.dtype != self._dtype or not value.dtype.isnative or value.shape[1] != self._features:
                raise TypeError("features")
            if value.ndim != 2:
                raise TypeError("features")
            value = value if value.flags.c_contiguous else self._contiguous(value)
            return [call(value) for call in self._calls]
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            raise self._fault(inputs, error) from error

    def _fault(self, inputs: Sequence[Any], error: Exception) -> PredictorFault:
        if self._booster is None:
            return unloaded(self.name)
        return misfit(self._inputs, inputs) or PredictorFault(
            "predictor_failed", f"xgboost: {error}", framework=self.name, error=str(error)
        )

    def unload(self) -> None:
        self._calls = []
        self._booster = self._features = None


class _Call(object):
    """One kind of prediction for a contiguous float32 matrix.

    Leaves, and whatever a linear model predicts, are only to be had from XGBoost's own matrix, which copies the rows.
    """

    def __init__(self, np: Any, library: Any, handle: Any, fact: Dict[str, Any], copies: bool) -> None:
        settings = {
            "type": _TYPES[fact["name"]],
            "training": False,
            "iteration_begin": 0,
            "iteration_end": 0,
            "missing": float("nan"),
            "strict_shape": False,
            "cache_id": 0,
        }
        self._settings = json.dumps(settings).encode()
        self._function, self._error, self._handle = library.XGBoosterPredictFromDense, library.XGBGetLastError, handle
        self._error.restype = ctypes.c_char_p
        self._width = None if len(fact["shape"]) == 1 else fact["shape"][1]
        self._empty = np.empty
        self._copies = copies
        if copies:
            self._matrix, self._free = library.XGDMatrixCreateFromDense, library.XGDMatrixFree
            self._from_matrix = library.XGBoosterPredictFromDMatrix
        self._shape = ctypes.POINTER(ctypes.c_uint64)()
        self._dimensions = ctypes.c_uint64()
        self._result = ctypes.POINTER(ctypes.c_float)()
        self._answer = (ctypes.byref(self._shape), ctypes.byref(self._dimensions), ctypes.byref(self._result))

    def __call__(self, value: Any) -> Any:
        rows, columns = value.shape
        described = (
            '{"data":[%d,true],"shape":[%d,%d],"typestr":"<f4","version":3}' % (value.ctypes.data, rows, columns)
        ).encode()
        if self._copies:
            self._predict_copied(described)
        elif self._function(self._handle, described, self._settings, None, *self._answer):
            raise ValueError(self._error().decode("utf-8", "replace"))
        result = self._empty(rows if self._width is None else (rows, self._width), "float32")
        # the memory is the booster's, and its next call writes there
        ctypes.memmove(result.ctypes.data, self._result, result.nbytes)
        return result

    def _predict_copied(self, described: bytes) -> None:
        matrix = ctypes.c_void_p()
        if self._matrix(described, b'{"missing": NaN, "nthread": 1}', ctypes.byref(matrix)):
            raise ValueError(self._error().decode("utf-8", "replace"))
        try:
            if self._from_matrix(self._handle, matrix, self._settings, *self._answer):
                raise ValueError(self._error().decode("utf-8", "replace"))
        finally:
            self._free(matrix)


def _threads_in_force(configured: int) -> int:
    """XGBoost starts no more threads than there are processors (3 asked for, 2 busy on 2), and does not say so."""
    try:
        return min(configured, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on every system
        return configured


def _check_file(path: str) -> None:
    try:
        read_model(path)
    except (OSError, ValueError) as error:
        looks = describe_file(path)
        raise PredictorFault(
            "model_format",
            f"{path} is no XGBoost model: it is {looks}",
            hint="save it with booster.save_model('model.ubj') or '.json'; pickles and old binary files are not read",
            path=path,
            expected="an XGBoost model (.json or .ubj)",
            got=looks,
            error=str(error),
        ) from error


def _open(xgboost: Any, path: str, threads: int) -> Any:
    try:
        booster = xgboost.Booster({"nthread": threads})
        booster.load_model(path)
        booster.set_param({"nthread": threads, "device": "cpu"})
        return booster
    except (xgboost.core.XGBoostError, TypeError, ValueError, OSError) as error:
        text = str(error).strip().splitlines()
        raise PredictorFault(
            "model_format",
            f"xgboost cannot load {os.path.basename(path)}: {_reason(text)}",
            hint="the file is cut short, damaged or of a newer version",
            path=path,
            error=str(error),
        ) from error


def _reason(lines: Sequence[str]) -> str:
    """What failed, without the time and place in XGBoost's sources."""
    return lines[0].rpartition("]")[2].rpartition(": Check failed: ")[2].strip() if lines else "unknown"


def _trees(config: Dict[str, Any]) -> int:
    """None in a linear model. A round has several trees where there are classes, targets or parallel trees."""
    booster = config["gradient_booster"]
    kept = booster.get("gbtree", booster)  # dart keeps its trees one level deeper
    return int(kept.get("gbtree_model_param", {}).get("num_trees", 0))


def _outputs(config: Dict[str, Any], only: Optional[str]) -> List[Dict[str, Any]]:
    objective = str(config["objective"]["name"])
    value = "probability" if objective in _WITH_PROBABILITIES else "prediction"
    parameters = config["learner_model_param"]
    width = max(1, int(parameters.get("num_class", 0)), int(parameters.get("num_target", 1)))
    shape: List[Optional[int]] = [None] if width == 1 else [None, width]
    trees = _trees(config)
    known: List[Dict[str, Any]] = [
        # softmax alone answers with the likeliest class
        {"name": value, "shape": [None] if objective == "multi:softmax" else shape, "element_type": "float32"},
        {"name": "margin", "shape": shape, "element_type": "float32"},
    ]
    if only is None:
        return known
    if trees:
        known.append({"name": "leaf", "shape": [None, trees], "element_type": "float32"})
    found = [fact for fact in known if fact["name"] == only]
    if not found:
        raise PredictorFault(
            "predictor_failed",
            f"xgboost: a model with objective {objective} has no output {only!r}",
            hint="output is one of: " + ", ".join(fact["name"] for fact in known),
            option="output",
            expected=[fact["name"] for fact in known],
            got=only,
        )
    return found
