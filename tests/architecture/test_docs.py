"""The documentation keeps up with the code: generated pages, names that must be explained, links, sizes."""

import importlib.util
import re
from pathlib import Path

import pytest

import mlmodelscope
from mlmodelscope.cli.main import COMMANDS
from mlmodelscope.core.errors import error_classes
from mlmodelscope.core.factors import FactorGroup
from mlmodelscope.core.steps import STEPS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = Path(mlmodelscope.__file__).parent
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def read(name):
    return (DOCS / name).read_text(encoding="utf-8")


def relative(path):
    return str(path.relative_to(ROOT))


def generated_pages():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pages()


@pytest.mark.parametrize(
    ("path", "text"), [pytest.param(*page, id=relative(page[0])) for page in generated_pages().items()]
)
def test_a_generated_page_is_current(path, text):
    assert path.read_text(encoding="utf-8") == text, "run `make docs`"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name):
    assert f"\n## `mlmodelscope {name}`\n" in read("reference/commands.md")


@pytest.mark.parametrize("code", [code for code, cls in error_classes().items() if not cls.__subclasses__()])
def test_every_error_code_is_documented(code):
    assert re.search(rf"\b{code}\b", read("reference/errors.md"))


@pytest.mark.parametrize("name", STEPS)
def test_every_step_is_documented(name):
    assert re.search(rf"^(#+|\|) .*`{name}`", read("reference/steps.md"), re.MULTILINE)


@pytest.mark.parametrize("group", FactorGroup)
def test_every_factor_group_is_documented(group):
    assert f"\n| {group} |" in read("concepts/comparability.md")


def folders():
    return sorted(path for path in SOURCE.iterdir() if (path / "__init__.py").is_file())


def test_the_map_names_every_folder():
    assert [path.name for path in folders() if f"\n| `{path.name}/` |" not in read("map.md")] == []


def test_the_map_names_nothing_that_is_gone():
    named = re.findall(r"^\| `([\w/.]+)` \|", read("map.md"), re.MULTILINE)
    assert len(named) > 10
    assert [name for name in named if not (SOURCE / name).exists()] == []


def test_every_relative_link_leads_somewhere():
    assert [
        f"{relative(page)}: {target}" for page in PAGES for target in targets(page) if not leads(page, target)
    ] == []


def targets(page):
    """What a page links to in this repository; text inside fences is no link."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [target for target in LINK.findall(text) if not re.match(r"[a-z]+:", target)]


def leads(page, target):
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    return file.exists() and (not anchor or anchor in anchors(file))


def anchors(page):
    """The anchors of a page's headings: small letters, no punctuation, hyphens for blanks."""
    headings = re.findall(r"^#+ +(.+?) *$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_are_found():
    assert sum(len(targets(page)) for page in PAGES) > 10


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
