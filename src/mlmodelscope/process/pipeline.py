"""A model manifest -> its whole pipeline: from a sample to the input tensors, from the output tensors to answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlmodelscope.core.answer import Answer, Classes, ClassScore, Custom
from mlmodelscope.core.errors import FunctionError
from mlmodelscope.core.manifest import ModelManifest, PythonFunction
from mlmodelscope.process.detection import Detections
from mlmodelscope.process.elements import Array, cast_array
from mlmodelscope.process.functions import (
    LoadFunction,
    OpenFunctions,
    arrays_of,
    function_environment,
    function_stage,
    functions_here,
    plain_value,
)
from mlmodelscope.process.input import InputPipeline, input_pipeline, stack
from mlmodelscope.process.output import Labels, OutputPipeline, labels_by_output, output_pipeline, with_batch

__all__ = ["Pipeline", "compile_pipeline"]

Stage = Callable[[Any], Any]


class Pipeline:
    """Everything around the framework for one model. One per worker; not thread-safe.

    A sample goes through `decode` and `transform`, samples together through `batch`; the framework's outputs through
    `finish` inside the timed region and, after it, `answers`. What passes from `decode` to `transform` and from
    `finish` to `answers` is for them alone. Every input gets the same sample.
    """

    def __init__(self, before: _Before, after: OutputPipeline) -> None:
        self._before = before
        self._after = after
        self.decode = before.decode
        self.transform = before.transform
        self.finish = after.finish
        self.answers = after.answers

    def batch(self, samples: Sequence[Sequence[Array]]) -> list[Array]:
        """One array per input, with a leading batch dimension."""
        return [stack(column) for column in zip(*samples, strict=True)]

    def prepare(self, data: Any) -> list[Array]:
        """The input tensors of a batch of one sample."""
        return self.batch([self.transform(self.decode(data))])


def compile_pipeline(
    model: ModelManifest,
    labels: Labels = (),
    *,
    scratch: Path | None = None,
    open_functions: OpenFunctions = functions_here,
) -> Pipeline:
    """Resolve steps and functions once. StepError and FunctionError: they can work on no sample.

    `labels` by output index, or a list for the output that is ranked; `scratch` is the folder that functions may use;
    `open_functions` says where they run.
    """
    by_output = labels_by_output(model, labels)
    env = function_environment(model, by_output, scratch)
    load = open_functions(env)
    ranked = next((i for i, output in enumerate(model.outputs) if output.type == "probability"), None)
    names = None if ranked is None else list(by_output.get(ranked, env["labels"]))
    return Pipeline(_Before(model, load), _after(model, by_output, load, names))


class _Before:
    """A sample -> one array per input."""

    def __init__(self, model: ModelManifest, load: LoadFunction) -> None:
        self._types = [np.dtype(value.element_type) for value in model.inputs]
        self._first = _function(model.before_preprocess, load, "before_preprocess")
        self._whole = _function(model.preprocess, load, "preprocess")
        self._last = _function(model.after_preprocess, load, "after_preprocess")
        self._inputs: list[InputPipeline] = []
        if self._whole is None:
            self._inputs = [input_pipeline(value) for value in model.inputs]

    def decode(self, data: Any) -> Any:
        if self._first is not None:
            data = self._first(data)
        if self._whole is not None:
            return data
        return [pipeline.decode(data) for pipeline in self._inputs]

    def transform(self, decoded: Any) -> list[Array]:
        if self._whole is None:
            arrays = [pipeline.transform(value) for pipeline, value in zip(self._inputs, decoded, strict=True)]
        else:
            arrays = self._typed("preprocess", self._whole(decoded))
        if self._last is not None:
            arrays = self._typed("after_preprocess", self._last(_one_or_all(arrays)))
        return arrays

    def _typed(self, stage: str, value: Any) -> list[Array]:
        arrays = arrays_of(stage, value, len(self._types))
        return [
            np.ascontiguousarray(cast_array(array, dtype)) for array, dtype in zip(arrays, self._types, strict=True)
        ]


class _Functions:
    """Output functions, one sample at a time, around or instead of the steps. Rows: values of any kind.

    `ranked` are the labels of the output that is ranked; None: there is none.
    """

    def __init__(
        self,
        model: ModelManifest,
        labels: Mapping[int, Sequence[str]],
        load: LoadFunction,
        ranked: list[str] | None,
    ) -> None:
        self._first = _function(model.before_postprocess, load, "before_postprocess")
        self._whole = _function(model.postprocess, load, "postprocess")
        self._last = _function(model.after_postprocess, load, "after_postprocess")
        self._steps = None if self._whole else output_pipeline(model, labels)
        self._final_stage = "after_postprocess" if self._last else "postprocess"
        self._is_ranked = ranked is not None
        self._labels = ranked or []

    def finish(self, outputs: Sequence[Array], count: int) -> list[Any]:
        # the dots keep one number per sample an array
        return [self._row([with_batch(output, count)[row, ...] for output in outputs]) for row in range(count)]

    def answers(self, rows: Sequence[Any], samples: Sequence[Any] = ()) -> list[Answer]:
        if self._steps is not None and self._last is None:
            return self._steps.answers(rows, samples)
        return [self._answer(plain_value(self._final_stage, row)) for row in rows]

    def _row(self, arrays: list[Array]) -> Any:
        if self._first is not None:
            arrays = arrays_of("before_postprocess", self._first(_one_or_all(arrays)))
        if self._steps is None:
            assert self._whole is not None
            value = self._whole(_one_or_all(arrays))
        else:
            value = self._steps.finish([array[None] for array in arrays], 1)[0]
            if self._last is not None:
                value = _readable(self._steps, value)
        return value if self._last is None else self._last(value)

    def _answer(self, value: Any) -> Answer:
        if self._is_ranked and isinstance(value, list) and value:
            scores = [_class_score(item, self._labels, self._final_stage) for item in value]
            if all(score is not None for score in scores):
                known = [score for score in scores if score is not None]
                return Classes(classes=tuple(sorted(known, key=lambda score: -score.score)))
        return Custom(value=value)


def _after(
    model: ModelManifest, labels: Mapping[int, Sequence[str]], load: LoadFunction, ranked: list[str] | None
) -> OutputPipeline:
    if model.before_postprocess or model.postprocess or model.after_postprocess:
        return _Functions(model, labels, load, ranked)
    return output_pipeline(model, labels)


def _function(function: PythonFunction | None, load: LoadFunction, stage: str) -> Stage | None:
    return None if function is None else function_stage(function, load, stage)


def _one_or_all(arrays: list[Array]) -> Any:
    return arrays[0] if len(arrays) == 1 else arrays


def _readable(steps: OutputPipeline, row: Any) -> Any:
    """What the steps made, as an after_postprocess function is given it: classes and boxes as dictionaries, tensors as
    arrays.
    """
    if isinstance(steps, Detections):
        return steps.readable(row)
    answer = steps.answers([row])[0]
    if isinstance(answer, Classes):
        return [score.model_dump() for score in answer.classes]
    return _one_or_all(list(row))


def _class_score(item: Any, labels: Sequence[str], stage: str) -> ClassScore | None:
    """`[index, score]` or `{index and/or label, score}` as a class; None where the item is something else."""
    match item:
        case [int() as index, float() | int() as score]:
            return ClassScore(index=index, label=_label(labels, index), score=score)
        case {"index": int() as index, "score": float() | int() as score, **rest} if not rest.keys() - {"label"}:
            label = rest.get("label", _label(labels, index))
            return ClassScore(index=index, label=None if label is None else str(label), score=score)
        case {"label": str() as label, "score": float() | int() as score, **rest} if not rest:
            if label not in labels:
                raise FunctionError(
                    f"the {stage} function failed: {label!r} is not one of the {len(labels)} labels",
                    hint="return the class index as well",
                    stage=stage,
                    reason=f"unknown label {label!r}",
                    line=None,
                )
            return ClassScore(index=labels.index(label), label=label, score=score)
        case _:
            return None


def _label(labels: Sequence[str], index: int) -> str | None:
    return labels[index] if 0 <= index < len(labels) else None
