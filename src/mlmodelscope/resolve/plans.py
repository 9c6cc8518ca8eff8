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
from mlmodelscope.core.versions import VersionConstraint, both, parse_constraint
from mlmodelscope.resolve.stacks import need_of
from mlmodelscope.resolve.system import parse_requirements

__all__ = ["Facts", "InstalledFramework", "find_framework", "local_version", "make_plan"]


@dataclass(frozen=True, slots=True)
class InstalledFramework:
    """A predictor that is registered here, and the version of its framework that is installed, if any.

    `takes_address`: it drives a program elsewhere, so that `name@ADDRESS` names that program and no version.
    """

    name: str
    entry_point: str
    distribution: str | None
    version: str | None
    install_hint: str
    takes_address: bool = False


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
    framework, environment, address = _choose_framework(request, model, facts)
    unmet = parse_requirements(request.system).unmet(facts.system) if request.system else []
    if unmet:
        raise UnsatisfiableError(
            "this machine does not meet the system requirements: " + "; ".join(unmet), unmet=list(unmet)
        )
    if dataset is None and not request.inputs:
        raise UsageError("there is nothing to run the model on", hint="give --dataset NAME or --inputs FILE...")
    # behind an address, the model may be the program's own
    if model.source is None and framework.name != "null" and address is None:
        raise UsageError(f"the manifest of {model.name} names no source", hint="add `source: {graph_path: ...}`")
    request = request if request.is_trusted else _with_limits(request, facts.system)
    if address is not None:
        request = request.model_copy(update={"options": {**request.options, "address": address}})
    return EvaluationPlan(
        request=request,
        model=model,
        model_manifest=model_manifest,
        dataset=dataset,
        dataset_manifest=dataset_manifest,
        framework=framework,
        environment=environment.model_copy(update={"is_sandboxed": not request.is_trusted}),
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


def _choose_framework(
    request: EvaluationRequest, model: ModelManifest, facts: Facts
) -> tuple[ResolvedFramework, Environment, str | None]:
    """The framework that the manifest needs and the request allows, where it will live, and its address if it has one.

    A request may name another framework than the manifest's: then only the request's constraint counts, because the
    manifest's is about its own framework.
    """
    own, asked = model.framework, request.framework
    name, _, text = asked.partition("@") if asked is not None else (own.name, "", "")
    found = _find(name, facts)
    if found.takes_address:
        return _at_address(found, text, request)
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
    environment = _choose_environment(request, model, found, constraint, facts)
    version = str(constraint) if environment.kind != "local" else local_version(found, constraint)
    distribution = environment.need.distribution if environment.need else found.distribution
    framework = ResolvedFramework(
        name=found.name, version=version, distribution=distribution or found.name, entry_point=found.entry_point
    )
    return framework, environment, None


def _at_address(
    found: InstalledFramework, address: str, request: EvaluationRequest
) -> tuple[ResolvedFramework, Environment, str]:
    address = address or str(request.options.get("address", ""))
    if not address:
        raise UsageError(
            f"{found.name} needs the address of the program to drive",
            hint="for example remote@127.0.0.1:8500, or kserve-v2@http://127.0.0.1:8000",
        )
    if "@" in address:
        raise UsageError(
            "an address with a user's name or password would stand in the record",
            hint="leave them out; what needs them can be reached through a tunnel",
        )
    if request.environment not in (None, "local"):
        raise UsageError(f"{found.name} drives a program elsewhere: it has no {request.environment} here")
    if found.version is None:
        raise UnsatisfiableError(
            f"{found.name} cannot be reached from here", hint=found.install_hint, framework=found.name
        )
    framework = ResolvedFramework(
        name=found.name,
        version=found.version,
        distribution=found.distribution or found.name,
        entry_point=found.entry_point,
    )
    return framework, Environment(), address


def _choose_environment(
    request: EvaluationRequest,
    model: ModelManifest,
    found: InstalledFramework,
    constraint: VersionConstraint,
    facts: Facts,
) -> Environment:
    """As asked for; unasked, this interpreter where it has what is needed, else a venv of the framework's own."""
    kind, _, image = (request.environment or "").partition("=")
    is_here = found.version is not None and constraint.matches(found.version)
    if kind == "local" or (not kind and is_here and not model.requirements):
        return Environment()
    if kind == "container":
        image = image or _image_for(model, facts.system)
        if not image:
            raise UnsatisfiableError(
                f"the manifest of {model.name} names no image for {facts.system.architecture}",
                hint="name one: --environment container=IMAGE",
            )
        return Environment(kind="container", image=image)
    return Environment(kind="venv", need=need_of(found.name, constraint, model.requirements))


def _image_for(model: ModelManifest, system: SystemFacts) -> str:
    """The manifest's image for this machine: the one for its GPU if it has one, else that for the CPU."""
    from mlmodelscope.provision.containers.image import image_for

    return image_for(model.container, system.architecture, bool(system.accelerators)) or ""


def local_version(found: InstalledFramework, constraint: VersionConstraint) -> str:
    """The version that is installed here; UnsatisfiableError where there is none, or none that will do."""
    if found.version is None:
        raise UnsatisfiableError(f"{found.name} is not installed here", hint=found.install_hint, framework=found.name)
    if not constraint.matches(found.version):
        raise UnsatisfiableError(
            f"{found.name} {found.version} is installed, but {constraint} is needed",
            hint="let it have an environment of its own: --environment venv",
            installed=found.version,
            needed=str(constraint),
        )
    return found.version


def find_framework(text: str, facts: Facts) -> InstalledFramework:
    """The framework of `name@constraint`, installed or not; the constraint is read, but not held against it."""
    name, _, constraint = text.partition("@")
    found = _find(name, facts)
    if not found.takes_address:
        parse_constraint(constraint or "*")
    return found


def _find(name: str, facts: Facts) -> InstalledFramework:
    canonical = facts.canonical(name)
    if canonical is None:
        raise UnknownNameError("framework", name, facts.frameworks)
    return facts.frameworks[canonical]
