"""Samples: one thing to ask a model about, and how a data set hands them out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Dataset", "Sample"]


@dataclass(frozen=True, slots=True)
class Sample:
    """`data` is the bytes of an encoded file or an array; `label` the class index where it is known.

    `id` names the sample inside its data set and never changes between machines.
    """

    id: str
    data: Any
    label: int | None = None


class Dataset(Protocol):
    """Samples by position. Reads one at a time: nothing of the size of the set is ever in memory, ids and labels aside.

    `get` raises SampleError for a sample that cannot be read. Not thread-safe.
    """

    def __len__(self) -> int: ...

    def get(self, index: int) -> Sample: ...

    def __iter__(self) -> Iterator[Sample]: ...

    def ids(self) -> list[str]: ...
