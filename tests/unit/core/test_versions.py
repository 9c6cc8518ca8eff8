"""The table of docs/reference/version-constraints.md row by row, and the laws of ranges."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from mlmodelscope.core.errors import ConstraintError
from mlmodelscope.core.versions import (
    VersionConstraint,
    VersionRange,
    both,
    newest,
    parse_constraint,
    parse_version,
)

_PAGE = Path(__file__).parents[3] / "docs" / "reference" / "version-constraints.md"


def _table(title: str) -> list[list[str]]:
    section = _PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


_CASES = [(row[0].strip("`"), row[1].strip("`"), row[2]) for row in _table("Cases")]


def test_the_table_of_cases_is_whole():
    assert len(_CASES) >= 40
    assert {verdict for _, _, verdict in _CASES} == {"yes", "no"}
    assert len(set(_CASES)) == len(_CASES)


@pytest.mark.parametrize("constraint, version, verdict", _CASES)
def test_case_of_the_documentation(constraint: str, version: str, verdict: str):
    assert parse_constraint(constraint).matches(version) is (verdict == "yes")


def _forms() -> list[tuple[str, str]]:
    """Each form with its compiled text: a row gives one for all its forms, or one for each."""
    pairs = []
    for forms, _, compiled in _table("The forms"):
        written, results = (re.findall(r"`([^`]+)`", cell) for cell in (forms, compiled))
        pairs += zip(written, results * (len(written) if len(results) == 1 else 1), strict=True)
    return pairs


_FORMS = _forms()


@pytest.mark.parametrize("form, compiled", _FORMS)
def test_form_of_the_documentation(form: str, compiled: str):
    assert str(parse_constraint(form)) == compiled


def test_the_forms_of_the_documentation_are_read():
    assert len(_FORMS) > 25


@pytest.mark.parametrize(
    "text, position, found",
    [
        ("=>1.2", 2, ">"),
        (">=", 1, ">="),
        (">=1.2 <", 7, "<"),
        ("1.2-1.5", 1, "1.2-1.5"),
        ("1.2 -", 5, "-"),
        (">=1 1..2", 5, "1..2"),
        ("1.x.3", 1, "1.x.3"),
        ("^1 ||", 6, ""),
        ("|| 1", 1, "||"),
        ("1.2 | 1.3", 5, "|"),
        (">=1 && <2", 5, "&"),
        (">=1,", 4, ","),
        (">=1,,<2", 4, ","),
        ("newest", 1, "newest"),
        ("~=1", 3, "1"),
        ("~=1.4.x", 3, "1.4.x"),
        ("===1.0", 3, "="),
        (">=1 ٣", 5, "٣"),
        ("1" * 1001, 1001, ""),
    ],
)
def test_what_is_not_understood_is_named_with_its_place(text: str, position: int, found: str):
    with pytest.raises(ConstraintError) as caught:
        parse_constraint(text)
    assert caught.value.fields["position"] == position
    assert caught.value.fields["found"] == found
    assert caught.value.hint
    assert len(caught.value.message) < 300


def test_a_hyphen_without_spaces_gets_the_right_spelling():
    with pytest.raises(ConstraintError) as caught:
        parse_constraint("1.2-1.5")
    assert "1.2 - 1.5" in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["", "one", "1.2.3.x", "^1", "1.2 1.3"])
def test_other_text_is_no_version(text: str):
    with pytest.raises(ConstraintError):
        parse_version(text)
    with pytest.raises(ConstraintError):
        parse_constraint("*").matches(text)
    with pytest.raises(ConstraintError):
        parse_constraint(">2 <1").matches(text)


@pytest.mark.parametrize("text", [">2 <1", "1.2.3 1.2.4", ">*", "!=*", "<0", "=1.0.0 !=1.0.0", "^1 ^2", ">=2.0a1 ^1"])
def test_a_contradiction_is_empty_and_not_an_error(text: str):
    constraint = parse_constraint(text)
    assert constraint.is_empty
    assert parse_constraint(str(constraint)).is_empty


def test_equal_ranges_are_equal_constraints_whatever_the_words():
    assert parse_constraint("^1.2.0") == parse_constraint(">=1.2, <2") == parse_constraint("1.2.x || >=1.3 <2.0.0")
    assert hash(parse_constraint("1.x")) == hash(parse_constraint("^1"))
    assert parse_constraint("~1").text == "~1"
    assert parse_constraint("~1").ranges == (VersionRange("1.0.0", "2.0.0"),)


def test_newest_is_the_newest_and_as_written():
    versions = ["1.9", "1.10", "2.0rc1", "1.2.0", "not a version", "1.10.0.post1"]
    assert newest(versions, parse_constraint("latest")) == "1.10.0.post1"
    assert newest(versions, parse_constraint("<1.10")) == "1.9"
    assert newest(versions, parse_constraint(">=2.0rc1")) == "2.0rc1"
    assert newest(versions, parse_constraint("^3")) is None
    assert newest([], parse_constraint("*")) is None


# Few numbers, so that bounds and versions often meet.
_numbers = st.lists(st.integers(0, 2), min_size=1, max_size=3).map(lambda parts: ".".join(map(str, parts)))
_suffixes = st.sampled_from(["", "", "", "a1", "rc1", ".dev1", ".post1", ".post1.dev1", "rc1.post1", "+cpu", "rc1+cpu"])
_versions = st.builds(str.__add__, _numbers, _suffixes)
_terms = st.one_of(_versions, _numbers, _numbers.map("{}.x".format), st.just("*"))
_signs = st.sampled_from(["", "=", ">", ">=", "<", "<=", "!=", "^", "~"])
_comparisons = st.one_of(
    st.builds(str.__add__, _signs, _terms),
    st.builds("{} - {}".format, _terms, _terms),
)
_alternatives = st.lists(_comparisons, min_size=1, max_size=3).map(", ".join)
_constraints = st.lists(_alternatives, min_size=1, max_size=3).map(" || ".join)

_LINE = [
    f"{major}.{minor}.{patch}{suffix}"
    for major, minor, patch in itertools.product(range(4), repeat=3)
    for suffix in ("", ".dev1", "a1", "rc1", "rc1.post1", ".post1", ".post1.dev1", "+cpu", "rc1+cpu")
]


@given(_constraints)
def test_canonical_text_parses_to_the_same_value(text: str):
    constraint = parse_constraint(text)
    again = parse_constraint(str(constraint))
    assert again == constraint
    assert str(again) == str(constraint)


@given(_constraints, _versions)
def test_an_alternative_holds_if_all_its_comparisons_do_and_a_constraint_if_one_alternative_does(
    text: str, version: str
):
    expected = any(parse_constraint(one).matches(version) for one in text.split(" || "))
    assert parse_constraint(text).matches(version) is expected
    if not parse_version(version).is_prerelease:
        by_comparison = any(
            all(parse_constraint(comparison).matches(version) for comparison in one.split(", "))
            for one in text.split(" || ")
        )
        assert parse_constraint(text).matches(version) is by_comparison


@given(_constraints, _constraints, _versions)
def test_both_is_and(first: str, second: str, version: str):
    a, b = parse_constraint(first), parse_constraint(second)
    met = both(a, b)
    assert met.matches(version) is (a.matches(version) and b.matches(version))
    assert parse_constraint(met.text) == met
    assert both(b, a) == met


@given(_constraints)
def test_both_with_any_and_with_itself_changes_no_match(text: str):
    constraint = parse_constraint(text)
    merged = both(constraint, constraint)
    assert all(merged.matches(version) is constraint.matches(version) for version in _LINE[::7])
    assert both(constraint, parse_constraint("<0")).is_empty


@settings(max_examples=60)
@given(_comparisons.filter(lambda text: "!=" not in text))
def test_matches_are_one_stretch_of_the_line_of_releases(text: str):
    constraint = parse_constraint(text)
    line = sorted((v for v in _LINE if not parse_version(v).is_prerelease), key=parse_version)
    inside = [constraint.matches(version) for version in line]
    assert sum(1 for _ in itertools.groupby(inside)) <= 3
    assert len([inner for inner, _ in itertools.groupby(inside) if inner]) <= 1


@given(_alternatives, _versions)
def test_a_prerelease_matches_only_where_one_of_its_release_is_named(text: str, version: str):
    named = {
        parse_version(parse_version(word).base_version)
        for word in re.findall(r"[0-9][0-9a-z.+]*", text)
        if not word.endswith("x") and parse_version(word).is_prerelease
    }
    found = parse_version(version)
    if found.is_prerelease and parse_version(found.base_version) not in named:
        assert not parse_constraint(text).matches(version)


@given(st.text(alphabet="0123456789.x*^~<>=!|,- vrcposta+", max_size=20))
def test_any_text_is_read_or_refused_and_nothing_else(text: str):
    try:
        constraint = parse_constraint(text)
    except ConstraintError as error:
        assert 1 <= error.fields["position"] <= len(text) + 1  # noqa: PT017 - either outcome is right
    else:
        assert parse_constraint(str(constraint)) == constraint


@given(st.lists(_versions, max_size=8), _constraints)
def test_newest_is_a_match_that_no_other_match_exceeds(versions: list[str], text: str):
    constraint = parse_constraint(text)
    found = newest(versions, constraint)
    matching = [version for version in versions if constraint.matches(version)]
    if found is None:
        assert not matching
    else:
        assert found in matching
        assert all(parse_version(other) <= parse_version(found) for other in matching)


def test_a_constraint_is_a_frozen_value():
    with pytest.raises(AttributeError):
        parse_constraint("^1").text = "^2"  # type: ignore[misc]
    assert isinstance(parse_constraint("^1"), VersionConstraint)
