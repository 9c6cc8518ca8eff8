"""What is installed for a framework: the version we test, held where we tested it, and the size that is known of it."""

import pytest

from mlmodelscope.core.versions import parse_constraint
from mlmodelscope.resolve.stacks import RULES, is_tested, need_of

PREFERRED = [(name, rule) for name, rules in RULES.items() for rule in rules if rule.preferred]
OLD = {
    *(("caffe", "1.0.0.20210829"), ("caffe2", "1.4.0"), ("cntk", "2.7.post2"), ("mxnet", "1.9.1")),
    *(("onnxruntime", "1.17.3"), ("onnxruntime", "1.10.0"), ("tensorflow", "1.15.5"), ("tflite", "2.14.0")),
}


def need(framework, version, *requirements):
    return need_of(framework, parse_constraint(version), requirements)


class TestSizes:
    def test_the_size_is_of_the_version_that_was_measured_with_nothing_else(self):
        assert need("pytorch", "2.13.0").size_bytes == need("pytorch", ">=2").size_bytes == 868_000_000
        assert need("pytorch", ">=2.5 <2.6").size_bytes is None
        assert need("onnxruntime", "*", "torch").size_bytes is None

    def test_where_no_version_was_measured_it_is_of_all(self):
        assert need("tensorrt", ">=10").size_bytes == need("tensorrt", "10.1", "numpy").size_bytes == 4_000_000_000


class TestOldStacks:
    def test_they_are_held_by_bounds_and_where_dates_are_known_by_one(self):
        held = {(name, rule.preferred) for name, rule in PREFERRED if rule.bounds}
        dated = {(name, rule.preferred) for name, rule in PREFERRED if rule.as_of}
        assert held == OLD
        # its pip knows no dates: everything is pinned
        assert dated == OLD - {("cntk", "2.7.post2")}

    @pytest.mark.parametrize(("name", "rule"), PREFERRED, ids=lambda value: getattr(value, "preferred", value))
    def test_what_is_required_without_end_is_bounded(self, name, rule):
        if (name, rule.preferred) not in OLD:
            return
        bounded = {bound.split("<=")[0] for bound in rule.bounds}
        open_ended = [text for text in rule.requirements if "==" not in text]
        assert {text.split("<")[0] for text in open_ended} <= bounded

    def test_what_the_manifest_names_itself_is_not_held(self):
        own = need("onnxruntime", "1.17.3", "Protobuf>=8", "coloredlogs[cron]", "other")
        plain = need("onnxruntime", "1.17.3")
        assert set(plain.bounds) - set(own.bounds) == {"protobuf<=7.36.2", "coloredlogs<=15.0.1"}
        assert set(own.bounds) < set(plain.bounds)
        assert own.as_of == plain.as_of


class TestTested:
    @pytest.mark.parametrize(("name", "rule"), PREFERRED, ids=lambda value: getattr(value, "preferred", value))
    def test_the_version_that_we_test_and_nothing_more(self, name, rule):
        assert is_tested(need(name, rule.preferred))
        assert not is_tested(need(name, rule.preferred, "six"))

    def test_another_version_is_not(self):
        assert is_tested(need("onnxruntime", ">=1.17 <1.18"))
        assert not is_tested(need("onnxruntime", "1.17.1"))
        assert not is_tested(need("tensorrt", "*"))
        assert not is_tested(need("jax", "*").model_copy(update={"framework": "nobody"}))
