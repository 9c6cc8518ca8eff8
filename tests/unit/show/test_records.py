"""Records and history as text, word for word."""

import re

import numpy as np
import pytest

from mlmodelscope.analyse.summary import summarise
from mlmodelscope.core.estimate import Estimate
from mlmodelscope.core.record import Accuracy
from mlmodelscope.core.request import SingleStream
from mlmodelscope.core.store import HistoryRow
from mlmodelscope.show.records import format_history, format_record, format_summary
from mlmodelscope.testing.records import (
    example_dataset,
    example_launch,
    example_model,
    example_performance,
    example_record,
    example_software,
    example_system,
    failed_record,
)

ID = "01kn2wvs000123456789abcdef"
WHAT = """\
when       2026-03-31 21:30:14 UTC
model      TinyNet 1.0.0  manifest ee69f2a0f208
weights    9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c
data set   TinySet 1.0.0 (64 samples)
framework  onnxruntime 1.20.1
runs in    local, CPython 3.11.7
"""
MACHINE = "system     Example CPU 2000 @ 2.50GHz, 8 usable processors, 16.0 GiB, Linux 6.1.0\n"
ACCURACY = """
top-1  75.0 % [74.2, 75.8]  n=1000
top-5  93.8 % [92.8, 94.7]  n=1000
"""


def measured(launches):
    """A hundred queries per launch; each launch is 0.1 ms slower than the one before."""
    tables = [
        np.array(
            [
                np.cumsum([0, 400_000 + i * 1_000, 300_000, 9_000_000 + 100_000 * launch + i * 10_000, 50_000])
                for i in range(100)
            ]
        )
        for launch in range(launches)
    ]
    facts = [example_launch(index, load_ns=42_000_000 + index * 2_000_000) for index in range(launches)]
    return summarise(tables, facts, batch_size=1)


def test_a_record_that_succeeded():
    assert format_record(example_record(id=ID, performance=measured(2))) == (
        f"record     {ID} (succeeded)\n{WHAT}"
        "execution  2 threads, batch 1, CPUExecutionProvider, float32, optimization all\n"
        "scenario   single_stream, timed pipeline, 2 launches, seed 0\n"
        f"{MACHINE}{ACCURACY}"
        """
latency over 200 queries in 2 launches
median           10.3 ms [9.71, 11.0]
trimmed mean     10.3 ms [9.71, 11.0]
p90              10.8 ms [10.1, 11.4]
p95              10.8 ms [10.2, 11.5]
p99              refused: 200 samples cannot support p99: it takes at least 662
p99.9            refused: 200 samples cannot support p99.9: it takes at least 6636
  decode         450 us [450, 450]
  transform      300 us [300, 300]
  predict        9.54 ms [8.91, 10.2]
  postprocess    50.0 us [50.0, 50.0]
load             43.0 ms [30.3, 55.7]
first inference  15.0 ms [15.0, 15.0]
throughput       96.7 samples/s [90.7, 103]
memory peak      143 MiB [143, 143]"""
    )


def test_a_record_of_a_single_launch_says_what_its_intervals_are_about():
    record = example_record(id=ID, scenario=SingleStream(launches=1), performance=measured(1))
    text = format_record(record)
    assert "single_stream, timed pipeline, 1 launch, seed 0" in text
    assert text.endswith(
        """
latency over 100 queries in 1 launch
median           10.3 ms [10.2, 10.4] within one launch
trimmed mean     10.3 ms [10.2, 10.4] within one launch
p90              10.7 ms [10.7, 10.8] within one launch
p95              refused: 100 samples cannot support p95: it takes at least 130
p99              refused: 100 samples cannot support p99: it takes at least 662
p99.9            refused: 100 samples cannot support p99.9: it takes at least 6636
  decode         450 us [439, 460] within one launch
  transform      300 us [300, 300] within one launch
  predict        9.49 ms [9.39, 9.60] within one launch
  postprocess    50.0 us [50.0, 50.0] within one launch
load             42.0 ms
first inference  15.0 ms
throughput       97.1 samples/s
memory peak      143 MiB"""
    )


def test_a_record_that_failed():
    assert format_record(failed_record(id=ID)) == (
        f"record     {ID} (failed)\n{WHAT}"
        "execution  -\n"
        "scenario   single_stream, timed pipeline, 2 launches, seed 0\n"
        f"{MACHINE}"
        """
FAILED in stage load: the worker died of signal 11 (SIGSEGV) while loading the model (worker_crashed)
hint: run it again with --threads 1
the worker's last words:
  loading models/tiny.onnx
  Segmentation fault"""
    )


def test_a_record_that_failed_before_anything_was_known():
    early = failed_record(
        dataset=None,
        software=None,
        system=None,
        model=example_model(weights_digest=None),
        failure=failed_record().failure.model_copy(update={"hint": None, "log_tail": " \n"}),
    )
    lines = format_record(early).splitlines()
    assert "weights    unknown" in lines
    assert {f"{name.ljust(9)}  -" for name in ("data set", "framework", "execution", "system")} <= set(lines)
    assert lines[-1].startswith("FAILED in stage load")


