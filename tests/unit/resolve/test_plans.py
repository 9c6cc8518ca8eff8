"""Requests, manifests and facts of a machine -> plans, or the reason why not."""

from dataclasses import replace

import pytest

from mlmodelscope.core.asset import Asset
from mlmodelscope.core.errors import ConstraintError, UnknownNameError, UnsatisfiableError, UsageError
from mlmodelscope.core.manifest import (
    DatasetManifest,
    FrameworkNeed,
    ModelInput,
    ModelManifest,
    ModelOutput,
    ModelSource,
    Synthetic,
)
from mlmodelscope.core.plugins import PREDICTOR_ALIASES
from mlmodelscope.core.request import Batched, EvaluationRequest
from mlmodelscope.core.span import TraceLevel
from mlmodelscope.resolve.plans import Facts, InstalledFramework, make_plan
from mlmodelscope.testing.records import example_manifest, example_system

DATASET = DatasetManifest(name="TinySet", version="1.0.0", layout=Synthetic(count=1, size=(1, 1)))


def installed(name, version, distribution=None):
    return InstalledFramework(name, f"package.{name}:Predictor", distribution, version, f"pip install 'x[{name}]'")


FRAMEWORKS = {
    "onnxruntime": installed("onnxruntime", "1.20.1", "onnxruntime-gpu"),
    "tflite": installed("tflite", None),
    "null": installed("null", "0.1.0"),
}


def canonical(name):
    key = name.lower().replace(" ", "").replace("-", "")
    key = PREDICTOR_ALIASES.get(key, key)
    return key if key in FRAMEWORKS else None


FACTS = Facts(example_system(), FRAMEWORKS, canonical, usable_cpus=8)


def model(framework="onnxruntime", version="*", **changes):
    values = {
        "name": "TinyNet",
        "version": "1.0.0",
        "framework": FrameworkNeed(name=framework, version=version),
        "inputs": (ModelInput(type="image"),),
        "outputs": (ModelOutput(type="probability"),),
        "source": ModelSource(graph=Asset(locations=("tiny.onnx",))),
    }
    return ModelManifest(**(values | changes))


def plan(manifest=None, dataset=DATASET, facts=FACTS, **request):
    pinned = example_manifest(digest="a" * 64) if dataset else None
    fields = {"models": ("TinyNet",)} | ({"dataset": "TinySet"} if dataset else {}) | request
    return make_plan(EvaluationRequest(**fields), manifest or model(), example_manifest(), dataset, pinned, facts)


def test_a_plan_pins_everything():
    found = plan(scenario=Batched(batch_size=4))
    assert found.framework.model_dump() == {
        "name": "onnxruntime",
        "version": "1.20.1",
        "distribution": "onnxruntime-gpu",
        "entry_point": "package.onnxruntime:Predictor",
    }
    assert found.model == model()
    assert (found.model_manifest, found.dataset, found.dataset_manifest.digest) == (
        example_manifest(),
        DATASET,
        "a" * 64,
    )
    assert (found.scenario.batch_size, found.environment.kind) == (4, "local")


def test_threads_are_the_usable_processors_unless_asked_for():
    assert (plan().threads, plan(threads=3).threads) == (8, 3)


def test_a_framework_without_a_package_is_its_own_distribution():
    assert plan(model("null", source=None)).framework.distribution == "null"


@pytest.mark.parametrize("name", ["onnxruntime", "OnnxRuntime", "ONNX-Runtime", "ort"])
def test_a_framework_is_found_in_any_case_and_by_alias(name):
    assert plan(model(name)).framework.name == "onnxruntime"
    assert plan(framework=name).framework.name == "onnxruntime"
    assert plan(model(name), framework="ort@>=1.17").framework.name == "onnxruntime"


