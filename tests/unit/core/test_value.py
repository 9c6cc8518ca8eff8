"""Frozen values and the one text behind every digest."""

import hashlib
import json

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from mlmodelscope.core.factors import Difference, FactorGroup
from mlmodelscope.core.span import Span, TraceLevel
from mlmodelscope.core.value import Frozen, canonical_json, digest_of


class Point(Frozen):
    x: float
    y: float | None = None


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def test_a_value_never_changes():
    point = Point(x=1)
    with pytest.raises(ValidationError, match="frozen"):
        point.x = 2
    assert hash(point) == hash(Point(x=1.0))


def test_an_unknown_field_is_an_error():
    with pytest.raises(ValidationError, match="extra"):
        Point(x=1, z=2)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_is_finite(number):
    with pytest.raises(ValidationError, match="finite"):
        Point(x=number)
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"x": number})


def test_one_text_per_value():
    assert canonical_json({"b": 1, "a": [True, None, "ä"]}) == '{"a":[true,null,"ä"],"b":1}'
    assert canonical_json(Point(x=1)) == '{"x":1.0,"y":null}'
    assert digest_of("a") == hashlib.sha256(b'"a"').hexdigest()


@given(plain)
def test_the_text_holds_the_value(value):
    assert json.loads(canonical_json(value)) == value
    assert canonical_json(json.loads(canonical_json(value))) == canonical_json(value)


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_the_order_of_keys_does_not_matter(value):
    assert digest_of(dict(reversed(value.items()))) == digest_of(value)


@given(plain, plain)
def test_equal_digests_are_equal_texts(a, b):
    assert (digest_of(a) == digest_of(b)) == (canonical_json(a) == canonical_json(b))


def test_the_levels_of_a_trace_go_from_none_to_full():
    assert [level.value for level in TraceLevel] == list(range(8))
    assert (min(TraceLevel), max(TraceLevel)) == (TraceLevel.NONE, TraceLevel.FULL)


def test_a_span_survives_json():
    span = Span(
        trace_id="t",
        span_id=2,
        parent_id=1,
        name="predict",
        level=TraceLevel.MODEL,
        clock="monotonic",
        start_ns=5,
        end_ns=2**62,
        attributes={"batch": 4},
    )
    assert Span.model_validate_json(span.model_dump_json()) == span


def test_a_group_is_its_name():
    assert [str(group) for group in FactorGroup] == [
        "data",
        "pipeline",
        "model",
        "framework",
        "precision",
        "execution",
        "system",
        "scenario",
    ]
    assert Difference(FactorGroup.DATA, "split", None, "a") == Difference(FactorGroup("data"), "split", None, "a")
