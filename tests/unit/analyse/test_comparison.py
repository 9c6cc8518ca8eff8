"""The comparability contract: which facts count, in which group, and what two records cost against each other."""

import math
from functools import partial

import pytest

from mlmodelscope.analyse.comparison import Evidence, compare, differences, factors
from mlmodelscope.core.answer import Classes, ClassScore, Custom, Prediction, RawTensors, TensorFacts
from mlmodelscope.core.factors import FactorGroup
from mlmodelscope.core.record import AssetFacts, Failure, StepFacts
from mlmodelscope.core.request import Batched, Environment, EvaluationRequest, Limits, SingleStream
from mlmodelscope.core.system import Cache, SystemFacts
from mlmodelscope.testing.records import (
    example_dataset,
    example_launch,
    example_manifest,
    example_model,
    example_performance,
    example_record,
    example_software,
    example_system,
    failed_record,
)

DATA, PIPELINE, MODEL, FRAMEWORK, PRECISION, EXECUTION, SYSTEM, SCENARIO = FactorGroup


def digest(letter):
    return letter * 64


def step(letter):
    return StepFacts(name="crop", digest=digest(letter))


def asset(role="graph", **changes):
    return AssetFacts(**({"role": role, "location": "a", "sha256": digest("1"), "size_bytes": 1} | changes))


def execution(**changes):
    return example_record().execution.model_copy(update=changes)


def packages(**changes):
    return example_software(packages=example_software().packages | changes)


def with_request(**changes):
    return {"request": EvaluationRequest(models=("TinyNet",), dataset="TinySet", threads=2, **changes)}


def with_scenario(scenario):
    return {
        "scenario": scenario,
        "request": EvaluationRequest(models=("TinyNet",), dataset="TinySet", scenario=scenario),
    }


def groups_of(left, right):
    return list(dict.fromkeys(item.group for item in differences(left, right)))


CHANGES = {
    DATA: {
        "another set": {"dataset": example_dataset(manifest=example_manifest(digest=digest("d")))},
        "another split": {"dataset": example_dataset(split="training")},
        "fewer samples": {"dataset": example_dataset(sample_count=63, sample_ids_digest=digest("e"))},
        "other samples": {"dataset": example_dataset(sample_ids_digest=digest("e"))},
        "other files": {"dataset": example_dataset(assets=(asset("data"),))},
        "no data set": {"dataset": None},
    },
    PIPELINE: {
        "a step": {"model": example_model(steps=(step("a"), *example_model().steps[1:]))},
        "a step more": {"model": example_model(steps=(*example_model().steps, step("a")))},
        "the order": {"model": example_model(steps=example_model().steps[::-1])},
        "the decoder": {"software": packages(pillow="11.1.0")},
        "numpy": {"software": packages(numpy="2.2.0")},
        "another resizer": {"software": packages(**{"opencv-python-headless": "4.10.0"})},
        "a library": {"software": example_software(libraries={"pillow_jpeg": "libjpeg-turbo 2.1.0"})},
        "the labels": {"model": example_model(assets=(*example_model().assets, asset("labels")))},
    },
    MODEL: {"the weights": {"model": example_model(weights_digest=digest("w"))}},
    FRAMEWORK: {
        "the framework": {"software": example_software(framework="tflite")},
        "its version": {"software": example_software(framework_version="1.19.0")},
        "a package": {"software": packages(protobuf="4.25.0")},
        "a package more": {"software": packages(flatbuffers="24.3.25")},
        "Python": {"software": example_software(python="3.12.1")},
        "its implementation": {"software": example_software(implementation="PyPy")},
        "a variable": {"software": example_software(variables={"OMP_NUM_THREADS": "2", "ORT_DISABLE_TELEMETRY": "1"})},
        "an environment": {"software": example_software(environment=Environment(kind="venv", digest=digest("a")))},
        "an image": {"software": example_software(environment=Environment(kind="container", digest=digest("b")))},
        "the converted file": {"model": example_model(assets=(asset(converted_sha256=digest("c")),))},
        "the converter": {"model": example_model(assets=(asset(converter="tfjs", converter_digest=digest("c")),))},
        "converted weights": {
            "model": example_model(assets=(*example_model().assets, asset("weights", converted_sha256=digest("c"))))
        },
    },
    PRECISION: {"the precision": {"execution": execution(precision="float16")}},
    EXECUTION: {
        "threads": {
            "execution": execution(threads=1),
            "software": example_software(variables={"OMP_NUM_THREADS": "1"}),
        },
        "the provider": {"execution": execution(provider="CUDAExecutionProvider")},
        "the optimisation": {"execution": execution(optimization="basic")},
        "the device": {"execution": execution(device="gpu")},
        "a framework's option": with_request(options={"arena": "off"}, scenario=SingleStream(launches=2)),
    },
    SYSTEM: {
        **{
            name: {"system": example_system(**{name: value})}
            for name, value in {
                "architecture": "arm64",
                "cpu_model": "Example CPU 3000",
                "cpu_vendor": None,
                "cpu_features": ("avx2",),
                "sockets": 2,
                "cores": 8,
                "logical_cpus": 16,
                "usable_cpus": 4,
                "cpu_quota": 2.0,
                "threads_per_core": 1,
                "frequency_max_hz": 3_000_000_000,
                "governor": "performance",
                "turbo": False,
                "caches": (Cache(level=1, type="data", size_bytes=65_536, instances=4),),
                "numa_nodes": 2,
                "memory_bytes": 2**30,
                "memory_limit_bytes": 2**29,
                "swap_bytes": 0,
                "kernel": "6.2.0",
                "operating_system": "Alpine Linux 3.20",
                "libc": "musl 1.2.5",
                "virtualization": "kvm",
                "accelerators": ("Example GPU",),
            }.items()
        },
        "unknown": {"system": None},
    },
    SCENARIO: {
        "the timed region": with_scenario(SingleStream(launches=2, timed="inference"))
        | {"dataset": example_dataset(performance_set=("a", "b"))},
        "the duration": with_scenario(SingleStream(launches=2, min_duration_ns=1)),
        "the queries": with_scenario(SingleStream(launches=2, min_queries=1)),
        "the warm-up": with_scenario(SingleStream(launches=2, warmup_queries=0)),
        "the launches": with_scenario(SingleStream(launches=3)),
        "the performance set": with_scenario(SingleStream(launches=2, performance_set=8)),
        "the seed": {"seed": 1},
        "what is measured": with_request(measure="performance", scenario=SingleStream(launches=2)),
        "our version": {"software": example_software(mlmodelscope="0.2.0")},
        "our package": {
            "software": example_software(mlmodelscope="0.2.0", packages=packages(mlmodelscope="0.2.0").packages)
        },
    },
}


