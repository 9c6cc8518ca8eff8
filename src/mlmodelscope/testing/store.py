"""Turns a way to open a store into a verdict: the contract that every store keeps, as a pytest class.

Subclass `StoreContract` and define a fixture `opening`, a function of (folder, URL or None) that opens the store:

    class TestMine(StoreContract):
        @pytest.fixture
        def opening(self):
            return MyStore
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mlmodelscope.core.errors import ConstraintError, StoreError, UnknownNameError, UsageError
from mlmodelscope.core.ids import id_floor, new_id
from mlmodelscope.core.record import Record
from mlmodelscope.core.request import Batched
from mlmodelscope.core.store import HistoryQuery, OpenStore, Store
from mlmodelscope.testing.records import (
    example_artifact,
    example_dataset,
    example_model,
    example_record,
    example_software,
    example_system,
    failed_record,
)

__all__ = ["StoreContract"]


class StoreContract:
    """What holds for every store: nothing is lost or changed, and the history is exactly what the query describes."""

    @pytest.fixture
    def store(self, opening: OpenStore, tmp_path: Path) -> Iterator[Store]:
        store = opening(tmp_path, None)
        yield store
        store.close()

    @pytest.mark.parametrize("make", [example_record, failed_record])
    def test_a_record_comes_back_equal(self, store: Store, make: Callable[[], Record]) -> None:
        record = make()
        assert store.add(record) == record
        assert store.get(record.id) == record

    def test_it_is_there_for_whoever_opens_the_store_next(
        self, store: Store, opening: OpenStore, tmp_path: Path
    ) -> None:
        record = store.add(example_record())
        other = opening(tmp_path, None)
        try:
            assert other.get(record.id) == record
        finally:
            other.close()

    def test_adding_an_equal_record_again_changes_nothing(self, store: Store) -> None:
        record = example_record()
        assert store.add(record) == store.add(record)
        assert len(store.history(HistoryQuery()).rows) == 1

    def test_a_stored_record_is_never_replaced(self, store: Store) -> None:
        record = store.add(example_record())
        with pytest.raises(StoreError):
            store.add(example_record(id=record.id, seed=1))
        assert store.get(record.id) == record

    def test_an_id_that_is_none_is_refused(self, store: Store) -> None:
        with pytest.raises(StoreError):
            store.add(example_record().model_copy(update={"id": "first"}))

    def test_credentials_and_private_variables_are_not_stored(self, store: Store) -> None:
        model = example_model(
            manifest=example_model().manifest.model_copy(update={"origin": "https://me:pw@host/m.yml"})
        )
        software = example_software(variables={"OMP_NUM_THREADS": "1", "HUB_TOKEN": "pw"})
        record = store.add(example_record(model=model, software=software))
        assert record.model.manifest.origin == "https://host/m.yml"
        assert record.software is not None
        assert record.software.variables == {"OMP_NUM_THREADS": "1"}
        assert store.get(record.id) == record

    def test_the_beginning_of_an_id_is_enough_if_only_one_begins_so(self, store: Store) -> None:
        moment = datetime(2026, 3, 31, tzinfo=UTC)
        first, second = (id_floor(moment)[:-1] + end for end in "0z")
        other = id_floor(moment + timedelta(days=400))
        for record_id in (first, second, other):
            store.add(example_record(id=record_id))
        assert store.get(other[:8].upper()).id == other
        assert store.get(first).id == first
        with pytest.raises(UsageError) as ambiguous:
            store.get(first[:25])
        assert set(ambiguous.value.fields["ids"]) == {first, second}

    @pytest.mark.parametrize("asked", ["", "nonsense", "%", "0" * 26, "0" * 40])
    def test_an_unknown_id_is_an_unknown_name(self, store: Store, asked: str) -> None:
        store.add(example_record())
        with pytest.raises(UnknownNameError):
            store.get(asked)

    def test_an_unknown_id_names_the_nearest(self, store: Store) -> None:
        record = store.add(example_record())
        mistyped = record.id[:-1] + ("0" if record.id[-1] != "0" else "1")
        with pytest.raises(UnknownNameError) as unknown:
            store.get(mistyped)
        assert unknown.value.fields["near"] == [record.id]

    def test_an_artifact_comes_back_equal(self, store: Store, tmp_path: Path) -> None:
        content = bytes(range(256)) * 5000
        (tmp_path / "file.bin").write_bytes(content)
        from_bytes = store.put_artifact(content, "latencies.bin", "application/octet-stream")
        from_file = store.put_artifact(tmp_path / "file.bin", "again.bin", "application/octet-stream")
        assert from_bytes.sha256 == from_file.sha256 == hashlib.sha256(content).hexdigest()
        assert from_bytes.size_bytes == len(content)
        assert store.read_artifact(from_file) == content

    def test_a_record_is_refused_while_an_artifact_of_it_is_missing(self, store: Store) -> None:
        artifact = example_artifact(b"content")
        record = example_record(artifacts=(artifact,))
        with pytest.raises(StoreError):
            store.add(record)
        with pytest.raises(StoreError):
            store.read_artifact(artifact)
        store.put_artifact(b"content", artifact.name, artifact.media_type)
        assert store.add(record) == record

    def test_two_artifacts_of_one_name_are_refused(self, store: Store) -> None:
        artifacts = tuple(store.put_artifact(content, "same", "text/plain") for content in (b"1", b"2"))
        with pytest.raises(StoreError):
            store.add(example_record(artifacts=artifacts))

    def test_a_row_holds_the_numbers_of_the_record(self, store: Store) -> None:
        record = store.add(example_record())
        (row,) = store.history(HistoryQuery()).rows
        assert (row.id, row.created_at, row.status) == (record.id, record.created_at, "succeeded")
        assert (row.model, row.model_version, row.dataset, row.samples) == ("TinyNet", "1.0.0", "TinySet", 64)
        assert (row.framework, row.framework_version, row.threads) == ("onnxruntime", "1.20.1", 2)
        assert (row.scenario, row.timed, row.batch_size) == ("single_stream", "pipeline", 1)
        assert (row.architecture, row.cpu_model) == ("amd64", "Example CPU 2000 @ 2.50GHz")
        assert (row.latency_median_ns, row.throughput, row.top1) == (10_000_000.0, 100.0, 0.75)
        assert (row.memory_bytes, row.failure_code) == (150_000_000, None)

    def test_a_failed_record_has_a_row_with_what_is_known(self, store: Store) -> None:
        store.add(failed_record(software=None, system=None, dataset=None))
        (row,) = store.history(HistoryQuery(status="failed")).rows
        assert (row.failure_code, row.latency_median_ns, row.top1) == ("worker_crashed", None, None)
        assert (row.framework, row.dataset, row.cpu_model) == (None, None, None)

    @pytest.mark.parametrize(
        "query, expected",
        [
            (HistoryQuery(), "abcde"),
            (HistoryQuery(model="tinynet"), "abd"),
            (HistoryQuery(model="TinyNet", model_version=">=1.1"), "d"),
            (HistoryQuery(model="Tiny"), ""),
            (HistoryQuery(framework="onnxruntime", framework_version=">=1.9 <1.21"), "ad"),
            (HistoryQuery(framework="onnxruntime", framework_version="1.100.x"), "b"),
            (HistoryQuery(framework="tflite", framework_version="*"), "c"),
            (HistoryQuery(framework="onnxruntime", framework_version=">9"), ""),
            (HistoryQuery(dataset="bigset"), "bc"),
            (HistoryQuery(architecture="arm64"), "c"),
            (HistoryQuery(cpu="neo"), "c"),
            (HistoryQuery(cpu="%"), ""),
            (HistoryQuery(memory_bytes=32 * 2**30), "cd"),
            (HistoryQuery(scenario="batched"), "b"),
            (HistoryQuery(status="failed"), "e"),
            (HistoryQuery(text="CRASHED"), "e"),
            (HistoryQuery(text="tflite"), "c"),
            (HistoryQuery(text="nothing of the kind"), ""),
            (HistoryQuery(model="TinyNet", dataset="BigSet"), "b"),
            (HistoryQuery(model="TinyNet", framework="tflite"), ""),
            (HistoryQuery(model="TinyNet", memory_bytes=1, text="onnx", status="succeeded"), "abd"),
            (HistoryQuery(since=datetime(2026, 1, 2, tzinfo=UTC), until=datetime(2026, 1, 4, tzinfo=UTC)), "bc"),
            (HistoryQuery(since=datetime(2026, 1, 3, tzinfo=UTC), model="TinyNet"), "d"),
        ],
    )  # fmt: skip
    def test_history_is_what_the_query_describes(self, store: Store, query: HistoryQuery, expected: str) -> None:
        names = {}
        for name, record in _five_records().items():
            store.add(record)
            names[record.id] = name
        found = [names[row.id] for row in store.history(query).rows]
        assert found == sorted(expected, reverse=True)

    def test_a_constraint_that_cannot_be_read_is_a_constraint_error(self, store: Store) -> None:
        with pytest.raises(ConstraintError):
            store.history(HistoryQuery(model="TinyNet", model_version=">=>"))

    def test_a_stored_version_that_is_no_version_is_in_no_range(self, store: Store) -> None:
        store.add(example_record(model=example_model(version="first draft")))
        assert store.history(HistoryQuery(model="TinyNet", model_version="*")).rows == ()
        assert len(store.history(HistoryQuery(model="TinyNet")).rows) == 1

    @pytest.mark.parametrize("query", [HistoryQuery(), HistoryQuery(model="TinyNet", framework="onnxruntime")])
    def test_pages_hold_every_record_once_newest_first(self, store: Store, query: HistoryQuery) -> None:
        added = [store.add(example_record()).id for _ in range(7)]
        seen: list[str] = []
        after = None
        while True:
            page = store.history(query, limit=3, after=after)
            seen += [row.id for row in page.rows]
            store.add(example_record())  # newer ones do not move the pages behind
            after = page.after
            if after is None:
                break
        assert seen == added[::-1]

    @pytest.mark.parametrize("limit, after", [(0, None), (-1, None), (10**9, None), (5, "no id")])
    def test_a_page_that_cannot_be_is_a_usage_error(self, store: Store, limit: int, after: str | None) -> None:
        with pytest.raises(UsageError):
            store.history(HistoryQuery(), limit=limit, after=after)

    def test_threads_may_share_a_store(self, store: Store) -> None:
        with ThreadPoolExecutor(4) as pool:
            added = list(pool.map(lambda _: store.add(example_record()).id, range(20)))
        assert {row.id for row in store.history(HistoryQuery()).rows} == set(added)


def _five_records() -> dict[str, Record]:
    """Records a to e, one a day, that differ in what a query can name."""
    ids = {
        name: id_floor(datetime(2026, 1, day, tzinfo=UTC))[:10] + new_id()[10:] for day, name in enumerate("abcde", 1)
    }
    big, other = example_dataset(name="BigSet"), example_model(name="OtherNet")
    arm = example_system(architecture="arm64", cpu_model="Neoverse-N1", memory_bytes=64 * 2**30)
    return {
        "a": example_record(id=ids["a"]),
        "b": example_record(
            id=ids["b"],
            dataset=big,
            scenario=Batched(batch_size=8),
            software=example_software(framework_version="1.100.0"),
        ),
        "c": example_record(
            id=ids["c"],
            model=other,
            dataset=big,
            system=arm,
            software=example_software(framework="tflite", framework_version="2.1.0"),
        ),
        "d": example_record(
            id=ids["d"], model=example_model(version="1.1.0"), system=example_system(memory_bytes=32 * 2**30)
        ),
        "e": failed_record(id=ids["e"], model=other, software=None, system=None, dataset=None),
    }
