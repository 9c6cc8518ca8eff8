"""A data set manifest -> the data set itself, whatever its layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mlmodelscope.core.asset import Asset
from mlmodelscope.core.manifest import CsvLabels, DatasetManifest, FolderPerClass, ImageStrip, NamedFiles
from mlmodelscope.core.sample import Dataset

__all__ = ["open_dataset"]


def open_dataset(manifest: DatasetManifest, resolve: Callable[[Asset], Path], cache: Path) -> Dataset:
    """`resolve` gives the file or folder of an asset on this machine; `cache` is a folder for decoded copies.

    InputError: the files do not fit the manifest. A file that cannot be read later is a SampleError of `get`.
    """
    match manifest.layout:
        case FolderPerClass() as layout:
            from mlmodelscope.datasets.folders import open_folder_per_class

            return open_folder_per_class(layout, resolve)
        case NamedFiles() as layout:
            from mlmodelscope.datasets.folders import open_named_files

            return open_named_files(layout, resolve)
        case CsvLabels() as layout:
            from mlmodelscope.datasets.csv_labels import open_csv

            return open_csv(layout, resolve)
        case ImageStrip() as layout:
            from mlmodelscope.datasets.strip import open_image_strip

            return open_image_strip(layout, resolve, cache)
        case layout:
            from mlmodelscope.datasets.synthetic import SyntheticDataset

            return SyntheticDataset(layout)
