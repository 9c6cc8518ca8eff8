"""Turns a suite file into evaluation requests, in groups that are measured side by side, with every problem's place.

models x frameworks x batch sizes x threads x data sets x scenarios; docs/guides/suites.md explains the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from mlmodelscope.core.errors import MLModelScopeError
from mlmodelscope.core.request import Batched, EvaluationRequest, Limits, Offline, Scenario, SingleStream
from mlmodelscope.manifest.document import parse_document
from mlmodelscope.manifest.fields import Field, Section
from mlmodelscope.manifest.problem import Place, Report, nearest
from mlmodelscope.manifest.read import invalid, read_text
from mlmodelscope.suite.scenario import read_count, read_counts, read_scenario, refuse_unknown

__all__ = ["MOST_CASES", "Name", "Suite", "read_suite"]

Name = Literal["model", "dataset", "framework", "system", "size"]
Check = Callable[[str], object]

# far more than a machine does in a month; a slip in a list must not plan forever
MOST_CASES = 10_000
_FILE_SUFFIXES = (".yml", ".yaml")
_EXCLUDED = ("model", "framework", "dataset", "scenario", "batch_size", "threads")


@dataclass(frozen=True, slots=True)
class Suite:
    """`groups`: the requests that belong side by side, one model and one scenario each; a request names one model."""

    name: str
    path: Path
    groups: tuple[tuple[EvaluationRequest, ...], ...]

    @property
    def requests(self) -> tuple[EvaluationRequest, ...]:
        return tuple(request for group in self.groups for request in group)


def read_suite(path: Path, checks: Mapping[Name, Check]) -> Suite:
    """Raises ManifestError with every problem of the file.

    `checks` say whether a name means something here: each raises one of our errors if not. Relative paths of manifests
    and inputs start from the suite's own folder.
    """
    report = Report(str(path))
    text = read_text(path, report)
    if text is None:
        raise invalid(report.problems())
    if not text.strip():
        report.add("error", "empty", Place(1, 1), "", "the file holds no suite", "a suite starts with models:")
        raise invalid(report.problems())
    top = parse_document(text, report)
    if top is None:
        raise invalid(report.problems())
    reader = _Reader(Section(Field(top, "", report, top.place, top.place)), path.resolve(), checks)
    groups = reader.groups()
    if report.has_errors:
        raise invalid(report.problems())
    return Suite(reader.name, path.resolve(), groups)


@dataclass(slots=True)
class _Reader:
    section: Section
    path: Path
    checks: Mapping[Name, Check]
    name: str = ""
    _excluded: list[dict[str, str]] = field(default_factory=list)

    def groups(self) -> tuple[tuple[EvaluationRequest, ...], ...]:
        section = self.section
        self.name = section.read("name", Field.text, None) or self.path.stem
        section.take("description")
        models = self._names("models", "model", self._manifest)
        frameworks: list[str | None] = [*self._names("frameworks", "framework")] or [None]
        sources = self._sources()
        threads: list[int | None] = [*(section.read("threads", read_counts, None) or [])] or [None]
        sizes = section.read("batch_sizes", read_counts, None)
        scenarios = self._scenarios(sizes)
        shared = self._shared()
        self._excluded = section.read("exclude", self._exclude, [])
        refuse_unknown(section)
        if "models" not in section:
            section.need("models")
        if section.owner.report.has_errors:
            return ()
        count = len(models) * len(frameworks) * len(sources) * len(threads) * sum(map(len, scenarios))
        if count > MOST_CASES:
            section.owner.error("wrong_value", f"{count:,} evaluations; a suite has at most {MOST_CASES:,}")
            return ()
        found = (
            tuple(self._group(model, source, variants, frameworks, threads, shared))
            for source, model, variants in product(sources, models, scenarios)
        )
        kept = tuple(group for group in found if group)
        if not kept and not section.owner.report.has_errors:
            section.owner.error("wrong_value", "exclude leaves nothing to run")
        return kept

    def _group(
        self,
        model: str,
        source: dict[str, Any],
        variants: list[Scenario],
        frameworks: list[str | None],
        threads: list[int | None],
        shared: dict[str, Any],
    ) -> Iterator[EvaluationRequest]:
        for framework, count, scenario in product(frameworks, threads, variants):
            values = {**shared, **source, "models": (model,), "framework": framework, "threads": count}
            try:
                request = EvaluationRequest(**values, scenario=scenario)
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                place = ".".join(map(str, first["loc"]))
                self.section.owner.error("wrong_value", f"{place}: {first['msg'].removeprefix('Value error, ')}")
                return
            if not self._is_excluded(request):
                yield request

    def _names(self, key: str, kind: Name, located: Callable[[str], str] = str) -> list[str]:
        found = self.section.take(key)
        if found is None:
            return []
        items = [found] if found.is_scalar else found.items()
        if not items:
            found.error("wrong_value", f"{key} names nothing")
        names = [name for item in items if (name := self._checked(item, kind, located)) is not None]
        for index, item in enumerate(items):
            if any(_same(item, earlier) for earlier in items[:index]):
                item.error("wrong_value", f"{item.describe()} stands here again")
        return names

    def _checked(self, item: Field, kind: Name, located: Callable[[str], str] = str) -> str | None:
        text = item.text()
        if text is None:
            return None
        name = located(text.strip())
        try:
            self.checks[kind](name)
        except MLModelScopeError as error:
            item.error("wrong_value", error.message, error.hint)
            return None
        return name

    def _manifest(self, text: str) -> str:
        """A manifest's path starts from the suite's folder; a name stays a name."""
        looks_so = text.endswith(_FILE_SUFFIXES) or text.startswith((".", "/"))
        return str(self.path.parent / text) if looks_so else text

    def _sources(self) -> list[dict[str, Any]]:
        section = self.section
        inputs = section.take("inputs")
        datasets = self._names("datasets", "dataset", self._manifest)
        if inputs is None:
            if "datasets" not in section:
                section.owner.error("missing", "datasets or inputs is missing", "a model needs something to run on")
            return [{"dataset": name} for name in datasets]
        if "datasets" in section:
            inputs.at_key().error("contradiction", "give either datasets or inputs, not both")
        texts = tuple(self._input(text) for text in inputs.texts())
        return [{"inputs": texts}]

    def _input(self, text: str) -> str:
        file = self.path.parent / text
        return str(file) if "://" not in text and file.is_file() else text

    def _scenarios(self, sizes: list[int] | None) -> list[list[Scenario]]:
        """The variants of each scenario: one per batch size, for those that have one."""
        found = self.section.take("scenarios", "scenario")
        if found is None:
            if sizes is None:
                return [[SingleStream()]]
            return [[Batched(batch_size=size) for size in sizes]]
        items = found.items() if found.is_sequence else [found]
        if not items:
            found.error("wrong_value", "scenarios names nothing")
        variants = [read_scenario(item, sizes) for item in items]
        has_batches = any(isinstance(one, Batched | Offline) for group in variants for one in group)
        # a scenario that cannot be read may be the one that is meant
        if sizes is not None and all(variants) and not has_batches:
            self.section.owner.entries()["batch_sizes"].at_key().error(
                "contradiction", "no scenario here has batches", "add a scenario of type batched or offline"
            )
        return variants

    def _shared(self) -> dict[str, Any]:
        section = self.section
        values: dict[str, Any] = {
            "samples": section.read("samples", read_count, None),
            "options": section.read("options", _mapping, {}),
            "limits": section.read("limits", self._limits, Limits()),
            "system": section.read("system", lambda found: self._checked(found, "system"), None),
        }
        measure = section.take("measure")
        if measure is not None:
            values["measure"] = _choice(measure, ("both", "performance", "accuracy"))
        seed = section.take("seed")
        if seed is not None:
            value = seed.value()
            values["seed"] = value
            if type(value) is not int:
                seed.error("wrong_type", f"expected a whole number, found {seed.describe()}")
        return values

    def _limits(self, found: Field) -> Limits | None:
        section = found.section()
        if section is None:
            return None
        values: dict[str, Any] = {}
        for name in ("sample_seconds", "run_seconds"):
            given = section.take(name)
            number = given.number() if given is not None else None
            if given is not None and number is not None and number <= 0:
                given.error("wrong_value", f"{name} is above 0")
            if number is not None:
                values[name] = number
        memory = section.take("memory")
        if memory is not None and (text := self._checked(memory, "size")) is not None:
            values["memory_bytes"] = self.checks["size"](text)
        refuse_unknown(section)
        return Limits(**values) if not found.report.has_errors else None

    def _exclude(self, found: Field) -> list[dict[str, str]]:
        rules = []
        for item in found.items() if found.is_sequence else [found]:
            section = item.section()
            if section is None:
                continue
            rule = {name: text for name in _EXCLUDED if (text := section.read(name, Field.text, None)) is not None}
            refuse_unknown(section)
            if not rule:
                item.error("wrong_value", "a rule of exclude names nothing")
            rules.append(rule)
        return rules

    def _is_excluded(self, request: EvaluationRequest) -> bool:
        facts = {
            "model": request.models[0],
            "framework": request.framework or "",
            "dataset": request.dataset or "",
            "scenario": request.scenario.type,
            "batch_size": str(request.scenario.batch_size),
            "threads": str(request.threads or ""),
        }
        return any(
            all(facts[name] in (wanted, self._manifest(wanted)) for name, wanted in rule.items())
            for rule in self._excluded
        )


def _choice(found: Field, known: tuple[str, ...]) -> str | None:
    text = (found.text() or "").strip()
    if text not in known:
        near = nearest(text, known)
        hint = f"did you mean {near}?" if near else None
        found.error("wrong_value", f"{found.describe()} is not one of {', '.join(known)}", hint)
    return text


def _mapping(found: Field) -> dict[str, Any] | None:
    if found.section() is None:
        return None
    values: dict[str, Any] = found.value()
    return values


def _same(a: Field, b: Field) -> bool:
    return a.is_scalar and b.is_scalar and a.text() == b.text()
