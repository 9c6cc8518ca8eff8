"""Markup: what comes from outside stays text, whatever it holds."""

from html import unescape

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.show.report.markup import Markup, element, join

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]))


@given(TEXT, TEXT)
def test_text_and_attributes_are_escaped(content, attribute):
    made = element("p", content, title=attribute)
    assert made.count("<") == 2
    assert made.count('"') == 2
    start, _, rest = made.partition('">')
    assert unescape(start.removeprefix('<p title="')) == attribute
    assert unescape(rest.removesuffix("</p>")) == content


def test_markup_is_not_escaped_twice():
    inner = element("b", "a & b")
    assert isinstance(inner, Markup)
    assert element("p", inner) == "<p><b>a &amp; b</b></p>"


def test_adding_text_to_markup_gives_text():
    assert join(element("b") + "<script>") == "&lt;b&gt;&lt;/b&gt;&lt;script&gt;"


def test_content_may_be_nested_and_missing():
    assert join(None, ["a", ("b", None)], (str(i) for i in range(2))) == "ab01"


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"class_": "a", "stroke_width": 2}, '<i class="a" stroke-width="2"></i>'),
        ({"open": True, "hidden": False, "title": None}, "<i open></i>"),
        ({"x": 1.23456789, "y": 2.0}, '<i x="1.2346" y="2"></i>'),
    ],
)
def test_attributes(attributes, text):
    assert element("i", **attributes) == text


def test_void_elements_have_no_end():
    assert element("img", src="a") == '<img src="a">'


def test_characters_that_no_document_may_hold_are_replaced():
    assert join("a\x00b\x1b\ud800c\td\n") == "a�b��c\td\n"
