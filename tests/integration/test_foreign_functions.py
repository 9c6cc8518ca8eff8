"""A manifest's functions beside a framework elsewhere: they import what it requires, and fail as they do here."""

import gzip
import importlib.util
import json
import os

import pytest
from tests.integration.shelf import Shelf

from mlmodelscope.library import make_request
from mlmodelscope.provision import pip_settings

pytestmark = [pytest.mark.needs("registry"), pytest.mark.xdist_group("foreign-functions")]

# a small package that is no part of our own environment
PACKAGE, REQUIREMENT = "roman", "roman==4.2"
# one that no registry has
STRANGER = "strangersownpackage"
PHOTOS = {
    "0-red/bright.ppm": (250, 20, 30),
    "0-red/dark.ppm": (90, 20, 10),
    "1-green/bright.ppm": (10, 240, 20),
    "1-green/misplaced.ppm": (200, 100, 0),
    "2-blue/bright.ppm": (10, 30, 255),
}
# the pixels of the .ppm files above, 12 x 10, cut to what the model takes
PREPROCESS = """
import numpy as np
{lines}

def fun(env, data):
    env.setdefault("seen", []).append(len(data))
    pixels = np.frombuffer(data[-360:], np.uint8).reshape(10, 12, 3)[:8, :8]
    return (pixels / whole / 255).astype(np.float32).transpose(2, 0, 1)
"""
POSTPROCESS = """
def fun(env, data):
    return [{"index": place, "score": value} for place, value in enumerate(data + 0 * len(env["seen"]))]
"""
IMPORTING = "import roman\nwhole = roman.fromRoman('IV')"
INPUTS = [{"type": "image", "layer_name": "image", "element_type": "float32"}]
OUTPUTS = [{"type": "probability", "layer_name": "scores", "element_type": "float32", "features_url": "labels.txt"}]


@pytest.fixture(scope="module")
def lab(tmp_path_factory, make_lab):
    """One home for all, so that the environment is made once."""
    assert importlib.util.find_spec(PACKAGE) is None, f"{PACKAGE} is installed here: these tests would show nothing"
    lab = make_lab(tmp_path_factory.mktemp("functions"))
    yield lab
    lab.wait_until_all_gone()
    assert list(lab.home.glob("runs/*")) == []


def model(lab, name, lines=IMPORTING, requirements=(REQUIREMENT,), **changes):
    fields = {
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "preprocess": PREPROCESS.format(lines=lines),
        "postprocess": POSTPROCESS,
        "requirements": list(requirements) or None,
    }
    return lab.model(name, **{**fields, **changes})


def raising(lab, name, body, stage="preprocess"):
    source = "\n".join([IMPORTING, "def fun(env, data):", *(f"    {line}" for line in body.splitlines())])
    return model(lab, name, **{stage: source})


def run(lab, manifest, **fields):
    return lab.evaluate(manifest, dataset=lab.photos(colours=PHOTOS), measure="accuracy", **fields)


def answers(lab, record):
    with lab.workspace() as workspace:
        content = workspace.store.read_artifact(record.artifact("predictions.jsonl.gz"))
    return [json.loads(line) for line in gzip.decompress(content).splitlines()]


def test_what_a_function_requires_is_there_and_the_answers_are_those_of_the_same_function_here(lab):
    elsewhere = run(lab, model(lab, "elsewhere"))
    assert elsewhere.failure is None
    assert elsewhere.software.environment.kind == "venv"
    assert elsewhere.software.packages[PACKAGE] == "4.2"
    assert PACKAGE not in elsewhere.software.pipeline_packages
    here = run(lab, model(lab, "here", "whole = 4", requirements=()))
    assert here.software.environment.kind == "local"
    assert elsewhere.accuracy == here.accuracy
    assert elsewhere.accuracy.top1.value == pytest.approx(4 / 5)
    assert answers(lab, elsewhere) == answers(lab, here)


@pytest.mark.parametrize("scenario", [{"timed": "inference"}, {"type": "batched", "batch_size": 2}])
def test_they_run_wherever_samples_are_prepared(lab, scenario):
    record = lab.evaluate(model(lab, "measured"), dataset=lab.photos(colours=PHOTOS), scenario=scenario)
    assert record.failure is None
    assert record.accuracy.top1.value == pytest.approx(4 / 5)


def test_threads_of_an_offline_run_take_turns(lab):
    manifest = model(lab, "offline", postprocess=POSTPROCESS.replace('env["seen"]', "env"))
    request = {"type": "offline", "launches": 1, "batch_size": 2, "workers": 3}
    with lab.workspace() as workspace:
        made = make_request(models=(manifest,), dataset=lab.photos(colours=PHOTOS), scenario=request)
        (record,) = workspace.evaluate(made)
    assert record.failure is None
    assert answers(lab, record) == answers(lab, run(lab, manifest))


