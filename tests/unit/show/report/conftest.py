"""Reports made of example records, with raw data that fits them."""

from collections.abc import Callable
from typing import Any

import pytest

from mlmodelscope.analyse.comparison import Evidence, compare
from mlmodelscope.analyse.layers import LayerShare
from mlmodelscope.core.answer import Classes, ClassScore, Prediction
from mlmodelscope.core.record import Record
from mlmodelscope.show.report.data import Entry, Picture, Pictures, ReportData, Said

LATENCIES = tuple(tuple(1e7 + 1e5 * ((7 * query + 3 * launch) % 11) for query in range(40)) for launch in range(2))


def prediction(sample: str, label: int | None, *indices: int) -> Prediction:
    classes = tuple(ClassScore(index=i, label=f"class-{i}", score=1 / (n + 2)) for n, i in enumerate(indices))
    return Prediction(sample=sample, label=label, answer=Classes(classes=classes))


@pytest.fixture
def make_report() -> Callable[..., ReportData]:
    def make(*records: Record, pictures: tuple[Pictures, ...] = (), **changes: Any) -> ReportData:
        answers = tuple(prediction(f"sample-{i}", i % 3, (i // 2) % 3, 1, 2) for i in range(12))
        evidence = [
            Evidence(record, LATENCIES, answers) if record.status == "succeeded" else Evidence(record, (), ())
            for record in records
        ]
        good = [item for item in evidence if item.record.status == "succeeded"]
        return ReportData(
            entries=tuple(Entry(number, item, **changes) for number, item in enumerate(evidence, 1)),
            comparisons=tuple(compare(good[0], other) for other in good[1:]),
            pictures=pictures,
            made_at="2026-03-31T12:00:00+00:00",
            version="0.1.0",
        )

    return make


@pytest.fixture
def layers() -> tuple[LayerShare, ...]:
    return tuple(
        LayerShare(
            name=f"conv_{i}", place=i, time_ns=1e6 * (20 - i), share=0.05, operator="Conv", nodes=(), attributes={}
        )
        for i in range(20)
    )


@pytest.fixture
def pictures() -> Pictures:
    answer = ClassScore(index=1, label="cat", score=0.75)
    said = (Said((1,), answer, True), Said((2,), None, False))
    return Pictures("TinySet", (Picture("sample-1", "cat", b"\xff\xd8jpeg", 40, 30, said),), 12)
