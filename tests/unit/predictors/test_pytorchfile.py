from types import SimpleNamespace

import pytest

from mlmodelscope.predictors.pytorchfile import _leaves


def tree(is_old, kind=None, context=None, *children):
    """A tree of values as PyTorch describes one, before and after the parts became a method."""
    parts = {"children_specs": list(children)} if is_old else {"children": lambda: list(children)}
    return SimpleNamespace(type=kind, context=context, **parts)


@pytest.mark.parametrize("is_old", [True, False])
def test_leaves_have_names_and_keys_in_every_version(is_old):
    leaf = tree(is_old)
    found = _leaves(tree(is_old, dict, ["y", "n"], leaf, tree(is_old, list, None, leaf, leaf)))
    assert found == [("y", ("y",)), ("n.output_0", ("n", 0)), ("n.output_1", ("n", 1))]
    assert _leaves(leaf) == [("output_0", ())]
