"""Turns a request, the manifests it names and the facts of this machine into plans with everything pinned; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mlmodelscope.core.errors import UnknownNameError, UnsatisfiableError, UsageError
from mlmodelscope.core.manifest import DatasetManifest, ModelManifest
from mlmodelscope.core.request import (
    Environment,
    EvaluationPlan,
    EvaluationRequest,
    Limits,
    Offline,
    PinnedManifest,
    ResolvedFramework,
    Scenario,
)
from mlmodelscope.core.span import TraceLevel
from mlmodelscope.core.system import SystemFacts
from mlmodelscope.core.versions import both, parse_constraint
from mlmodelscope.resolve.system import parse_requirements

__all__ = ["Facts", "InstalledFramework", "find_framework", "make_plan"]


@dataclass(frozen=True, slots=True)
class InstalledFramework:
    """A predictor that is registered here, and the version of its framework that is installed, if any."""

    name: str
    entry_point: str
    distribution: str | None
    version: str | None
    install_hint: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What this machine is and has. `frameworks` by registered name; `canonical` knows the other ways to write one
    (`Onnxruntime`, `TFLite`) and answers None for a name that nobody registered."""

    system: SystemFacts
    frameworks: Mapping[str, InstalledFramework]
    canonical: Callable[[str], str | None]
    usable_cpus: int


def make_plan(
    request: EvaluationRequest,
    model: ModelManifest,
    model_manifest: PinnedManifest,
    dataset: DatasetManifest | None,
    dataset_manifest: PinnedManifest | None,
    facts: Facts,
    *,
    is_dataset_own: bool = True,
    is_model_builtin: bool = False,
) -> EvaluationPlan:
    """The plan for one model here. Raises UnsatisfiableError with every reason why this machine will not do.

    `is_dataset_own`: the data set is the user's or the zoo's even where the request says that the model is not.
    `is_model_builtin`: the model's manifest is one of the zoo, so that the files it names are ours.
    """
    _refuse_what_is_missing(request)
    framework = _choose_framework(request.framework, model, facts)
    unmet = parse_requirements(request.system).unmet(facts.system) if request.system else []
    if unmet:
        raise UnsatisfiableError(
            "this machine does not meet the system requirements: " + "; ".join(unmet), unmet=list(unmet)
        )
    if dataset is None and not request.inputs:
        raise UsageError("there is nothing to run the model on", hint="give --dataset NAME or --inputs FILE...")
    if model.source is None and framework.name != "null":
        raise UsageError(f"the manifest of {model.name} names no source", hint="add `source: {graph_path: ...}`")
    request = request if request.is_trusted else _with_limits(request, facts.system)
    return EvaluationPlan(
        request=request,
        model=model,
        model_manifest=model_manifest,
        dataset=dataset,
        dataset_manifest=dataset_manifest,
        framework=framework,
        environment=Environment(is_sandboxed=not request.is_trusted),
        scenario=_pinned(request.scenario, facts),
        threads=request.threads or facts.usable_cpus,
        is_trusted=request.is_trusted,
        is_dataset_trusted=request.is_trusted or is_dataset_own,
        is_model_builtin=is_model_builtin,
    )


def _with_limits(request: EvaluationRequest, system: SystemFacts) -> EvaluationRequest:
    """Untrusted code has every limit; the default one of memory is half of what there is."""
    given, default = request.limits, Limits()
    memory = min(system.memory_bytes, system.memory_limit_bytes or system.memory_bytes) // 2
    limits = Limits(
        sample_seconds=given.sample_seconds or default.sample_seconds,
        run_seconds=given.run_seconds or default.run_seconds,
        memory_bytes=given.memory_bytes or memory,
    )
    return request.model_copy(update={"limits": limits})


def _pinned(scenario: Scenario, facts: Facts) -> Scenario:
    if isinstance(scenario, Offline) and scenario.workers is None:
        return scenario.model_copy(update={"workers": facts.usable_cpus})
    return scenario


def _refuse_what_is_missing(request: EvaluationRequest) -> None:
    """What a request can say but nothing here can do yet is refused, never ignored."""
    if request.trace_level > TraceLevel.FRAMEWORK:
        raise UsageError(
            f"spans of level {request.trace_level.name.lower()} are not recorded in this version",
            hint="the deepest level is framework: a span per layer",
        )


def _choose_framework(asked: str | None, model: ModelManifest, facts: Facts) -> ResolvedFramework:
    """The framework that the manifest needs and the request allows, at the version installed here.

    A request may name another framework than the manifest's: then only the request's constraint counts, because the
    manifest's is about its own framework.
    """
    own = model.framework
    name, _, text = asked.partition("@") if asked else (own.name, "", "")
    found = _find(name, facts)
    constraint = parse_constraint(text or "*")
    if constraint.is_empty:
        raise UnsatisfiableError(f"no version of {found.name} can satisfy {text!r}", framework=found.name)
    if facts.canonical(own.name) == found.name:
        constraint = both(parse_constraint(own.version), constraint)
    if constraint.is_empty:
        raise UnsatisfiableError(
            f"no version of {found.name} can satisfy both the manifest ({own.version}) and the request ({text})",
            framework=found.name,
        )
    if found.version is None:
        raise UnsatisfiableError(f"{found.name} is not installed here", hint=found.install_hint, framework=found.name)
    if not constraint.matches(found.version):
        raise UnsatisfiableError(
            f"{found.name} {found.version} is installed, but {constraint} is needed",
            hint=f"pip install '{found.distribution}' at a version that fits",
            installed=found.version,
            needed=str(constraint),
        )
    return ResolvedFramework(
        name=found.name,
        version=found.version,
        distribution=found.distribution or found.name,
        entry_point=found.entry_point,
    )


def find_framework(text: str, facts: Facts) -> InstalledFramework:
    """The framework of `name@constraint`, installed or not; the constraint is read, but not held against it."""
    name, _, constraint = text.partition("@")
    parse_constraint(constraint or "*")
    return _find(name, facts)


def _find(name: str, facts: Facts) -> InstalledFramework:
    canonical = facts.canonical(name)
    if canonical is None:
        raise UnknownNameError("framework", name, facts.frameworks)
    return facts.frameworks[canonical]
