"""A count, a size and a seed -> images of noise, made on demand."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

from mlmodelscope.core.manifest import Synthetic
from mlmodelscope.core.sample import Sample

__all__ = ["SyntheticDataset"]


class SyntheticDataset:
    """The pixels of a sample depend on the seed and its index alone; its bytes also on the encoder's version."""

    def __init__(self, layout: Synthetic) -> None:
        self._layout = layout

    def __len__(self) -> int:
        return self._layout.count

    def get(self, index: int) -> Sample:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        classes = self._layout.classes
        return Sample(self._id(index), self._encoded(index), None if classes is None else index % classes)

    def __iter__(self) -> Iterator[Sample]:
        return (self.get(index) for index in range(len(self)))

    def ids(self) -> list[str]:
        return [self._id(index) for index in range(len(self))]

    def _id(self, index: int) -> str:
        return f"{index:06d}"

    def _encoded(self, index: int) -> bytes:
        import numpy as np
        from PIL import Image

        height, width = self._layout.size
        # raw output of a named generator: unlike the distributions, it is the same in every version of numpy
        generator = np.random.Generator(np.random.PCG64([self._layout.seed % 2**64, index]))
        image = Image.frombytes("RGB", (width, height), generator.bytes(height * width * 3))
        stream = BytesIO()
        if self._layout.encoding == "png":
            image.save(stream, "PNG", compress_level=1)
        else:
            image.save(stream, "JPEG", quality=95)
        return stream.getvalue()