@pytest.mark.parametrize(
    ("group", "changes"),
    [
        pytest.param(group, changes, id=f"{group}: {name}")
        for group, cases in CHANGES.items()
        for name, changes in cases.items()
    ],
)
def test_a_fact_counts_in_its_own_group_alone(group, changes):
    left, right = example_record(), example_record(**changes)
    assert groups_of(left, right) == groups_of(right, left) == [group]


def test_every_system_fact_is_tried_above():
    assert set(SystemFacts.model_fields) - {"hostname_digest"} == set(CHANGES[SYSTEM]) - {"unknown"}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="ids and times"),
        pytest.param({"launches": (example_launch(0, load_ns=1), example_launch(1))}, id="launches and their noise"),
        pytest.param({"performance": example_performance(5e6), "accuracy": None}, id="results"),
        pytest.param({"system": example_system(hostname_digest="f" * 16)}, id="an equal machine of another name"),
        pytest.param(
            {"model": example_model(manifest=example_manifest(origin="b.yml", base="/b", text="# moved"))},
            id="where the manifest lies",
        ),
        pytest.param(
            {"model": example_model(assets=(example_model().assets[0].model_copy(update={"location": "mirror"}),))},
            id="where the file came from",
        ),
        pytest.param({"limits": Limits(run_seconds=None)}, id="limits that were not met"),
        pytest.param({"origin": "imported", "is_trusted": False, "warnings": ("beware",)}, id="how it was stored"),
    ],
)
def test_these_never_count(changes):
    assert differences(example_record(), example_record(**changes)) == []


def test_the_batch_size_is_execution_and_not_scenario():
    left, right = (example_record(scenario=Batched(batch_size=size, launches=2)) for size in (4, 8))
    (found,) = differences(left, right)
    assert (found.group, found.fact, found.left, found.right) == (EXECUTION, "batch_size", 4, 8)


@pytest.mark.parametrize(
    ("changes", "group"),
    [
        ({"software": None}, None),
        ({"execution": None}, None),
        ({"system": None}, SYSTEM),
        ({"dataset": None}, DATA),
        ({"dataset": example_dataset(sample_count=0, sample_ids_digest="")}, DATA),
        ({"software": example_software(environment=Environment(kind="container"))}, FRAMEWORK),
    ],
)
def test_what_neither_record_knows_counts_as_different(changes, group):
    found = differences(example_record(**changes), example_record(**changes))
    assert found
    assert all(None in (item.left, item.right) for item in found)
    assert group is None or {item.group for item in found} == {group}


