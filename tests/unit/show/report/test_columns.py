"""One row per record, under names that stay."""

import csv
import io

import pytest

from mlmodelscope.show.report.columns import csv_cell, format_csv
from mlmodelscope.testing.records import example_model, example_record, example_system, failed_record

# a column may be added at the end; a renamed or missing one breaks somebody's script
COLUMNS = """
    id created_at status model model_version task manifest_digest weights_digest dataset dataset_version split
    samples sample_ids_digest scenario timed batch_size launches seed framework framework_version python mlmodelscope
    environment threads provider optimization precision device architecture cpu_model usable_cpus system_memory_bytes
    kernel clock queries latency_median_ns latency_median_ns_low latency_median_ns_high latency_trimmed_mean_ns
    latency_trimmed_mean_ns_low latency_trimmed_mean_ns_high latency_mean_ns latency_mean_ns_low latency_mean_ns_high
    latency_min_ns latency_max_ns latency_p90_ns latency_p90_ns_low latency_p90_ns_high latency_p95_ns
    latency_p95_ns_low latency_p95_ns_high latency_p99_ns latency_p99_ns_low latency_p99_ns_high latency_p99_9_ns
    latency_p99_9_ns_low latency_p99_9_ns_high decode_ns decode_ns_low decode_ns_high transform_ns transform_ns_low
    transform_ns_high predict_ns predict_ns_low predict_ns_high postprocess_ns postprocess_ns_low postprocess_ns_high
    throughput throughput_low throughput_high load_ns load_ns_low load_ns_high first_inference_ns
    first_inference_ns_low first_inference_ns_high peak_memory_bytes peak_memory_bytes_low peak_memory_bytes_high
    labelled top1 top1_low top1_high top5 top5_low top5_high compared_with comparison factors latency_ratio
    latency_ratio_low latency_ratio_high top1_difference top1_difference_low top1_difference_high mcnemar_p
    is_side_by_side flipped common_samples failure_stage failure_code failure_message warnings origin is_trusted
    latencies_sha256 predictions_sha256
""".split()  # noqa: SIM905 - a list would be a page


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_the_columns_stay(make_report):
    assert format_csv(make_report(example_record())).splitlines()[0].split(",") == COLUMNS


def test_values_are_exact_and_unknown_ones_empty(make_report):
    record = example_record()
    (row,) = rows_of(format_csv(make_report(record)))
    assert row["id"] == record.id
    assert float(row["latency_median_ns"]) == record.performance.latency_median_ns.value
    assert float(row["latency_median_ns_low"]) == record.performance.latency_median_ns.interval.low
    assert row["latency_p99_ns"] == ""
    assert row["compared_with"] == ""
    assert float(row["top1"]) == 0.75


def test_a_comparison_stands_in_the_row_of_the_later_record(make_report):
    first, second = example_record(), example_record(system=example_system(kernel="6.2.0"))
    rows = rows_of(format_csv(make_report(first, second)))
    assert (rows[1]["compared_with"], rows[1]["comparison"], rows[1]["factors"]) == (first.id, "fair", "system")
    assert float(rows[1]["latency_ratio"]) == pytest.approx(1)
    assert (rows[1]["flipped"], rows[1]["common_samples"]) == ("0", "12")


def test_a_failed_record_has_its_reason(make_report):
    (row,) = rows_of(format_csv(make_report(failed_record())))
    assert (row["status"], row["failure_stage"], row["failure_code"]) == ("failed", "load", "worker_crashed")
    assert row["latency_median_ns"] == ""


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@sum(a1)", "\t=1"])
def test_a_name_is_no_formula(make_report, name):
    (row,) = rows_of(format_csv(make_report(example_record(model=example_model(name=name)))))
    assert row["model"] == f"'{name}"


@pytest.mark.parametrize("value", ["ResNet50", "a=b", -1, -1.5, None, True])
def test_other_values_are_as_they_are(value):
    assert csv_cell(value) == value


def test_commas_quotes_and_new_lines_survive(make_report):
    name = 'a,"b"\nc'
    (row,) = rows_of(format_csv(make_report(example_record(model=example_model(name=name)))))
    assert row["model"] == name
