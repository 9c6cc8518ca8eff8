"""A data set, a number and a seed -> a smaller data set, the same on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from mlmodelscope.core.errors import UsageError
from mlmodelscope.core.sample import Dataset, Sample

__all__ = ["select"]


def select(dataset: Dataset, samples: int | None, seed: int = 0) -> Dataset:
    """`samples` of the data set in their old order; None is all of it.

    The choice hangs on the seed and the ids alone, and a larger choice with the same seed holds every smaller one.
    """
    if samples is None or samples == len(dataset):
        return dataset
    if not 0 < samples < len(dataset):
        raise UsageError(
            f"{samples} samples were asked for, the data set has {len(dataset)}",
            hint=f"choose from 1 to {len(dataset)}",
            samples=samples,
            available=len(dataset),
        )
    ids = dataset.ids()
    ranked = sorted(range(len(ids)), key=lambda index: hashlib.sha256(f"{seed}\0{ids[index]}".encode()).digest())
    return _Subset(dataset, sorted(ranked[:samples]), ids)


class _Subset:
    def __init__(self, dataset: Dataset, indices: Sequence[int], ids: Sequence[str]) -> None:
        self._dataset = dataset
        self._indices = indices
        self._ids = [ids[index] for index in indices]

    def __len__(self) -> int:
        return len(self._indices)

    def get(self, index: int) -> Sample:
        return self._dataset.get(self._indices[index])

    def __iter__(self) -> Iterator[Sample]:
        return (self.get(index) for index in range(len(self)))

    def ids(self) -> list[str]:
        return list(self._ids)
