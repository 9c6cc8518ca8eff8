"""Stored records -> everything a report shows: raw data, comparisons, and small pictures of some samples.

Nothing is downloaded: where the files of a data set are not on this machine, the report says so.
"""

from __future__ import annotations

import gc
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlmodelscope.analyse.accuracy import is_right
from mlmodelscope.analyse.comparison import Evidence, compare
from mlmodelscope.analyse.layers import LayerShare, layer_shares
from mlmodelscope.core.answer import Classes, Prediction
from mlmodelscope.core.asset import Asset
from mlmodelscope.core.errors import InputError, MLModelScopeError, StoreError
from mlmodelscope.core.manifest import DatasetManifest, Synthetic
from mlmodelscope.core.record import DatasetFacts, Record
from mlmodelscope.core.release import VERSION
from mlmodelscope.core.sample import Dataset
from mlmodelscope.core.store import Store
from mlmodelscope.evidence import read_evidence, read_trace
from mlmodelscope.provision import Assets
from mlmodelscope.show.report.data import Entry, Picture, Pictures, ReportData, Said

__all__ = ["gather"]

MOST_PICTURES = 12
_MOST_SETS = 4
# of these, so that a page shows what the records disagree on, what nobody could, and what works
_DISAGREED, _WRONG = 6, 4
_SIDE = 240
_MOST_PIXELS = 100_000_000


def gather(store: Store, records: Sequence[Record], assets: Assets, cache: Path) -> ReportData:
    """`assets` find the files of data sets on this machine; `cache` is the folder for decoded copies of them."""
    with _collector_paused():
        return _gather(store, records, assets, cache)


def _gather(store: Store, records: Sequence[Record], assets: Assets, cache: Path) -> ReportData:
    entries = tuple(_entry(store, record, number) for number, record in enumerate(records, 1))
    succeeded = [entry.evidence for entry in entries if entry.record.status == "succeeded"]
    return ReportData(
        entries=entries,
        comparisons=tuple(compare(succeeded[0], other) for other in succeeded[1:]),
        pictures=tuple(_pictures(group, assets, cache) for group in _by_dataset(entries)[:_MOST_SETS]),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        version=VERSION,
    )


@contextmanager
def _collector_paused() -> Iterator[None]:
    """A hundred thousand predictions hold no cycles, and looking for some takes four times as long as reading them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _entry(store: Store, record: Record, number: int) -> Entry:
    """A record whose files are lost or damaged is still worth showing: the page says what is missing."""
    evidence = Evidence(record, [], [])
    layers: tuple[LayerShare, ...] = ()
    gaps: list[str] = []
    try:
        evidence = read_evidence(store, record)
    except StoreError as error:
        gaps.append(error.message)
    try:
        layers = tuple(layer_shares(read_trace(store, record).spans)) if record.trace is not None else ()
    except MLModelScopeError as error:
        gaps.append(error.message)
    return Entry(number, evidence, layers, tuple(gaps))


def _by_dataset(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Entries with classes as answers, together where they ran samples of the same files."""
    groups: dict[Any, list[Entry]] = {}
    for entry in entries:
        facts = entry.record.dataset
        if facts is not None and any(isinstance(item.answer, Classes) for item in entry.evidence.predictions):
            groups.setdefault((facts.name.lower(), _digests(facts)), []).append(entry)
    return list(groups.values())


def _digests(facts: DatasetFacts) -> tuple[str, ...]:
    return tuple(sorted(asset.sha256 for asset in facts.assets))


def _pictures(entries: Sequence[Entry], assets: Assets, cache: Path) -> Pictures:
    record = entries[0].record
    assert record.dataset is not None
    samples = len({item.sample for entry in entries for item in entry.evidence.predictions})
    try:
        found = _Samples.open(record, assets, cache)
        pictures = _choose(entries, found)
    except MLModelScopeError as error:
        return Pictures(record.dataset.name, (), samples, error.message)
    return Pictures(record.dataset.name, tuple(pictures), samples)


@dataclass(frozen=True)
class _Samples:
    """The samples of a data set by id, and the names of the classes where the set has a list of them."""

    dataset: Dataset
    positions: Mapping[str, int]
    labels: Sequence[str]

    @classmethod
    def open(cls, record: Record, assets: Assets, cache: Path) -> _Samples:
        """InputError if the files are not here, or are not those that were run."""
        from mlmodelscope.datasets.files import from_files
        from mlmodelscope.datasets.open import open_dataset

        facts = record.dataset
        assert facts is not None
        here = _Here(assets, Path(facts.manifest.base).expanduser() if facts.manifest else Path.cwd(), _digests(facts))
        labels: list[str] = []
        if facts.manifest is None:
            names = [str(Path(text).expanduser()) if text.startswith("~/") else text for text in record.request.inputs]
            paths = [here.path(Asset(locations=(name,))) for name in names]
            dataset: Dataset = from_files(paths, [path.name for path in paths])
        else:
            manifest = _parse(facts.manifest.text, facts.manifest.origin)
            dataset = open_dataset(manifest, here.path, cache)
            labels = here.labels(manifest.labels)
        return cls(dataset, {name: index for index, name in enumerate(dataset.ids())}, labels)

    def thumbnail(self, sample: str) -> tuple[bytes, int, int] | None:
        position = self.positions.get(sample)
        try:
            return _thumbnail(self.dataset.get(position).data) if position is not None else None
        except MLModelScopeError:
            return None


