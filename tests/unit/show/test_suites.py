"""The one table of a suite."""

from mlmodelscope.core.errors import UnsatisfiableError
from mlmodelscope.core.request import EvaluationRequest
from mlmodelscope.show.suites import format_suite
from mlmodelscope.suite.progress import SuiteRow
from mlmodelscope.testing.records import example_record, failed_record

REQUEST = EvaluationRequest(models=("TinyNet",), dataset="TinySet", threads=2)


def test_done_failed_and_refused_rows():
    done, failed = example_record(), failed_record()
    rows = [
        SuiteRow(REQUEST, done, is_earlier=True),
        SuiteRow(REQUEST, failed),
        SuiteRow.refused(REQUEST.model_copy(update={"framework": "tflite"}), UnsatisfiableError("not here")),
    ]
    lines = format_suite("nightly", rows).splitlines()
    assert f"{done.id} (earlier)" in lines[1]
    assert "10.0 ms" in lines[1]
    assert "failed: worker_crashed" in lines[2]
    assert "refused: unsatisfiable" in lines[3]
    assert lines[4] == "nightly: 1 of 3 done, 2 failed, 1 of them by an earlier run"
    assert lines[5].startswith("failed: TinyNet, TinySet, single_stream pipeline b1, 2 threads: the worker died")
    assert lines[6] == (
        "failed: TinyNet, tflite, TinySet, single_stream pipeline b1, 2 threads: not here (unsatisfiable)"
    )