def test_a_step_before_it_stays_here(lab):
    """Steps decode with our Pillow; the function that follows is given the array in the other environment."""
    changes = {"preprocess": None, "after_preprocess": f"{IMPORTING}\ndef fun(env, data):\n    return data / whole\n"}
    steps = [{"decode": {}}, {"crop": {"method": "top_left", "size": [8, 8]}}, {"cast": "float32"}, {"layout": "CHW"}]
    record = run(
        lab,
        model(lab, "steps", **changes, inputs=[{**INPUTS[0], "steps": steps}], postprocess=None, outputs=ranked()),
    )
    assert record.failure is None
    assert record.accuracy.top1.value == pytest.approx(4 / 5)


def ranked():
    return [{**OUTPUTS[0], "steps": [{"topk": {"k": 3}}]}]


@pytest.mark.parametrize(
    ("body", "line", "reason"),
    [
        ("data = data[1:]\nraise ValueError('no good')", 5, "ValueError: no good"),
        ("roman.fromRoman('nonsense')", 4, "InvalidRomanNumeralError: Invalid Roman numeral: nonsense"),
        ("import sys\nsys.exit(3)", 5, "SystemExit: 3"),
        ("return None", None, "it returned nothing"),
        ("return {1, 2}", None, "its result holds a value of type set"),
    ],
)
def test_a_function_that_fails_there_is_told_as_here(lab, body, line, reason):
    record = run(lab, raising(lab, "failing", body))
    assert record.status == "failed"
    assert record.failure.code == "function_failed"
    assert reason in record.failure.message
    assert record.failure.fields["sample"] in PHOTOS
    assert f"{record.failure.fields['sample']}: the preprocess function failed" in record.failure.message
    assert record.failure.fields["line"] == line
    assert record.failure.fields["stage"] == "preprocess"


def test_a_package_that_is_not_required_is_not_there(lab):
    record = run(lab, model(lab, "absent", "import humanize\nwhole = 4"))
    assert record.failure.code == "function_failed"
    assert "ModuleNotFoundError: No module named 'humanize'" in record.failure.message
    assert record.failure.stage == "load"
    assert record.failure.fields["line"] == 3


def test_a_function_that_hangs_is_ended_by_the_limit_of_a_sample(lab):
    record = run(lab, raising(lab, "hanging", "import time\ntime.sleep(1000)"), limits={"sample_seconds": 2})
    assert record.failure.code == "time_limit"
    assert record.failure.fields["limit"] == "sample"
    lab.wait_until_all_gone()


def test_a_function_that_ends_its_process_is_named(lab):
    record = run(lab, raising(lab, "ending", "import os\nos._exit(7)"))
    assert record.failure.code == "worker_crashed"
    assert "left with exit code 7 in a function of the manifest" in record.failure.message


def test_chatter_of_a_function_breaks_nothing(lab):
    lines = IMPORTING + "\nimport os\nos.write(1, b'noise' * 100)\nprint('more')"
    assert run(lab, model(lab, "chatty", lines)).failure is None


@pytest.mark.needs("bwrap")
def test_a_strangers_functions_run_there_in_the_sandbox(lab):
    secret = lab.write("private/secret.txt", "not for strangers")
    lines = IMPORTING + f"\nimport os\nassert not os.path.exists({str(secret)!r})"
    record = run(lab, model(lab, "stranger", lines), is_trusted=False)
    assert record.failure is None
    assert record.software.environment.is_sandboxed
    assert record.accuracy.top1.value == pytest.approx(4 / 5)


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A stranger's own packages, beside those of the registry."""
    links = [str(tmp_path / "shelf"), os.environ.get("PIP_FIND_LINKS", "")]
    monkeypatch.setenv("PIP_FIND_LINKS", " ".join(filter(None, links)))
    pip_settings._configured.cache_clear()
    yield Shelf(tmp_path / "shelf")
    pip_settings._configured.cache_clear()


def test_a_strangers_package_is_not_built_outside_of_the_sandbox(lab, shelf, tmp_path):
    mark = tmp_path / "was-here"
    shelf.add_source(STRANGER, "1.0", mark)
    manifest = model(lab, "building", requirements=(REQUIREMENT, f"{STRANGER}==1.0"))
    record = run(lab, manifest, is_trusted=False)
    assert record.failure.code == "unsatisfiable"
    assert record.failure.fields["packages"] == [STRANGER]
    assert not mark.exists()


@pytest.mark.needs("bwrap")
def test_a_strangers_package_starts_with_python_in_the_sandbox_alone(lab, shelf, tmp_path):
    mark = tmp_path / "was-here"
    line = f"import os, pathlib; os.environ['STARTED'] = 'yes'; pathlib.Path({str(mark)!r}).touch()\n"
    shelf.add(STRANGER, "2.0", more={"stranger.pth": line})
    lines = IMPORTING + "\nimport os\nassert os.environ['STARTED'] == 'yes'"
    manifest = model(lab, "starting", lines, requirements=(REQUIREMENT, f"{STRANGER}==2.0"))
    record = run(lab, manifest, is_trusted=False)
    assert record.failure is None
    assert record.software.packages[STRANGER] == "2.0"
    assert not mark.exists()
