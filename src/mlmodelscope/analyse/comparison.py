"""Turns two records into what differs, whether they may be compared, and what the difference costs; pure.

The contract (docs/concepts/comparability.md): facts are grouped, differences inside a group count once, an unknown fact
counts as different. No group differs: a repetition. One: a fair comparison named after it. More: not comparable, and
that is said before any number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mlmodelscope.analyse.accuracy import is_right
from mlmodelscope.analyse.statistics import PairedDifference, paired_difference, ratio_over_launches
from mlmodelscope.core.answer import Classes, Prediction
from mlmodelscope.core.errors import StatisticError
from mlmodelscope.core.estimate import Estimate
from mlmodelscope.core.factors import Difference, FactorGroup
from mlmodelscope.core.record import Record
from mlmodelscope.core.request import Offline
from mlmodelscope.core.value import digest_of

__all__ = ["SIGNIFICANCE", "Comparison", "Evidence", "Flip", "compare", "differences", "factors"]

Kind = Literal["repetition", "fair", "unfair"]

SIGNIFICANCE = 0.05

_LISTED = ("package ", "variable ")
_PIPELINE_PACKAGES = ("pillow", "opencv-python-headless", "opencv-python", "numpy")
_CONVERSION = ("converter", "file", "input layers", "output layers")
# each framework has words of its own for these
_DIALECT = ("optimization", "provider")


@dataclass(frozen=True, slots=True)
class Evidence:
    """A record with the raw data behind it: latencies per launch and predictions by sample."""

    record: Record
    latencies_ns: Sequence[Sequence[float]]
    predictions: Sequence[Prediction]


@dataclass(frozen=True, slots=True)
class Flip:
    """A sample whose first answer differs: both answers with their scores, and the largest difference of a score."""

    sample: str
    left: str
    left_score: float | None
    right: str
    right_score: float | None
    largest: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """`right` against `left`. Ratios are right/left of launch medians; differences of accuracy are right - left.

    `is_side_by_side`: the launches of the two were interleaved, so that both saw the same drift of the machine.
    `largest_difference` is that of any class's score on any sample, where both sides answer with scores.
    """

    left: str
    right: str
    kind: Kind
    groups: tuple[FactorGroup, ...]
    differences: tuple[Difference, ...]
    latency_ratio: Estimate | None
    latency_note: str | None
    is_side_by_side: bool
    top1: PairedDifference | None
    flipped: int | None
    common_samples: int
    flips: tuple[Flip, ...] = ()
    largest_difference: float | None = None


def factors(record: Record) -> dict[FactorGroup, dict[str, Any]]:
    """Every fact that decides a result, by group. Ids, times, paths and noise are in none."""
    return {
        FactorGroup.DATA: _data(record),
        FactorGroup.PIPELINE: _pipeline(record),
        FactorGroup.MODEL: {"weights_digest": _weights(record)},
        FactorGroup.FRAMEWORK: _framework(record),
        FactorGroup.PRECISION: {"precision": record.execution.precision if record.execution else None},
        FactorGroup.EXECUTION: _execution(record),
        FactorGroup.SYSTEM: _system(record),
        FactorGroup.SCENARIO: _scenario(record),
    }


def differences(left: Record, right: Record) -> list[Difference]:
    """All facts that differ, in the order of the groups. None on either side counts as different, even on both.

    How the file was made counts only for one original: other weights make another file, and the model says so already.
    What a framework calls its providers and its levels of optimization counts only within one framework.
    """
    found: list[Difference] = []
    left_factors, right_factors = factors(left), factors(right)
    originals = {_weights(record) for record in (left, right)}
    ignored: tuple[str, ...] = _CONVERSION if len(originals) > 1 and None not in originals else ()
    names = {record.software.framework if record.software else None for record in (left, right)}
    ignored += _DIALECT if len(names) > 1 and None not in names else ()
    for group in FactorGroup:
        ours, theirs = left_factors[group], right_factors[group]
        for fact in sorted((ours.keys() | theirs.keys()).difference(ignored)):
            a, b = _known(ours, fact), _known(theirs, fact)
            if a is None or b is None or a != b:
                found.append(Difference(group, fact, a, b))
    return found


def _known(facts: Mapping[str, Any], fact: str) -> Any:
    """Its value; a package or variable that is not in a list of them is not unknown, it is not there."""
    listed = next((kind for kind in _LISTED if fact.startswith(kind)), None)
    if listed is not None and any(name.startswith(listed) for name in facts):
        return facts.get(fact, "absent")
    return facts.get(fact)


def compare(left: Evidence, right: Evidence) -> Comparison:
    found = differences(left.record, right.record)
    groups = tuple(group for group in FactorGroup if any(item.group is group for item in found))
    kind: Kind = "repetition" if not groups else "fair" if len(groups) == 1 else "unfair"
    ratio, note = _latency(left, right)
    pairs = _paired(left, right)
    flags = [(is_right(a, 1), is_right(b, 1)) for a, b in pairs]
    judged = [(a, b) for a, b in flags if a is not None and b is not None]
    flips = tuple(_flip(a, b) for a, b in pairs if _top(a) != _top(b))
    apart = [value for a, b in pairs if (value := _apart(a, b)) is not None]
    return Comparison(
        left=left.record.id,
        right=right.record.id,
        kind=kind,
        groups=groups,
        differences=tuple(found),
        latency_ratio=ratio,
        latency_note=note,
        is_side_by_side=_is_side_by_side(left.record, right.record),
        top1=paired_difference([a for a, _ in judged], [b for _, b in judged]) if judged else None,
        flipped=len(flips) if pairs else None,
        common_samples=len(pairs),
        flips=flips,
        largest_difference=max(apart, default=None),
    )


def _flip(left: Prediction, right: Prediction) -> Flip:
    return Flip(left.sample, *_first(left), *_first(right), largest=_apart(left, right))


def _first(prediction: Prediction) -> tuple[str, float | None]:
    answer = prediction.answer
    if not isinstance(answer, Classes):
        return answer.type, None
    if not answer.classes:
        return "nothing", None
    best = answer.classes[0]
    return best.label or str(best.index), best.score


def _apart(left: Prediction, right: Prediction) -> float | None:
    """The largest difference of a class's score, over the classes that both sides tell."""
    if not isinstance(left.answer, Classes) or not isinstance(right.answer, Classes):
        return None
    scores = {item.index: item.score for item in left.answer.classes}
    both = [abs(scores[item.index] - item.score) for item in right.answer.classes if item.index in scores]
    return max(both, default=None)


