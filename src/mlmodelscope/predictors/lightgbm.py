"""Turns rows of features into predictions with LightGBM, from its text format; pickles are refused.

The input is a float32 matrix, a row per sample; a missing feature is NaN. The outputs are `probability` (`prediction`
for a model that is no classifier) and `margin` (the raw score), both float64. Option: `output` (probability,
prediction, margin or leaf) leaves only that one; `leaf` is the index of the leaf in each tree.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

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

__all__ = ["Predictor"]

_KINDS = ("probability", "prediction", "margin", "leaf")
_CLASSIFIERS = ("binary", "multiclass", "multiclassova", "cross_entropy")
_TEXTS = ("", "num_cat", "is_linear")
_LISTS = ("left_child", "right_child", "split_feature", "threshold")


class Predictor(object):
    name: ClassVar[str] = "lightgbm"
    packages: ClassVar[Tuple[str, ...]] = ("lightgbm",)
    environment: ClassVar[Dict[str, str]] = {}
    formats: ClassVar[Tuple[str, ...]] = (".txt", ".lgb")

    def __init__(self) -> None:
        self._booster: Any = None
        self._settings: List[Dict[str, Any]] = []
        self._features: Any = None

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        options = model.get("options") or {}
        check_options(self.name, options, {"output": _KINDS})
        threads = check_threads(self.name, model.get("threads", 1))
        lightgbm = import_framework(self.name, ["lightgbm"])
        path = model["graph_path"]
        header = _checked_header(path)
        booster = _open(lightgbm, path)
        self._inputs = [{"name": "features", "shape": [None, int(booster.num_feature())], "element_type": "float32"}]
        outputs = _outputs(header, booster, options.get("output"))
        select_layers("input", model.get("inputs") or [], ["features"])
        check_element_types(model.get("inputs") or [], self._inputs)
        picked = select_layers("output", model.get("outputs") or [], [fact["name"] for fact in outputs])
        self._bind(booster, [outputs[index]["name"] for index in picked], threads)
        return {
            "framework": self.name,
            "version": lightgbm.__version__,
            # what every call passes on: the library has no call that tells its number
            "threads": threads,
            "provider": str(booster.params.get("boosting", "gbdt")),
            "device": "cpu",
            "library": "LightGBM",
            "optimization": "none",
            # thresholds, leaves and sums
            "precision": "float64",
            "inputs": self._inputs,
            "outputs": [outputs[index] for index in picked],
        }

    def _bind(self, booster: Any, outputs: Sequence[str], threads: int) -> None:
        import numpy as np

        named = {"margin": {"raw_score": True}, "leaf": {"pred_leaf": True}}
        self._settings = [dict(named.get(name, {}), num_threads=threads) for name in outputs]
        self._dtype, self._features = np.dtype("float32"), int(booster.num_feature())
        self._booster, self._predict, self._array = booster, booster.predict, np.array

    def predict(self, inputs: List[Any]) -> List[Any]:
        try:
            (value,) = inputs
            # LightGBM takes big-endian numbers for little-endian ones without a word
            if value.dtype != self._dtype or not value.dtype.isnative or value.shape[1] != self._features:
                raise TypeError("features")
            if value.ndim != 2:
                raise TypeError("features")
            return [self._predict(value, **settings) for settings in self._settings]
        except Exception as error:  # LightGBM's error is a class of its own
            raise self._fault(inputs, error) from error

    def _fault(self, inputs: Sequence[Any], error: Exception) -> PredictorFault:
        if self._booster is None:
            return unloaded(self.name)
        return misfit(self._inputs, inputs) or PredictorFault(
            "predictor_failed", f"lightgbm: {error}", framework=self.name, error=str(error)
        )

    def unload(self) -> None:
        self._booster = self._predict = self._features = None
        self._settings = []


def _checked_header(path: str) -> Dict[str, str]:
    """What the file says before its trees. The parser ends the process over some damage, so all trees are looked at."""
    looks = describe_file(path)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if not text.startswith("tree\n"):
            raise ValueError("it does not begin with the word tree")
        body, end, _ = text.partition("\nend of trees")
        if not end:
            raise ValueError("it is cut short")
        header, *trees = body.split("\nTree=")
        facts = dict(line.partition("=")[::2] for line in header.splitlines())
        if len(trees) != len(facts["tree_sizes"].split()):
            raise ValueError("it does not hold as many trees as it says")
        for tree in trees:
            _check_tree(dict(line.partition("=")[::2] for line in tree.splitlines()), int(facts["max_feature_idx"]))
        return facts
    except (OSError, KeyError, ValueError) as error:
        raise PredictorFault(
            "model_format",
            f"{path} is no LightGBM model: it is {looks}, and {error}",
            hint="save it with booster.save_model('model.txt'); pickles are not read",
            path=path,
            expected="a LightGBM model (text)",
            got=looks,
            error=str(error),
        ) from error


def _check_tree(tree: Dict[str, str], last_feature: int) -> None:
    for name, values in tree.items():
        if name not in _TEXTS:
            # one that is no number ends the process
            [float(value) for value in values.split()]
    leaves = int(tree["num_leaves"])
    if len(tree["leaf_value"].split()) != leaves or leaves < 1:
        raise ValueError("a tree does not hold as many leaves as it says")
    if leaves == 1:
        return
    lists = [tree[name].split() for name in _LISTS]
    if {len(values) for values in lists} != {leaves - 1}:
        raise ValueError("a tree does not hold as many nodes as it says")
    # a leaf is written as -1 - its index
    for place, children in enumerate(zip(lists[0], lists[1])):
        for child in children:
            # children come behind their parents: a walk always ends
            if not (-leaves <= int(child) < 0 or place < int(child) < leaves - 1):
                raise ValueError("a node leads nowhere")
    if any(not 0 <= int(feature) <= last_feature for feature in lists[2]):
        raise ValueError("a node asks for a feature that the model does not have")


def _open(lightgbm: Any, path: str) -> Any:
    try:
        return lightgbm.Booster(model_file=path)
    except (lightgbm.basic.LightGBMError, TypeError, ValueError) as error:
        raise PredictorFault(
            "model_format",
            f"lightgbm cannot load {os.path.basename(path)}: {error}",
            hint="the file is cut short, damaged or of a newer version",
            path=path,
            error=str(error),
        ) from error


def _outputs(header: Dict[str, str], booster: Any, only: Optional[str]) -> List[Dict[str, Any]]:
    objective = header.get("objective", "").split(" ")[0]
    value = "probability" if objective in _CLASSIFIERS else "prediction"
    width = int(header["num_tree_per_iteration"])
    shape: List[Optional[int]] = [None] if width == 1 else [None, width]
    known: List[Dict[str, Any]] = [
        {"name": name, "shape": shape, "element_type": "float64"} for name in (value, "margin")
    ]
    if only is None:
        return known
    leaf = {"name": "leaf", "shape": [None, int(booster.num_trees())], "element_type": "int32"}
    found = [fact for fact in known + [leaf] if fact["name"] == only]
    if not found:
        raise PredictorFault(
            "predictor_failed",
            f"lightgbm: a model with objective {objective or 'unknown'} has no output {only!r}",
            hint=f"output is one of: {value}, margin, leaf",
            option="output",
            expected=[value, "margin", "leaf"],
            got=only,
        )
    return found
