"""Damaged manifests of every kind: the reader answers with problems or a value, never with an exception of its own."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import mlmodelscope
from mlmodelscope.manifest import format_manifest, parse_manifest

pytestmark = pytest.mark.fuzz

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "300"))
ZOO = Path(mlmodelscope.__file__).parent / "zoo"
TEXTS = [path.read_text(encoding="utf-8") for path in sorted(ZOO.glob("*/*.yml"))]
SIGNS = [*"{}[]:-|>#'~", '"', "&a", "*a", "!!binary", "<<", "? ", "\t", "\n", "  ", "\u0085", "\x00", "\ud7ff"]
WORDS = [*SIGNS, "1e999", "0x", ".nan", "steps", "decode", "null", "true", "-1", "1.10", "9" * 400]


@st.composite
def damaged(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 30)))
        match draw(st.sampled_from(["cut", "word", "double", "line", "text"])):
            case "cut":
                text = text[:start] + text[end:]
            case "word":
                text = text[:start] + draw(st.sampled_from(WORDS)) + text[end:]
            case "double":
                text = text[:end] + text[start:]
            case "line":
                lines = text.split("\n")
                place = draw(st.integers(0, len(lines) - 1))
                indent = draw(st.integers(0, 8))
                lines[place] = " " * indent + lines[place].strip()
                text = "\n".join(lines)
            case _:
                text = text[:start] + draw(st.text(max_size=8)) + text[end:]
    return text


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(damaged())
def test_a_damaged_manifest_gives_problems_or_a_value(text):
    reading = parse_manifest(text, "fuzz.yml")
    errors = [problem for problem in reading.problems if problem.level == "error"]
    assert (reading.value is None) == bool(errors)
    assert all(problem.line >= 1 and problem.column >= 1 for problem in reading.problems)
    if reading.value is not None:
        again = parse_manifest(format_manifest(reading.value), "again.yml")
        assert again.value == reading.value