@dataclass(frozen=True)
class _Here:
    """The files of one data set on this machine, each checked to be one that was run."""

    assets: Assets
    base: Path
    digests: tuple[str, ...]

    def path(self, asset: Asset) -> Path:
        state = self.assets.describe(asset, base=self.base)
        if state.path is None:
            raise InputError("its files are not in the cache of this machine", asset=str(asset.locations[0]))
        if state.sha256 not in self.digests:
            raise InputError("its files have changed since they were run", asset=str(asset.locations[0]))
        return state.path

    def labels(self, asset: Asset | None) -> list[str]:
        from mlmodelscope.process.labels import read_labels

        return read_labels(self.path(asset)) if asset is not None else []


def _parse(text: str, origin: str) -> DatasetManifest:
    from mlmodelscope.manifest import load_manifest

    manifest = load_manifest(text, origin=origin)
    assert isinstance(manifest, DatasetManifest)
    if isinstance(manifest.layout, Synthetic):
        raise InputError("its samples are noise, made on demand")
    return manifest


def _choose(entries: Sequence[Entry], samples: _Samples) -> list[Picture]:
    answers: dict[str, list[tuple[int, Prediction]]] = {}
    for entry in entries:
        for prediction in entry.evidence.predictions:
            answers.setdefault(prediction.sample, []).append((entry.number, prediction))
    names = {
        item.index: item.label
        for given in answers.values()
        for _, prediction in given
        if isinstance(prediction.answer, Classes)
        for item in prediction.answer.classes
        if item.label is not None
    }
    names |= dict(enumerate(samples.labels))
    pictures: list[Picture] = []
    for sample in _order(answers):
        if len(pictures) == MOST_PICTURES:
            break
        if (made := samples.thumbnail(sample)) is not None:
            label = answers[sample][0][1].label
            truth = None if label is None else names.get(label, f"class {label}")
            pictures.append(Picture(sample, truth, *made, said=_said(answers[sample])))
    return pictures


def _order(answers: Mapping[str, Sequence[tuple[int, Prediction]]]) -> list[str]:
    """Some samples on which the records disagree, some that all got wrong, some that all got right; then the rest."""
    kinds: dict[str, list[str]] = {"disagreed": [], "wrong": [], "right": []}
    for sample, given in answers.items():
        flags = {is_right(prediction, 1) for _, prediction in given}
        kind = "disagreed" if len(flags) > 1 else "wrong" if flags == {False} else "right"
        kinds[kind].append(sample)
    first = kinds["disagreed"][:_DISAGREED]
    wrong = kinds["wrong"][: _WRONG if first else _DISAGREED]
    chosen = [*first, *wrong, *kinds["right"][: MOST_PICTURES - len(first) - len(wrong)]]
    rest = [sample for kind in kinds.values() for sample in kind if sample not in set(chosen)]
    return chosen + rest


def _said(given: Sequence[tuple[int, Prediction]]) -> tuple[Said, ...]:
    """One line for all records that gave the same answer with the same score, as far as it is shown."""
    groups: dict[Any, list[tuple[int, Prediction]]] = {}
    for number, prediction in given:
        top = _top(prediction)
        groups.setdefault((top.index, f"{top.score:.2f}") if top else None, []).append((number, prediction))
    return tuple(
        Said(tuple(number for number, _ in same), _top(same[0][1]), is_right(same[0][1], 1)) for same in groups.values()
    )


def _top(prediction: Prediction) -> Any:
    answer = prediction.answer
    return answer.classes[0] if isinstance(answer, Classes) and answer.classes else None


def _thumbnail(data: Any) -> tuple[bytes, int, int] | None:
    """A small JPEG file of a sample; None for what is no picture."""
    import warnings

    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = Image.open(io.BytesIO(data)) if isinstance(data, bytes) else Image.fromarray(data)
            if image.width * image.height > _MOST_PIXELS:
                return None
            image.draft("RGB", (_SIDE, _SIDE))
            small = image.convert("RGB")
            if max(small.size) <= _SIDE // 4:
                # the browser would blur the few pixels that the model saw
                factor = _SIDE // 2 // max(small.size)
                small = small.resize((small.width * factor, small.height * factor), Image.Resampling.NEAREST)
            small.thumbnail((_SIDE, _SIDE))
            stream = io.BytesIO()
            small.save(stream, "JPEG", quality=80, optimize=True)
        except Exception:  # a damaged file makes the format readers raise nearly anything
            return None
    return stream.getvalue(), small.width, small.height