def test_a_request_may_name_another_framework_and_then_the_manifest_s_constraint_does_not_count():
    other = model("tflite", ">=2 <3")
    assert plan(other, framework="onnxruntime").framework.name == "onnxruntime"
    assert plan(other, framework="onnxruntime@>=1.17 <2").framework.version == "1.20.1"


def test_even_if_nobody_registered_the_manifest_s_framework():
    assert plan(model("caffe", "=1"), framework="onnxruntime").framework.name == "onnxruntime"


@pytest.mark.parametrize(("manifest", "request_"), [(">=1.17 <2", None), ("*", "ort@1.20"), (">=1.20", "ort@<1.21")])
def test_manifest_and_request_must_both_hold(manifest, request_):
    assert plan(model(version=manifest), framework=request_).framework.version == "1.20.1"


@pytest.mark.parametrize(
    ("manifest", "asked", "message"),
    [
        (">=2", None, "onnxruntime 1.20.1 is installed, but >=2.0.0 is needed"),
        (">=1.17", "ort@<1.20", "onnxruntime 1.20.1 is installed, but >=1.17.0 <1.20.0 is needed"),
        (
            ">=1.17",
            "ort@<1.10",
            "no version of onnxruntime can satisfy both the manifest (>=1.17) and the request (<1.10)",
        ),
        (">=1.17", "ort@>2 <1", "no version of onnxruntime can satisfy '>2 <1'"),
    ],
)
def test_versions_that_do_not_fit(manifest, asked, message):
    with pytest.raises(UnsatisfiableError) as caught:
        plan(model(version=manifest), framework=asked, environment="local")
    assert caught.value.message == message


def test_the_versions_are_fields_of_the_error():
    with pytest.raises(UnsatisfiableError) as caught:
        plan(model(version=">=2"), environment="local")
    assert caught.value.fields == {"installed": "1.20.1", "needed": ">=2.0.0"}
    assert "--environment venv" in caught.value.hint


def test_a_framework_that_is_not_installed_comes_with_the_way_to_get_it():
    with pytest.raises(UnsatisfiableError, match="tflite is not installed here") as caught:
        plan(model("TFLite"), environment="local")
    assert caught.value.hint == "pip install 'x[tflite]'"


@pytest.mark.parametrize("manifest", [model("onnxruntme"), model()])
def test_an_unknown_framework_lists_near_names(manifest):
    with pytest.raises(UnknownNameError) as caught:
        plan(manifest, framework=None if manifest.framework.name == "onnxruntme" else "onnxruntme@1")
    assert caught.value.fields == {"kind": "framework", "name": "onnxruntme", "near": ["onnxruntime"]}


def test_a_constraint_that_cannot_be_read():
    with pytest.raises(ConstraintError):
        plan(framework="onnxruntime@>=")


def test_a_machine_that_will_do():
    assert plan(system="memory>=8GB, arch=amd64").request.system == "memory>=8GB, arch=amd64"


def test_every_reason_why_a_machine_will_not_do_is_given():
    with pytest.raises(UnsatisfiableError) as caught:
        plan(system="memory>=1TB, cores>=4, arch=arm64")
    assert len(caught.value.fields["unmet"]) == 2
    for word in ("memory", "arch", *caught.value.fields["unmet"]):
        assert word in caught.value.message
    assert "cores" not in caught.value.message


def test_nothing_to_run_on():
    with pytest.raises(UsageError, match="nothing to run the model on"):
        plan(dataset=None)
    assert plan(dataset=None, inputs=("cat.jpg",)).dataset is None


def test_a_model_without_a_source_runs_on_nothing_but_the_null_predictor():
    with pytest.raises(UsageError, match="TinyNet names no source"):
        plan(model(source=None))
    assert plan(model(source=None), framework="null").framework.name == "null"


def test_a_model_behind_an_address_may_be_the_programs_own():
    client = replace(installed("kserve-v2", "0.1.0"), takes_address=True)
    facts = Facts(example_system(), {"kserve-v2": client}, lambda name: "kserve-v2", usable_cpus=8)
    made = plan(model(source=None), facts=facts, framework="kserve-v2@http://host:80")
    assert (made.model.source, made.request.options["address"]) == (None, "http://host:80")


