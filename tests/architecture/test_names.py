"""Names: what modules are called, what they say they offer, and what the repository never mentions."""

import ast
import importlib
import subprocess
from pathlib import Path

import pytest

import mlmodelscope

ROOT = Path(__file__).parents[2]
SOURCE = Path(mlmodelscope.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}


def relative(path):
    return str(path.relative_to(SOURCE))


def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def listed(tree):
    """The names in `__all__`, or None where there is none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return ast.literal_eval(node.value)
    return None


def defined(tree):
    """Public functions and classes of the module itself."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in tree.body if isinstance(node, definitions) and not node.name.startswith("_")}


def bound(tree):
    """Every name that the module's top level binds."""
    found = defined(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def constants_first(name):
    """The order of ruff's RUF022: SCREAMING_CASE, then CamelCase, then the rest."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


TREES = {path: parse(path) for path in MODULES}
LISTED = {path: names for path, tree in TREES.items() if (names := listed(tree)) is not None}


def test_what_a_module_offers_is_sorted():
    assert len(LISTED) > 50
    wrong = {
        relative(path): names for path, names in LISTED.items() if names != sorted(set(names), key=constants_first)
    }
    assert wrong == {}


def test_what_a_module_offers_is_there():
    wrong = {relative(path): missing for path, names in LISTED.items() if (missing := set(names) - bound(TREES[path]))}
    assert wrong == {}


def test_what_a_module_offers_is_complete():
    """Every public function and class is listed; what a neighbour should not touch begins with an underscore."""
    hidden = {relative(path): more for path, names in LISTED.items() if (more := defined(TREES[path]) - set(names))}
    # a module of commands is reached through click, not by import
    assert {name: more for name, more in hidden.items() if not name.startswith("cli/")} == {}


def test_most_modules_say_what_they_offer():
    silent = {relative(path) for path, tree in TREES.items() if path not in LISTED and defined(tree)}
    # commands are loaded by the name `command`, migrations by alembic
    assert {name for name in silent if not name.startswith(("cli/", "store/migrations/"))} == set()


def test_a_module_opens_with_a_sentence():
    openings = {relative(path): (ast.get_docstring(tree) or "").partition("\n\n")[0] for path, tree in TREES.items()}
    assert {name: text for name, text in openings.items() if not text.endswith((".", ":", ";"))} == {}


def test_no_name_says_nothing():
    folders = {path.parent for path in MODULES}
    assert [relative(path) for path in (*MODULES, *folders) if path.stem in EMPTY_NAMES] == []


def test_nothing_prints():
    calls = [(path, node.func) for path, tree in TREES.items() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    prints = {relative(path) for path, call in calls if isinstance(call, ast.Name) and call.id == "print"}
    assert prints == set()


def test_the_package_offers_what_it_says():
    assert dir(mlmodelscope) == sorted(mlmodelscope.__all__)
    for name in mlmodelscope.__all__:
        assert getattr(mlmodelscope, name) is not None
    namespace = {}
    exec("from mlmodelscope import *", namespace)
    assert set(mlmodelscope.__all__) <= set(namespace)


def test_a_name_that_is_not_offered_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'evaluat'"):
        mlmodelscope.evaluat  # noqa: B018


def test_calls_stay_calls_after_their_modules_are_imported():
    for path in MODULES:
        if path.name != "__main__.py" and path.parent == SOURCE:
            importlib.import_module(f"mlmodelscope.{path.stem}" if path.stem != "__init__" else "mlmodelscope")
    assert all(callable(getattr(mlmodelscope, name)) for name in mlmodelscope.__all__ if name != "__version__")


def texts():
    """Every file that is, or would be, under version control and holds text."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        path = ROOT / name
        if path.is_file():
            try:
                yield name, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def test_no_registry_is_named_by_its_host():
    # in pieces, so that this file holds none of them
    hosts = [
        ".".join(parts)
        for parts in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("registry", "npmjs", "org"),
            ("registry", "yarnpkg", "com"),
            ("registry-1", "docker", "io"),
            ("conda", "anaconda", "org"),
        )
    ]
    found = [(name, host) for name, text in texts() for host in hosts if host in text.lower()]
    assert found == []
