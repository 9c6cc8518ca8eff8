"""For whom packages may be built while an environment is made: building runs their code outside of any sandbox."""

import pytest

from mlmodelscope import hosting
from mlmodelscope.core.request import Environment
from mlmodelscope.core.stack import BuiltEnvironment, Stack
from mlmodelscope.core.versions import parse_constraint
from mlmodelscope.hosting import Preparation, venv_host
from mlmodelscope.provision import environments
from mlmodelscope.resolve.stacks import need_of

STACK = Stack(python="3.11.7", implementation="CPython", platform="linux-x86_64", packages=())


def need(version, *requirements):
    return Environment(kind="venv", need=need_of("tensorflow", parse_constraint(version), requirements))


RECORDED = need("1.15.5").model_copy(update={"stack": STACK})


@pytest.fixture
def allowed(tmp_path, monkeypatch):
    """Whether packages might be built for an environment, for a trusted plan or not."""
    asked = []

    class Environments:
        def __init__(self, home: object) -> None: ...

        def make(self, wanted: object, *, may_build: bool, **_: object) -> BuiltEnvironment:
            asked.append(may_build)
            return BuiltEnvironment(digest=STACK.digest, folder="/x", python="/x/bin/python", stack=STACK)

        rebuild = make

    monkeypatch.setattr(environments, "Environments", Environments)
    monkeypatch.setattr(hosting, "portable_folder", lambda home: home)

    def allowed(wanted: Environment, *, is_trusted: bool) -> bool:
        venv_host(wanted, "tensorflow", Preparation(tmp_path), is_trusted=is_trusted)
        return asked[-1]

    return allowed


@pytest.mark.parametrize("wanted", [need("1.15.5"), need("1.15.3"), need("1.15.5", "six"), RECORDED])
def test_the_users_own_may_be_built(allowed, wanted):
    assert allowed(wanted, is_trusted=True)


def test_a_strangers_may_not_unless_nothing_in_it_is_the_strangers_choice(allowed):
    assert allowed(need("1.15.5"), is_trusted=False)
    for wanted in (need("1.15.3"), need("1.15.5", "six"), RECORDED):
        assert not allowed(wanted, is_trusted=False)
