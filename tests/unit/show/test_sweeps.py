"""The table of a sweep and the sentence below it."""

from mlmodelscope.analyse.sweep import sweep_of
from mlmodelscope.core.request import Batched
from mlmodelscope.show.sweeps import format_sweep
from mlmodelscope.testing.records import example_estimate, example_performance, example_record, failed_record


def record(size: int, throughput: float):
    performance = example_performance(throughput=example_estimate(throughput))
    return example_record(scenario=Batched(batch_size=size), performance=performance)


def shown(*records) -> list[str]:
    sweep = sweep_of((r.scenario.batch_size, r.performance.throughput) for r in records if r.performance)
    return format_sweep(records, sweep).splitlines()


def test_a_line_per_size_with_the_optimum_marked():
    lines = shown(record(1, 100), record(4, 201), record(2, 200))
    assert lines[0] == "TinyNet 1.0.0: throughput over batch size (batched)"
    assert [line.split()[0] for line in lines[2:5]] == ["1", "2", "4"]
    assert lines[3].split()[:7] == ["2", "*", "200", "samples/s", "[198,", "202]", "+100.0"]
    assert lines[-1] == "optimal batch size: 2; no larger one adds 5 % per doubling"


def test_an_open_end_and_doubt_are_said():
    assert shown(record(1, 100), record(2, 150))[-1].endswith("the largest tried: a larger one may be better still")
    assert shown(record(1, 100), record(2, 105))[-1].endswith("(not certain: the intervals leave room for another)")


def test_a_size_that_failed():
    lines = shown(record(1, 100), failed_record(scenario=Batched(batch_size=2)))
    assert "failed: worker_crashed" in lines[3]
    assert shown(failed_record(scenario=Batched(batch_size=2)))[-1] == (
        "optimal batch size: none, nothing was measured"
    )
