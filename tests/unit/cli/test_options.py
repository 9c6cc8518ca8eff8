"""Values as JSON, and the workspace that commands open."""

import io
import json
import sys

import click
import pytest
from click.testing import CliRunner

from mlmodelscope.analyse.comparison import Evidence, compare
from mlmodelscope.cli.options import as_json, echo_json, open_workspace, plain
from mlmodelscope.core.estimate import Estimate, Interval
from mlmodelscope.core.record import Record
from mlmodelscope.core.span import TraceLevel
from mlmodelscope.testing.records import example_record, example_system


def test_values_and_dataclasses_become_plain_json():
    estimate = Estimate(1.5, Interval(1.0, 2.0, 0.95, "launches"), 10, 2)
    assert plain({"a": estimate, 2: (TraceLevel.MODEL, None)}) == {
        "a": {
            "value": 1.5,
            "interval": {"low": 1.0, "high": 2.0, "confidence": 0.95, "basis": "launches"},
            "n": 10,
            "launches": 2,
        },
        "2": [2, None],
    }


def test_a_class_is_no_value():
    assert plain(Estimate) is Estimate


def test_a_record_is_printed_as_it_is_stored(capsys):
    record = example_record()
    echo_json(record)
    assert Record.model_validate_json(capsys.readouterr().out) == record


def test_a_comparison_is_printed_with_all_its_facts(capsys):
    left, right = example_record(), example_record(system=example_system(kernel="ü"))
    echo_json([compare(Evidence(left, [[1.0], [2.0]], ()), Evidence(right, [[1.0], [2.0]], ()))])
    text = capsys.readouterr().out
    (found,) = json.loads(text)
    assert (found["kind"], found["groups"], found["top1"]) == ("fair", ["system"], None)
    assert found["differences"] == [{"group": "system", "fact": "kernel", "left": "6.1.0", "right": "ü"}]
    assert "ü" in text


def test_the_option():
    @click.command()
    @as_json
    def command(is_json):
        click.echo(is_json)

    runner = CliRunner()
    assert [runner.invoke(command, arguments).output for arguments in ([], ["--json"])] == ["False\n", "True\n"]


@pytest.mark.parametrize("draws", [False, True])
def test_the_workspace_is_the_default_one_and_writes_nothing_by_itself(draws, tmp_path, monkeypatch):
    monkeypatch.setenv("MLMODELSCOPE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with open_workspace(draws=draws) as workspace:
        assert workspace.home == tmp_path / "home"
        assert workspace.catalogue.models()
    assert not (tmp_path / "home").exists()
    assert sys.stderr.getvalue() == ""