def _is_side_by_side(left: Record, right: Record) -> bool:
    starts = [sorted(launch.started_at for launch in record.launches) for record in (left, right)]
    if not all(starts):
        return False
    return starts[0][0] <= starts[1][-1] and starts[1][0] <= starts[0][-1]


def _latency(left: Evidence, right: Evidence) -> tuple[Estimate | None, str | None]:
    if not left.latencies_ns or not right.latencies_ns:
        return None, "one of the two has no latencies"
    clocks = {e.record.performance.clock for e in (left, right) if e.record.performance}
    if len(clocks) > 1:
        return None, "simulated time is never compared with measured time"
    if left.record.scenario.timed != right.record.scenario.timed:
        return None, "the timed regions differ"
    try:
        return ratio_over_launches(left.latencies_ns, right.latencies_ns), None
    except StatisticError as error:
        return None, error.message


def _paired(left: Evidence, right: Evidence) -> list[tuple[Prediction, Prediction]]:
    """The samples that both ran. An id names a sample inside its data set: those of another set are other samples."""
    names = {e.record.dataset.name.lower() if e.record.dataset else None for e in (left, right)}
    if len(names) > 1:
        return []
    by_sample = {prediction.sample: prediction for prediction in left.predictions}
    return [(by_sample[p.sample], p) for p in right.predictions if p.sample in by_sample]


def _top(prediction: Prediction) -> Any:
    answer = prediction.answer
    if isinstance(answer, Classes):
        return answer.classes[0].index if answer.classes else None
    return digest_of(answer)


def _data(record: Record) -> dict[str, Any]:
    dataset = record.dataset
    if dataset is None:
        return {"dataset": None}
    # the performance set follows from the sample ids and the scenario, so it would only count these a second time
    return {
        "dataset": dataset.manifest.digest if dataset.manifest else dataset.name,
        "split": dataset.split,
        "files": digest_of(sorted(asset.sha256 for asset in dataset.assets)),
        "samples": dataset.sample_count if dataset.sample_ids_digest else None,
        "sample_ids": dataset.sample_ids_digest or None,
    }


