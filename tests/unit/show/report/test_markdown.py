"""The same facts as tables that a pull request can hold."""

import re

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.request import Batched, EvaluationRequest
from mlmodelscope.show.report.markdown import escape, format_markdown
from mlmodelscope.testing.records import (
    example_estimate,
    example_model,
    example_performance,
    example_record,
    example_system,
    failed_record,
)


def tables_of(text):
    """Tables as lists of rows; a bar that is escaped is text."""
    found, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("| "):
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif rows:
            found.append(rows)
            rows = []
    return found


def test_the_verdict_comes_first(make_report):
    record, other = example_record(), example_record(system=example_system(kernel="6.2.0"))
    text = format_markdown(make_report(record, other))
    assert text.startswith("# TinyNet: 2 evaluations\n\n## Comparability\n\n**A fair comparison: one factor differs.**")
    assert "- system: kernel: 6.1.0 -\\> 6.2.0" in text
    assert [row[2] for row in tables_of(text)[0][2:]] == ["fair: system differs"]


def test_every_table_is_whole(make_report, layers):
    text = format_markdown(make_report(example_record(), failed_record(), example_record(seed=1), layers=layers))
    tables = tables_of(text)
    assert len(tables) >= 8
    for table in tables:
        assert {len(row) for row in table} == {len(table[0])}
        assert set(table[1]) == {"---"}
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings == [
        "Comparability", "Summary", "Failed", "Accuracy", "Latency", "Slowest layers", "What to distrust", "Records",
    ]  # fmt: skip


def test_numbers_and_ids(make_report):
    record = example_record()
    text = format_markdown(make_report(record))
    assert "## Comparability" not in text
    assert "10.0 ms \\[9.90, 10.1\\]" in text
    assert "75.0 % \\[74.2, 75.8\\]" in text
    assert record.id in text
    assert record.model.manifest.digest in text


def test_a_failure_keeps_its_reason(make_report):
    text = format_markdown(make_report(failed_record()))
    assert "the worker died of signal 11 \\(SIGSEGV\\) while loading the model (stage load, worker\\_crashed)" in text
    assert "failed: worker\\_crashed" in text


def test_the_best_batch_size(make_report):
    def at(size, throughput):
        scenario = Batched(batch_size=size, launches=2)
        request = EvaluationRequest(models=("TinyNet",), dataset="TinySet", scenario=scenario)
        performance = example_performance(throughput=example_estimate(throughput))
        return example_record(scenario=scenario, request=request, performance=performance)

    text = format_markdown(make_report(at(1, 10.0), at(2, 20.0)))
    assert "the best batch size is 2; it was the largest that was tried." in text


@pytest.mark.parametrize("name", ["a|b", "a\nb", "<img src=x>", "@somebody", "[x](http://a)", "# big", "`code`", "\\|"])
def test_a_hostile_name_breaks_no_table(make_report, name):
    text = format_markdown(make_report(example_record(model=example_model(name=name)), example_record()))
    for table in tables_of(text):
        assert len({len(row) for row in table}) == 1
    assert "<img" not in text
    assert "@somebody" not in text
    assert "](http" not in text.replace("\\]\\(http", "")


@given(st.text())
def test_escaped_text_is_one_line_without_signs(text):
    escaped = escape(text)
    assert len(escaped.splitlines()) <= 1
    bare = re.sub(r"\\.|&(amp|lt|#64);", "", escaped)
    assert not set(bare) & set("|<`*_[]#@&")
