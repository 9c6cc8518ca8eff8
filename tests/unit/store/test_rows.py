import zlib

import pytest

from mlmodelscope.core.errors import StoreError
from mlmodelscope.core.record import RECORD_FORMAT
from mlmodelscope.core.request import EvaluationRequest
from mlmodelscope.store.rows import facet_values, number_columns, pack, unpack
from mlmodelscope.store.schema import FACETS, records
from mlmodelscope.testing.records import example_record, failed_record


@pytest.mark.parametrize("record", [example_record(), failed_record(), failed_record(software=None, system=None)])
def test_a_document_is_the_whole_record(record):
    assert unpack(record.id, record.format, pack(record)) == record


@pytest.mark.parametrize("body", [b"", b"nonsense", zlib.compress(b"{}"), pack(example_record())[:-20]])
def test_a_document_that_cannot_be_read_is_a_store_error(body):
    with pytest.raises(StoreError, match="cannot be read"):
        unpack("an id", RECORD_FORMAT, body)


def test_a_newer_format_names_both_numbers():
    with pytest.raises(StoreError, match=f"format {RECORD_FORMAT + 1}.* up to {RECORD_FORMAT}") as caught:
        unpack("an id", RECORD_FORMAT + 1, b"")
    assert caught.value.hint == "upgrade mlmodelscope"


@pytest.mark.parametrize("record", [example_record(), failed_record()])
def test_every_column_gets_a_value(record):
    values = facet_values(record)
    assert set(values) | set(number_columns(record)) == set(records.c.keys())
    for facet, row in values.items():
        assert set(row) == set(FACETS[facet].c.keys()) - {"id"}


def test_a_failure_before_the_software_was_known_is_found_under_the_framework_asked_for():
    request = EvaluationRequest(models=("TinyNet",), framework="onnxruntime@>=1.17")
    values = facet_values(failed_record(software=None, request=request))
    assert values["framework"] == {"name": "onnxruntime", "version": None}
