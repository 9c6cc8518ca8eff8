"""What a report is made of: records with their raw data, comparisons, pictures and layers, all read beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from mlmodelscope.analyse.comparison import Comparison, Evidence
from mlmodelscope.analyse.layers import LayerShare
from mlmodelscope.core.answer import ClassScore
from mlmodelscope.core.record import Record

__all__ = ["Entry", "Picture", "Pictures", "ReportData", "Said"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of the report under the number that stands for it on the page. `gaps` say what could not be read."""

    number: int
    evidence: Evidence
    layers: tuple[LayerShare, ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def record(self) -> Record:
        return self.evidence.record


@dataclass(frozen=True, slots=True)
class Said:
    """The first answer that some records gave for one picture; None: no class at all. `is_right`: None if unknown."""

    numbers: tuple[int, ...]
    answer: ClassScore | None
    is_right: bool | None


@dataclass(frozen=True, slots=True)
class Picture:
    """A sample with its answers. `thumbnail` is a small JPEG file; `truth` is the class's name or index."""

    sample: str
    truth: str | None
    thumbnail: bytes
    width: int
    height: int
    said: tuple[Said, ...]


@dataclass(frozen=True, slots=True)
class Pictures:
    """Some samples of one data set, those first on which the records disagree. `note` says why there are none."""

    dataset: str
    pictures: tuple[Picture, ...]
    samples: int
    note: str | None = None


@dataclass(frozen=True, slots=True)
class ReportData:
    """`comparisons` hold every further record that succeeded against the first that did. `made_at` is UTC, ISO 8601."""

    entries: tuple[Entry, ...]
    comparisons: tuple[Comparison, ...]
    pictures: tuple[Pictures, ...]
    made_at: str
    version: str

    def number(self, record_id: str) -> int:
        return next(entry.number for entry in self.entries if entry.record.id == record_id)

    @property
    def reference(self) -> Entry | None:
        """What the others are compared with."""
        if not self.comparisons:
            return None
        return self.entries[self.number(self.comparisons[0].left) - 1]