def test_an_address_with_a_password_is_refused_before_anything_keeps_it():
    client = replace(installed("kserve-v2", "0.1.0"), takes_address=True)
    facts = Facts(example_system(), {"kserve-v2": client}, lambda name: "kserve-v2", usable_cpus=8)
    with pytest.raises(UsageError) as caught:
        plan(model(source=None), facts=facts, framework="kserve-v2@grpc://me:secret@host:80")
    assert "secret" not in str(caught.value)


def test_no_framework_is_named_by_nothing():
    with pytest.raises(UnknownNameError, match="no framework named ''"):
        plan(framework="")


def test_what_cannot_be_done_yet_is_refused():
    with pytest.raises(UsageError, match="in this version"):
        plan(trace_level=TraceLevel.FULL)


def test_a_trusted_plan_has_no_sandbox_and_keeps_its_limits():
    found = plan(limits={"sample_seconds": None})
    assert (found.is_trusted, found.environment.is_sandboxed) == (True, False)
    assert (found.request.limits.sample_seconds, found.request.limits.memory_bytes) == (None, None)


def test_an_untrusted_plan_is_sandboxed_and_has_every_limit():
    found = plan(is_trusted=False, limits={"sample_seconds": None, "run_seconds": None})
    assert (found.is_trusted, found.environment.is_sandboxed) == (False, True)
    limits = found.request.limits
    assert (limits.sample_seconds, limits.run_seconds) == (60, 3600)
    system = FACTS.system
    assert limits.memory_bytes == min(system.memory_bytes, system.memory_limit_bytes or system.memory_bytes) // 2
    assert plan(is_trusted=False, limits={"memory_bytes": 5}).request.limits.memory_bytes == 5


def test_half_of_the_memory_is_of_what_the_control_group_leaves():
    facts = Facts(example_system(memory_bytes=8000, memory_limit_bytes=1000), FRAMEWORKS, canonical, usable_cpus=8)
    assert plan(facts=facts, is_trusted=False).request.limits.memory_bytes == 500


def test_unasked_a_framework_that_does_not_fit_gets_an_environment_of_its_own():
    made = plan(model(version=">=1.17"), framework="ort@<1.20")
    assert made.environment.kind == "venv"
    assert made.environment.need.requirements[0] == "onnxruntime==1.17.3"
    assert "numpy<2" in made.environment.need.requirements
    assert made.framework.version == ">=1.17.0 <1.20.0"


def test_a_framework_that_fits_stays_local_unless_asked_otherwise():
    assert plan(model(version=">=1.17")).environment.kind == "local"
    assert plan(model(version=">=1.17"), environment="venv").environment.kind == "venv"


def test_requirements_of_the_manifest_are_installed_beside_the_framework():
    made = plan(model(version=">=1.17").model_copy(update={"requirements": ("tinypackage>=2",)}))
    assert made.environment.kind == "venv"
    assert made.environment.need.requirements[-1] == "tinypackage>=2"


def test_the_image_is_that_of_the_manifest_or_the_request():
    images = {FACTS.system.architecture: {"cpu": "ours/ort:cpu", "gpu": "ours/ort:gpu"}}
    manifest = model(version=">=1.17").model_copy(update={"container": images})
    assert plan(manifest, environment="container").environment.image == "ours/ort:cpu"
    assert plan(manifest, environment="container=mine:2").environment.image == "mine:2"
    with pytest.raises(UnsatisfiableError, match="names no image"):
        plan(model(version=">=1.17"), environment="container")


def test_versions_without_a_known_stack():
    with pytest.raises(UnsatisfiableError, match="no software stack is known for onnxruntime") as caught:
        plan(model(version="<1"))
    assert ">=1.20" in caught.value.hint