def test_software_that_is_unknown_is_unknown_in_every_group_it_would_decide():
    left, right = example_record(software=None), example_record(software=None)
    assert groups_of(left, right) == [PIPELINE, FRAMEWORK, SCENARIO]


def test_weights_that_were_never_fetched_are_unknown_and_a_model_without_any_is_known_to_have_none():
    bare = {"model": example_model(weights_digest=None, assets=())}
    assert groups_of(example_record(**bare), example_record(**bare)) == []
    assert MODEL in groups_of(failed_record(**bare), failed_record(**bare))


def test_every_group_has_facts_and_no_fact_is_in_two_groups():
    found = factors(example_record())
    assert list(found) == list(FactorGroup)
    assert all(found.values())
    names = [name for facts in found.values() for name in facts]
    assert len(names) == len(set(names))


def test_one_original_run_in_two_formats_differs_in_the_framework_alone():
    original = digest("0")
    as_onnx = example_model(
        weights_digest=original,
        assets=(
            asset(sha256=original, converted_sha256=digest("1"), converter="to-onnx", converter_digest=digest("2")),
        ),
    )
    as_it_is = example_model(weights_digest=original, assets=(asset(sha256=original),))
    left = example_record(model=as_onnx)
    right = example_record(model=as_it_is, software=example_software(framework="tflite", framework_version="2.1.0"))
    assert groups_of(left, right) == [FRAMEWORK]
    assert {item.fact for item in differences(left, right)} == {"framework", "version", "converter", "file"}


def test_two_models_are_a_fair_comparison_however_their_files_were_made():
    def model(letter, **conversion):
        return example_model(weights_digest=digest(letter), assets=(asset(sha256=digest(letter), **conversion),))

    plain = example_record(model=model("a"))
    converted = example_record(model=model("b", converted_sha256=digest("c"), converter_digest=digest("d")))
    assert groups_of(plain, converted) == [MODEL]


def test_differences_of_one_group_count_once_and_are_all_listed():
    right = example_record(system=example_system(cores=8, kernel="6.2.0", libc=None))
    comparison = compare(evidence(), evidence(right))
    assert (comparison.kind, comparison.groups) == ("fair", (SYSTEM,))
    assert [item.fact for item in comparison.differences] == ["cores", "kernel", "libc"]


def test_no_group_is_a_repetition_and_two_are_unfair():
    assert compare(evidence(), evidence()).kind == "repetition"
    both = compare(evidence(), evidence(example_record(seed=1, system=example_system(cores=8))))
    assert (both.kind, both.groups) == ("unfair", (SYSTEM, SCENARIO))


def evidence(record=None, latencies=((10.0, 10.0), (10.0, 10.0)), predictions=()):
    return Evidence(record or example_record(), latencies, predictions)


def launched(*starts):
    return evidence(
        example_record(
            launches=tuple(
                example_launch(i, started_at=f"2026-03-31T12:{start}+00:00") for i, start in enumerate(starts)
            )
        )
    )


@pytest.mark.parametrize(
    ("first", "second", "is_side_by_side"),
    [
        (("00:00", "02:00"), ("01:00", "03:00"), True),
        (("00:00", "01:00"), ("02:00", "03:00"), False),
        (("00:00", "03:00"), ("01:00", "02:00"), True),
        (("00:00",), ("01:00",), False),
        ((), ("01:00",), False),
    ],
)
def test_two_are_side_by_side_if_their_launches_were_interleaved(first, second, is_side_by_side):
    assert compare(launched(*first), launched(*second)).is_side_by_side is is_side_by_side
    assert compare(launched(*second), launched(*first)).is_side_by_side is is_side_by_side


def test_the_ratio_is_right_over_left_of_launch_medians():
    ratio = compare(evidence(), evidence(latencies=((20, 20, 90), (20, 20, 90)))).latency_ratio
    assert math.isclose(ratio.value, 2.0)
    assert (ratio.launches, ratio.interval.basis) == (2, "launches")


@pytest.mark.parametrize(
    ("left", "right", "note"),
    [
        (evidence(latencies=()), evidence(), "one of the two has no latencies"),
        (evidence(), evidence(latencies=()), "one of the two has no latencies"),
        (
            evidence(),
            evidence(example_record(performance=example_performance(clock="simulated"))),
            "simulated time is never compared with measured time",
        ),
        (
            evidence(),
            evidence(example_record(scenario=SingleStream(launches=2, timed="inference"))),
            "the timed regions differ",
        ),
        (evidence(latencies=((0, 0, 0), (1, 1, 1))), evidence(), "a ratio needs positive values"),
        (evidence(), evidence(latencies=((0,),)), "a ratio needs positive values"),
    ],
)
def test_a_ratio_that_would_mean_nothing_is_refused_with_the_reason(left, right, note):
    comparison = compare(left, right)
    assert (comparison.latency_ratio, comparison.latency_note) == (None, note)


