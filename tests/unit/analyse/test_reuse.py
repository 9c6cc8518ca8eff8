"""Which stored record may answer a request: every fact counts that is known before a run."""

import pytest

from mlmodelscope.analyse.comparison import factors
from mlmodelscope.analyse.reuse import TOLD_BY_THE_RUN, obstacles
from mlmodelscope.core.factors import FactorGroup
from mlmodelscope.core.request import SingleStream
from mlmodelscope.testing.records import (
    example_dataset,
    example_model,
    example_record,
    example_software,
    example_system,
    failed_record,
)


def expected(**changes):
    """The stored example as it is known before its run: nothing measured, nothing that the framework says."""
    record = example_record(**changes)
    execution = record.execution.model_copy(update={"precision": "", "provider": "", "inputs": (), "outputs": ()})
    dataset = example_dataset(sample_count=0, sample_ids_digest="")
    return record.model_copy(update={"execution": execution, "dataset": dataset, "performance": None, "launches": ()})


def test_an_identical_evaluation_answers():
    assert obstacles(expected(), example_record()) == []


@pytest.mark.parametrize(
    ("changes", "group"),
    [
        ({"model": example_model(weights_digest="0" * 64)}, FactorGroup.MODEL),
        ({"software": example_software(framework_version="1.21.0")}, FactorGroup.FRAMEWORK),
        ({"software": example_software(packages={"numpy": "9.9.9"})}, FactorGroup.PIPELINE),
        ({"software": example_software(variables={"OMP_NUM_THREADS": "1"})}, FactorGroup.EXECUTION),
        ({"system": example_system(kernel="9.9.9")}, FactorGroup.SYSTEM),
        ({"scenario": SingleStream(launches=3)}, FactorGroup.SCENARIO),
        ({"seed": 7}, FactorGroup.SCENARIO),
        ({"dataset": example_dataset(split="train")}, FactorGroup.DATA),
    ],
)
def test_any_other_factor_does_not(changes, group):
    assert group in {item.group for item in obstacles(expected(), example_record(**changes))}


def test_another_number_of_samples_does_not():
    stored = example_record()
    other = stored.model_copy(update={"request": stored.request.model_copy(update={"samples": 5})})
    assert [item.fact for item in obstacles(expected(), other)] == ["samples asked for"]


@pytest.mark.parametrize("changes", [{"origin": "imported"}, {"is_trusted": False}, {"origin": "remote"}])
def test_a_strangers_record_never_answers(changes):
    assert obstacles(expected(), example_record(**changes))


def test_a_failed_record_never_answers():
    assert obstacles(expected(), failed_record())


def test_every_fact_left_out_is_a_fact():
    known = factors(example_record())
    for group, names in TOLD_BY_THE_RUN.items():
        for name in names:
            assert any(fact == name or f"{fact.partition(' ')[0]} *" == name for fact in known[group]), (group, name)