def _weights(record: Record) -> str | None:
    """Unknown if the files were never fetched; a model that ran without any is known to have none."""
    return record.model.weights_digest or ("none" if record.status == "succeeded" else None)


def _pipeline(record: Record) -> dict[str, Any]:
    facts = _steps(record)
    facts["labels"] = digest_of(sorted(a.sha256 for a in record.model.assets if a.role == "labels"))
    software = record.software
    packages: Mapping[str, str] = (software.pipeline_packages or software.packages) if software else {}
    libraries: Mapping[str, str] = record.software.libraries if record.software else {}
    for name in _PIPELINE_PACKAGES:
        if name in packages:
            facts[name] = packages[name]
    facts.update({f"library {name}": version for name, version in libraries.items()})
    if record.software is None:
        facts["packages"] = None
    return facts


def _steps(record: Record) -> dict[str, Any]:
    """Each step by its place, and each of its parameters: a difference names the parameter, not a digest."""
    facts: dict[str, Any] = {}
    for place, step in enumerate(record.model.steps, 1):
        facts[f"step {place}"] = step.name
        named = {name: "none" if value is None else value for name, value in step.parameters.items()}
        # a function, or a step that names its own labels, is known by its digest alone
        shown = named or {"digest": step.digest}
        facts |= {f"step {place} {step.name} {name}": value for name, value in shown.items()}
    return facts


def _framework(record: Record) -> dict[str, Any]:
    software = record.software
    if software is None:
        return {"framework": None}
    files = [asset for asset in record.model.assets if asset.role in ("graph", "weights")]
    environment, used = software.environment, record.execution
    # in an interpreter of its own, the framework's numpy is no part of the pipeline
    elsewhere = ("mlmodelscope",) if software.pipeline_packages else (*_PIPELINE_PACKAGES, "mlmodelscope")
    return {
        "framework": software.framework,
        "version": software.framework_version,
        "python": f"{software.implementation} {software.python}",
        # a converted file names its layers in its own way, so other names alone are no other pipeline
        "input layers": [layer["name"] for layer in used.inputs] if used else None,
        "output layers": [layer["name"] for layer in used.outputs] if used else None,
        "library": used.library if used else None,
        "environment": environment.kind,
        "sandboxed": environment.is_sandboxed,
        "environment_digest": environment.digest or ("none" if environment.kind == "local" else None),
        **{f"package {name}": v for name, v in software.packages.items() if name not in elsewhere},
        "converter": "+".join(asset.converter_digest or "none" for asset in files),
        "file": "+".join(asset.converted_sha256 or asset.sha256 for asset in files),
        **{f"variable {name}": v for name, v in software.variables.items() if not _sets_threads(name)},
    }


def _sets_threads(variable: str) -> bool:
    """The worker sets these (OMP_NUM_THREADS, ...) to the number of threads that was asked for."""
    return "THREAD" in variable


def _execution(record: Record) -> dict[str, Any]:
    execution = record.execution
    if execution is None:
        return {"threads": None}
    variables: Mapping[str, str] = record.software.variables if record.software else {}
    return {
        "threads": execution.threads,
        "batch_size": execution.batch_size,
        "provider": execution.provider,
        "optimization": execution.optimization,
        "device": execution.device,
        "options": record.request.options,
        **({"workers": record.scenario.workers} if isinstance(record.scenario, Offline) else {}),
        **{f"variable {name}": value for name, value in variables.items() if _sets_threads(name)},
    }


def _system(record: Record) -> dict[str, Any]:
    system = record.system
    if system is None:
        return {"system": None}
    # a fact that this kind of machine does not offer (a governor in a virtual machine) is known to be absent; which of
    # several equal machines it was is an id
    facts = system.model_dump(mode="json", exclude={"hostname_digest"})
    return {name: "absent" if value is None else value for name, value in facts.items()}


def _scenario(record: Record) -> dict[str, Any]:
    facts = record.scenario.model_dump(mode="json")
    for name in ("batch_size", "workers"):
        facts.pop(name, None)
    facts["scenario"] = facts.pop("type")
    facts["seed"] = record.seed
    facts["measure"] = record.request.measure
    facts["mlmodelscope"] = record.software.mlmodelscope if record.software else None
    return facts