def answer(sample, first, label=0):
    ranked = (first, *(index for index in range(3) if index != first))
    scores = tuple(ClassScore(index=index, label=None, score=1.0 - place / 4) for place, index in enumerate(ranked))
    return Prediction(sample=sample, label=label, answer=Classes(classes=scores))


def answers(text, label=0, start=0):
    """One prediction per digit, which is the first answer; sample ids count from `start`."""
    return [answer(str(start + position), int(digit), label) for position, digit in enumerate(text)]


def test_accuracy_is_compared_sample_by_sample():
    # truth is 0: left is right on the first four, right on the first and the last
    comparison = compare(evidence(predictions=answers("0000122")), evidence(predictions=answers("0111120")))
    assert (comparison.common_samples, comparison.flipped) == (7, 4)
    assert (comparison.top1.only_a, comparison.top1.only_b) == (3, 1)
    assert math.isclose(comparison.top1.difference.value, -2 / 7)
    # two-sided, 1 of 4: 2 * (1 + 4) / 16
    assert math.isclose(comparison.top1.p_value, 0.625)


def test_an_answer_may_flip_without_a_change_of_accuracy():
    comparison = compare(evidence(predictions=answers("0012")), evidence(predictions=answers("0021")))
    assert (comparison.flipped, comparison.top1.difference.value, comparison.top1.p_value) == (2, 0.0, 1.0)


def test_only_the_samples_that_both_ran_are_paired():
    left = evidence(predictions=answers("0000"))
    right = evidence(predictions=list(reversed(answers("0100", start=2))))
    comparison = compare(left, right)
    assert (comparison.common_samples, comparison.flipped, comparison.top1.difference.n) == (2, 1, 2)


def test_no_common_sample_gives_no_number():
    comparison = compare(evidence(predictions=answers("00")), evidence(predictions=answers("00", start=2)))
    assert (comparison.common_samples, comparison.flipped, comparison.top1) == (0, None, None)


def test_equal_ids_of_two_data_sets_are_not_the_same_samples():
    other = example_record(dataset=example_dataset(name="OtherSet"))
    assert compare(evidence(predictions=answers("00")), evidence(other, predictions=answers("00"))).common_samples == 0


def test_answers_without_labels_can_flip_but_are_neither_right_nor_wrong():
    comparison = compare(evidence(predictions=answers("01", None)), evidence(predictions=answers("02", None)))
    assert (comparison.flipped, comparison.top1) == (1, None)


def tensor(sha256):
    facts = partial(TensorFacts, name="out", shape=(1,), element_type="float32", minimum=0.0, maximum=1.0, mean=0.5)
    return RawTensors(tensors=(facts(sha256=sha256),))


@pytest.mark.parametrize(
    ("same", "other"),
    [
        (Custom(value={"boxes": [1, 2]}), Custom(value={"boxes": [1, 3]})),
        (tensor(digest("a")), tensor(digest("b"))),
        (Classes(classes=()), answer("0", 1).answer),
    ],
)
def test_any_kind_of_answer_can_flip(same, other):
    left, right = (
        [Prediction(sample=str(i), label=1, answer=value) for i, value in enumerate(values)]
        for values in ((same, same), (same, other))
    )
    assert compare(evidence(predictions=left), evidence(predictions=right)).flipped == 1


def test_a_failed_record_is_compared_by_what_it_knows():
    failed = failed_record(failure=Failure(stage="load", code="x", message="y"))
    comparison = compare(evidence(), Evidence(failed, (), ()))
    assert comparison.groups == (FRAMEWORK, PRECISION, EXECUTION)
    assert comparison.latency_ratio is None


def test_another_framework_has_its_own_words_for_providers():
    used = example_record().execution.model_copy(update={"provider": "eager", "optimization": "none"})
    other = example_record(execution=used, software=example_software(framework="pytorch"))
    assert {item.group for item in differences(example_record(), other)} == {FactorGroup.FRAMEWORK}
    same_framework = example_record(execution=used)
    assert {item.group for item in differences(example_record(), same_framework)} == {FactorGroup.EXECUTION}


def test_a_package_that_a_list_does_not_hold_is_absent_and_not_unknown():
    (found,) = differences(example_record(), example_record(software=packages(flatbuffers="24.3.25")))
    assert (found.fact, found.left, found.right) == ("package flatbuffers", "absent", "24.3.25")


def test_where_no_package_is_known_each_is_unknown():
    found = differences(example_record(), example_record(software=example_software(packages={})))
    assert {item.right for item in found if item.fact.startswith("package ")} == {None}
