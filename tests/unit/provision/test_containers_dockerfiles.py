"""The Dockerfiles keep to the stacks that are tested, and add nothing of ours."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from mlmodelscope.core.versions import parse_constraint
from mlmodelscope.resolve.stacks import RULES, need_of

FOLDER = Path(__file__).parents[3] / "containers"
FILES = sorted(FOLDER.glob("*.Dockerfile"))


def instructions(path):
    """(word, rest) of each instruction: comments left out, continued lines joined."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def installed(path):
    """The requirements that pip is given."""
    (line,) = [rest for word, rest in instructions(path) if word == "RUN" and "pip install" in rest]
    words = shlex.split(line.partition("pip install")[2].partition("&&")[0])
    return [word for word in words if not word.startswith(("-", "/"))]


def bounds(path):
    """The constraints that pip is given."""
    lines = [rest for word, rest in instructions(path) if word == "RUN" and rest.startswith("printf")]
    words = [word for line in lines for word in shlex.split(line)]
    return words[2 : words.index(">")] if words else []


def generated():
    spec = importlib.util.spec_from_file_location("generate_containers", FOLDER / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pages()


def test_every_tested_stack_has_one():
    tested = {(name, rule.preferred) for name, rules in RULES.items() for rule in rules if rule.preferred}
    assert {tuple(path.name.removesuffix(".Dockerfile").split("-", 1)) for path in FILES} == tested


def test_the_files_are_current():
    assert {path: path.read_text(encoding="utf-8") for path in FILES} == generated(), "run containers/generate.py"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_pins_are_those_of_the_environments(path):
    framework, version = path.name.removesuffix(".Dockerfile").split("-", 1)
    need = need_of(framework, parse_constraint(f"=={version}"))
    assert installed(path) == list(need.requirements)
    assert bounds(path) == list(need.bounds)
    assert need.bounds or need.as_of is None, "an image cannot be made as of a date: only bounds hold it"
    (base,) = [rest for word, rest in instructions(path) if word == "FROM"]
    assert base == f"python:{need.python[0]}-slim"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_image_is_labelled_and_has_nothing_of_ours(path):
    framework, version = path.name.removesuffix(".Dockerfile").split("-", 1)
    words = [word for word, _ in instructions(path)]
    assert set(words) <= {"FROM", "ARG", "LABEL", "RUN"}
    (labels,) = [rest for word, rest in instructions(path) if word == "LABEL"]
    told = dict(part.split("=", 1) for part in shlex.split(labels))
    assert told == {"org.mlmodelscope.framework": framework, "org.mlmodelscope.version": version}
    assert not any("mlmodelscope" in word for word in installed(path))