def test_only_the_end_of_a_long_log_is_shown():
    log = "\n".join(f"line {number}" for number in range(100))
    failure = failed_record().failure.model_copy(update={"log_tail": log})
    assert format_record(failed_record(failure=failure)).splitlines()[-13:] == [
        "the worker's last words:",
        *(f"  line {number}" for number in range(88, 100)),
    ]


def test_warnings_come_last():
    text = format_record(example_record(warnings=("no checksum", "a busy machine")))
    assert text.endswith("\n\nwarning: no checksum\n\nwarning: a busy machine")


def test_one_of_a_kind_is_singular():
    used = example_record().execution.model_copy(update={"threads": 1, "optimization": ""})
    text = format_record(
        example_record(
            execution=used,
            system=example_system(usable_cpus=1, cpu_model=None),
            dataset=example_dataset(name="inputs", version="", sample_count=1),
            accuracy=Accuracy(samples=1, labelled=0, top1=None, top5=None),
            performance=example_performance(latency_median_ns=Estimate(5.0, None, 1, 1)),
        )
    )
    for part in (
        "execution  1 thread, batch 1, CPUExecutionProvider, float32\n",
        "data set   inputs (1 sample)\n",
        "system     amd64, 1 usable processor, ",
        "\naccuracy  - (1 sample, 0 with a label)\n",
        "\nlatency over 1 query in 1 launch\nmedian           5 ns\n",
    ):
        assert part in text


def test_simulated_time_is_named():
    assert "in 2 launches, simulated time\n" in format_record(
        example_record(performance=example_performance(clock="simulated"))
    )


def test_what_ran_behind_an_address_is_named_by_its_engine_and_address():
    record = example_record(
        software=example_software(framework="remote", framework_version="toy-fpga 1.0"),
        request=example_record().request.model_copy(update={"options": {"address": "unix:/tmp/fpga.sock"}}),
    )
    lines = format_record(record).splitlines()
    assert "framework  remote toy-fpga 1.0" in lines
    assert "runs in    a program at unix:/tmp/fpga.sock, driven from CPython 3.11.7" in lines


def test_what_was_not_measured_is_a_dash():
    text = format_record(example_record(performance=example_performance(first_inference_ns=None, memory_bytes=None)))
    assert "\nfirst inference  -\n" in text
    assert text.endswith("\nmemory peak      -")


def test_the_summary_has_a_line_per_record():
    records = [
        example_record(id=ID, performance=measured(1)),
        failed_record(id=ID),
        example_record(id=ID, performance=measured(2), accuracy=None),
    ]
    found = [[cell.strip() for cell in re.split(r" {2,}", line)] for line in format_summary(records).splitlines()]
    what = [ID, "TinyNet 1.0.0", "onnxruntime 1.20.1"]
    assert found == [
        ["id", "model", "framework", "top-1", "latency (median)", "throughput", "memory"],
        [*what, "75.0 % [74.2, 75.8]", "10.3 ms [10.2, 10.4] within one launch", "97.1 samples/s", "143 MiB"],
        [*what, "-", "failed: worker_crashed", "-", "-"],
        [*what, "-", "10.3 ms [9.71, 11.0]", "96.7 samples/s", "143 MiB"],
    ]


def test_an_accuracy_run_without_timing_is_a_dash():
    line = format_summary([example_record(performance=None)]).splitlines()[1]
    assert line.split()[-3:] == ["-", "-", "-"]


def row(**changes):
    values = {
        "id": ID,
        "created_at": "2026-03-31T21:30:14.123456+00:00",
        "status": "succeeded",
        "model": "TinyNet",
        "model_version": "1.0.0",
        "framework": "onnxruntime",
        "framework_version": "1.20.1",
        "dataset": "TinySet",
        "samples": 64,
        "scenario": "batched",
        "timed": "inference",
        "batch_size": 8,
        "threads": 2,
        "architecture": "amd64",
        "cpu_model": None,
        "latency_median_ns": 1e7,
        "throughput": 100.0,
        "top1": 0.75,
        "memory_bytes": 1,
        "failure_code": None,
    }
    return HistoryRow(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "cells"),
    [
        ({}, "onnxruntime 1.20.1|TinySet (64)|batched inference b8|75.0 %|10.0 ms|100 samples/s"),
        (
            {
                "framework": None,
                "framework_version": None,
                "dataset": None,
                "samples": None,
                "latency_median_ns": None,
                "throughput": None,
                "top1": None,
                "failure_code": "worker_crashed",
            },
            "-|-|batched inference b8|-|worker_crashed|-",
        ),
        (
            {"latency_median_ns": None, "throughput": None, "top1": 0.0},
            "onnxruntime 1.20.1|TinySet (64)|batched inference b8|0.0 %|-|-",
        ),
        (
            {"latency_median_ns": 0.0, "throughput": 0.0},
            "onnxruntime 1.20.1|TinySet (64)|batched inference b8|75.0 %|0 ns|0.00 samples/s",
        ),
    ],
)
def test_a_row_of_history(changes, cells):
    line = format_history([row(**changes)]).splitlines()[1]
    found = [cell.strip() for cell in line.split("  ") if cell.strip()]
    assert found == [ID, "2026-03-31 21:30", "TinyNet 1.0.0", *cells.split("|")]
