"""Whole evaluations with the framework in a virtual environment of its own, made for real."""

from pathlib import Path

import pytest

from mlmodelscope.library import make_request

pytestmark = [pytest.mark.needs("registry", "uv"), pytest.mark.xdist_group("hosting")]

# a second version beside the one that is installed here
OLDER = "onnxruntime@1.17.x"


@pytest.fixture
def warm(lab, tmp_path_factory):
    """A lab whose environments and package cache serve every test of this file."""
    return share(lab, tmp_path_factory, "environments", "cache")


@pytest.fixture
def cold(lab, tmp_path_factory):
    """A lab without environments, whose packages are in the cache."""
    return share(lab, tmp_path_factory, "cache")


def share(lab, tmp_path_factory, *names):
    shared = tmp_path_factory.getbasetemp().parent / "hosting-home"
    lab.home.mkdir(parents=True, exist_ok=True)
    for name in names:
        (shared / name).mkdir(parents=True, exist_ok=True)
        (lab.home / name).symlink_to(shared / name)
    return lab


def test_the_record_holds_the_stack_and_repeats_from_it_alone(cold):
    record = cold.evaluate(cold.model(), dataset=cold.photos(), framework=OLDER)
    assert record.status == "succeeded", record.failure
    assert record.accuracy.top1.value == pytest.approx(5 / 6)
    software, place = record.software, record.software.environment
    assert (place.kind, software.framework_version) == ("venv", "1.17.3")
    assert software.packages["onnxruntime"] == "1.17.3"
    assert software.packages["numpy"].startswith("1.")
    assert not {"mlmodelscope", "pydantic"} & set(software.packages), "something of ours is in there"
    assert software.pipeline_packages["pillow"]
    assert place.digest == place.stack.digest
    assert {p.name: p.version for p in place.stack.packages}.items() <= software.packages.items()
    assert all(len(package.sha256) == 64 for package in place.stack.packages)
    assert software.variables["ORT_DISABLE_TELEMETRY"] == "1"
    assert all(launch.peak_memory_bytes for launch in record.launches)

    removed = cold.run("environments", "remove", place.digest[:12])
    assert removed.code == 0, removed.err
    with cold.workspace() as workspace:
        again, verdict = workspace.reproduce(record.id)
    assert again.failure is None
    assert again.software.environment == place
    assert verdict.accuracy == "same answers"
    assert verdict.comparison.kind == "repetition", verdict.comparison.differences


def test_two_versions_side_by_side_are_a_fair_comparison(warm):
    model, photos = warm.model(), warm.photos()
    here = warm.evaluate(model, dataset=photos)
    there = warm.evaluate(model, dataset=photos, framework=OLDER)
    assert here.software.environment.kind == "local"
    with warm.workspace() as workspace:
        (comparison,) = workspace.compare([here.id, there.id])
    assert comparison.kind == "fair", comparison.differences
    assert [str(group) for group in comparison.groups] == ["framework"]
    assert comparison.flipped == 0


def test_inference_alone_is_timed_beside_the_framework(warm):
    scenario = {"timed": "inference", "min_queries": 12}
    record = warm.evaluate(warm.model(), dataset=warm.photos(), framework=OLDER, scenario=scenario)
    assert record.failure is None
    assert record.launches[0].queries >= 12
    assert record.performance.latency_median_ns.value > 0


def test_layers_are_traced_over_there(warm):
    record = warm.evaluate(warm.model(), dataset=warm.photos(), framework=OLDER, trace_level=3, trace_queries=2)
    assert record.failure is None
    assert record.trace.level == 3, record.warnings


@pytest.mark.needs("bwrap")
def test_a_strangers_manifest_runs_in_the_sandbox_and_in_the_environment(warm):
    record = warm.evaluate(warm.model(), dataset=warm.photos(), framework=OLDER, is_trusted=False)
    assert record.failure is None
    assert record.software.environment.is_sandboxed
    assert record.software.framework_version == "1.17.3"


def test_a_conflict_is_a_failed_record_with_the_conflict(warm):
    model = warm.model(requirements=["numpy>=2"])
    record = warm.evaluate(model, dataset=warm.photos(), framework=OLDER)
    assert (record.status, record.failure.stage, record.failure.code) == ("failed", "provision", "unsatisfiable")
    assert "numpy" in record.failure.message
    assert len(record.failure.message.splitlines()) <= 12


def test_a_model_that_the_framework_cannot_read(warm):
    model = warm.model()
    (Path(model).parent / "colours.onnx").write_bytes(b"no model")
    record = warm.evaluate(model, dataset=warm.photos(), framework=OLDER)
    assert (record.failure.stage, record.failure.code) == ("load", "model_format")


def test_the_command_line_says_where_it_ran(warm):
    done = warm.run(
        "evaluate", warm.model(), "-d", warm.photos(), "-f", OLDER, "--launches", "1", "--duration", "0", "--json"
    )
    assert done.code == 0, done.err
    (record,) = [done.json] if isinstance(done.json, dict) else done.json
    shown = warm.run("show", record["id"])
    assert "runs in    venv" in shown.out
    listed = warm.run("environments", "list", "--json")
    assert any(item["frameworks"] == ["onnxruntime"] for item in listed.json["environments"])


def test_a_large_install_needs_yes(warm, monkeypatch):
    from mlmodelscope.provision.environments import building

    monkeypatch.setattr(building, "ASKED_BYTES", 1)
    model = warm.model(requirements=["six==1.16.0"])
    record = warm.evaluate(model, dataset=warm.photos(), framework="onnxruntime@1.18.x")
    assert record.failure.code == "usage"
    assert "--yes" in (record.failure.hint or "") + record.failure.message


def test_an_unknown_kind_of_environment(warm):
    from mlmodelscope.core.errors import UsageError

    with pytest.raises(UsageError, match="environment"):
        make_request(models=("any",), environment="cloud")
