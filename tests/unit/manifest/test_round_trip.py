"""Laws: what is printed parses to the same value, and no text at all gets an exception out of the parser."""

import importlib.util
from pathlib import Path

from hypothesis import HealthCheck, given, settings, strategies as st

from mlmodelscope.core.manifest import ModelManifest
from mlmodelscope.manifest import format_manifest, format_problem, parse_manifest, read_manifest

_spec = importlib.util.spec_from_file_location("manifest_values", Path(__file__).with_name("values.py"))
assert _spec is not None
assert _spec.loader is not None
values = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(values)

FIXTURES = [path.read_text() for path in sorted((Path(__file__).parent / "fixtures").glob("*.yml"))]
slow = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
fuzz = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check_round_trip(value):
    text = format_manifest(value)
    reading = parse_manifest(text, "canonical")
    assert [format_problem(one) for one in reading.problems if one.level == "error"] == []
    assert {one.code for one in reading.problems} <= {"integer_arithmetic", "image_device"}
    assert reading.value == value
    assert reading.value.digest == value.digest
    assert format_manifest(reading.value) == text


@slow
@given(values.models())
def test_models(value: ModelManifest):
    check_round_trip(value)


@slow
@given(values.datasets)
def test_datasets(value):
    check_round_trip(value)


@slow
@given(values.frameworks)
def test_frameworks(value):
    check_round_trip(value)


def check_is_ours(text: str):
    reading = parse_manifest(text, "fuzz")
    lines = text.count("\n") + sum(text.count(char) for char in "\r\x85\u2028\u2029") + 1
    for problem in reading.problems:
        assert 1 <= problem.line <= lines + 1
        assert problem.column >= 1
        assert format_problem(problem)
    assert (reading.value is None) == any(one.level == "error" for one in reading.problems)
    if reading.value is not None:
        check_round_trip_of_read(reading.value)


def check_round_trip_of_read(value):
    again = parse_manifest(format_manifest(value), "again").value
    assert again == value
    assert again.digest == value.digest


@fuzz
@given(st.text(max_size=200))
def test_any_text(text: str):
    check_is_ours(text)


@fuzz
@given(st.text("{}[]:,-&*!|>'\"%@`#?\t\n \\ab01.<~", max_size=60))
def test_text_of_yaml_signs(text: str):
    check_is_ours(text)


@fuzz
@given(st.binary(max_size=200))
def test_any_bytes(tmp_path_factory, content: bytes):
    path = tmp_path_factory.getbasetemp() / "fuzz.yml"
    path.write_bytes(content)
    reading = read_manifest(path)
    assert reading.value is not None or reading.problems


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(FIXTURES))
    junk = st.sampled_from(
        [
            "",
            " ",
            "\n",
            "[",
            "{",
            "}",
            ": ",
            "- ",
            "0",
            "-1",
            ".nan",
            "1e999",
            "null",
            "true",
            "'",
            "&a ",
            "*a",
            "!!x ",
            "9" * 500,
        ]
    )
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        text = text[:start] + draw(junk) + text[end:]
    return text


@st.composite
def swapped(draw: st.DrawFn) -> str:
    """A fixture in which the values of some lines were exchanged: right YAML of wrong types."""
    lines = draw(st.sampled_from(FIXTURES)).split("\n")
    keyed = [index for index, line in enumerate(lines) if ": " in line]
    first, second = draw(st.sampled_from(keyed)), draw(st.sampled_from(keyed))
    key, _, mine = lines[first].partition(": ")
    other, _, theirs = lines[second].partition(": ")
    lines[first] = f"{key}: {theirs}"
    lines[second] = f"{other}: {mine}" if first != second else f"{key}: [{mine}, ~, {{a: 1}}]"
    return "\n".join(lines)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated() | swapped())
def test_mutated_manifests(text: str):
    check_is_ours(text)
