import sys
from importlib.metadata import EntryPoint

import pytest

from mlmodelscope.core.errors import RegistryError, UnknownNameError
from mlmodelscope.core.plugins import PREDICTOR_ALIASES, Registry, installed_version, predictors
from mlmodelscope.core.predictor import Predictor, Profiles

GROUP = "example.group"


class Distribution:
    def __init__(self, name):
        self.name = name


def point(name, value, owner="example"):
    made = EntryPoint(name, value, GROUP)
    vars(made).update(dist=Distribution(owner))
    return made


def registry(*points, **settings):
    return Registry(GROUP, kind="framework", find=lambda group: points if group == GROUP else (), **settings)


def test_names_are_sorted_and_nothing_is_imported():
    found = registry(point("zeta", "no_such_module:Thing"), point("alpha", "neither_this:Thing"))
    assert found.names() == ["alpha", "zeta"]


@pytest.mark.parametrize("name", ["JSON", "json", "Js-on", "js_on", "the other"])
def test_a_name_matches_whatever_its_case_separators_or_alias(name):
    import json

    found = registry(point("json", "json:JSONDecoder"), aliases={"The-Other": "json"})
    assert found.get(name) is json.JSONDecoder
    assert found.canonical(name) == "json"


def test_a_plug_in_is_loaded_once():
    loads = []

    class Counted:
        name, value, dist = "counted", "example:Counted", None

        def load(self):
            loads.append(self)
            return object()

    found = registry(Counted())
    assert found.get("counted") is found.get("Counted")
    assert len(loads) == 1


def test_an_unknown_name_lists_near_ones():
    found = registry(point("onnxruntime", "json:loads"), point("tflite", "json:loads"))
    with pytest.raises(UnknownNameError) as caught:
        found.get("onxruntime")
    assert caught.value.fields["near"] == ["onnxruntime"]
    with pytest.raises(UnknownNameError, match="no framework named 'null!'"):
        registry(point("null", "json:loads")).get("null!")


def test_an_alias_of_something_absent_is_unknown():
    with pytest.raises(UnknownNameError):
        registry(point("json", "json:loads"), aliases={"other": "absent"}).get("other")


def test_two_packages_claiming_one_name_are_refused_but_listed():
    found = registry(point("json", "json:loads", "one"), point("JSON", "json:dumps", "two"))
    assert found.names() == ["json"]
    with pytest.raises(RegistryError) as caught:
        found.get("json")
    assert caught.value.fields["owners"] == ["one (json:loads)", "two (json:dumps)"]


def test_one_package_seen_twice_is_no_collision():
    import json

    assert registry(point("json", "json:loads"), point("json", "json:loads")).get("json") is json.loads


@pytest.mark.parametrize("value", ["no_such_module_here:Thing", "json:no_such_thing"])
def test_a_plug_in_that_cannot_be_loaded_names_its_package(value):
    with pytest.raises(RegistryError, match="cannot be loaded") as caught:
        registry(point("broken", value, "their-package")).get("broken")
    assert caught.value.fields["owner"] == "their-package"
    assert "their-package" in caught.value.hint


def test_a_plug_in_without_its_parts_is_refused():
    with pytest.raises(RegistryError) as caught:
        registry(point("json", "json:JSONDecoder"), parts=("decode", "predict")).get("json")
    assert caught.value.fields["missing"] == ["predict"]


@pytest.mark.parametrize("alias", sorted(PREDICTOR_ALIASES))
def test_predictor_aliases_lead_to_predictors(alias):
    assert predictors().get(alias).name == PREDICTOR_ALIASES[alias]


def test_our_predictors_are_found_without_their_frameworks():
    before = set(sys.modules)
    found = [predictors().get(name) for name in predictors().names()]
    assert {cls.name for cls in found} >= {"null", "onnxruntime", "tflite"}
    assert not {"onnxruntime", "ai_edge_litert"} & (set(sys.modules) - before)


def test_predictors_have_the_three_calls_and_no_ability_they_lack():
    null = predictors().get("null")()
    assert isinstance(null, Predictor)
    assert not isinstance(null, Profiles)


def test_installed_version_takes_the_first_distribution_present():
    class Fake:
        packages = ("no-such-distribution-here", "pytest")

    class Absent:
        packages = ("no-such-distribution-here",)

    assert installed_version(Fake) == ("pytest", pytest.__version__)
    assert installed_version(Absent) is None
