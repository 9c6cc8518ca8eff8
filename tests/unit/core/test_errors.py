"""The tree of errors: the drawing, the codes and the way through JSON."""

import json
import re

import pytest

from mlmodelscope.core import errors
from mlmodelscope.core.errors import (
    HostError,
    Interrupted,
    MLModelScopeError,
    PluginError,
    UnknownNameError,
    UserError,
    error_classes,
    from_fields,
)

BRANCHES = {UserError: 2, HostError: 3, PluginError: 4}


def every_class(root=MLModelScopeError):
    return [root, *(found for child in root.__subclasses__() for found in every_class(child))]


CLASSES = [cls for cls in every_class() if cls.__module__ == errors.__name__]


def drawn():
    """The tree of the docstring: name -> (depth, second word)."""
    lines = re.findall(r"^    ((?:[|` ]   )*(?:[|`]-- )?)(\w+)(?: +(\S+))?", errors.__doc__, re.MULTILINE)
    return {name: (len(indent) // 4, word) for indent, name, word in lines}


def test_the_drawing_is_the_tree():
    assert list(drawn()) == [cls.__name__ for cls in every_class() if cls.__module__ == errors.__name__]
    for cls in CLASSES:
        assert drawn()[cls.__name__][0] == len(cls.__mro__) - len(MLModelScopeError.__mro__)


def test_the_drawing_names_the_codes_and_exit_codes():
    leaves = [cls for cls in CLASSES if not cls.__subclasses__()]
    assert len(leaves) > 20
    assert {cls.__name__: drawn()[cls.__name__][1] for cls in leaves} == {cls.__name__: cls.code for cls in leaves}
    for cls, exit_code in BRANCHES.items():
        assert re.search(rf"-- {cls.__name__} .* exit {exit_code}$", errors.__doc__, re.MULTILINE)


def test_codes_are_unique_and_readable():
    codes = [cls.code for cls in CLASSES]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes)
    assert {code: cls for code, cls in error_classes().items() if cls in CLASSES} == {cls.code: cls for cls in CLASSES}


def test_every_class_exits_as_its_branch_does():
    for branch, exit_code in BRANCHES.items():
        assert {cls.exit_code for cls in every_class(branch)} == {exit_code}
    assert Interrupted.exit_code == 130
    assert not issubclass(Interrupted, MLModelScopeError)


def test_every_class_is_public():
    assert {cls.__name__ for cls in CLASSES} <= set(errors.__all__)


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_survives_json(cls):
    if cls is UnknownNameError:
        error = UnknownNameError("model", "resnet-50", ["ResNet50", "Inception"])
    else:
        error = cls("what happened", hint="what to do", count=3, names=["a"], nothing=None)
    again = from_fields(json.loads(json.dumps(error.to_fields())))
    assert type(again) is cls
    assert again.to_fields() == error.to_fields()
    assert (str(again), again.hint, again.fields) == (error.message, error.hint, error.fields)


@pytest.mark.parametrize(
    ("values", "cls", "message"),
    [
        ({"code": "of_the_future", "message": "m"}, PluginError, "m"),
        ({"code": "memory_limit", "message": "m", "hint": "h"}, errors.MemoryLimitError, "m"),
        ({"code": "usage", "message": "m", "fields": None}, errors.UsageError, "m"),
        ({}, PluginError, ""),
    ],
)
def test_fields_that_another_version_may_send(values, cls, message):
    error = from_fields(values)
    assert type(error) is cls
    assert (error.message, error.hint, error.fields) == (message, values.get("hint"), {})


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("resnet-50", ["ResNet50", "Inception"], "did you mean ResNet50?"),
        ("RESNET5", ["ResNet50", "ResNet18"], "did you mean ResNet18 or ResNet50?"),
        ("zzz", ["b", "a"], "known models: a, b"),
        ("zzz", [f"m{i:02}" for i in range(13)], "known models: " + ", ".join(f"m{i:02}" for i in range(12)) + ", ..."),
        ("zzz", [], None),
    ],
)
def test_an_unknown_name_comes_with_the_nearest_or_all(name, known, hint):
    error = UnknownNameError("model", name, known)
    assert error.message == f"there is no model named {name!r}"
    assert error.hint == hint
    assert set(error.fields["near"]) <= set(known)


def test_a_given_hint_is_kept():
    assert UnknownNameError("model", "a", ["ab"], hint="look again").hint == "look again"
