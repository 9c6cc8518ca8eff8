"""A converter's name to the converter, imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from mlmodelscope.core.errors import UnknownNameError

__all__ = ["CONVERTERS", "Converter", "converter"]

_PLACES = {
    "state-dict-to-onnx": "mlmodelscope.provision.convert.state_dict_to_onnx.converter:CONVERTER",
    "tfjs-to-onnx": "mlmodelscope.provision.convert.tfjs_to_onnx.converter:CONVERTER",
}


class Converter(Protocol):
    """Makes one runnable file from published weights, without running any code that comes with them.

    Stateless and thread-safe. The same source, companions and options give the same bytes for one `digest()`.
    A source that cannot be converted is a ConvertError, a missing package an EnvironmentMissingError.
    """

    @property
    def name(self) -> str: ...

    @property
    def extension(self) -> str:
        """The suffix of the file it writes, with the dot."""
        ...

    def companions(self, source: Path) -> list[str]:
        """Further files that must lie beside `source`: relative paths with `/`, in the order they are needed."""
        ...

    def convert(self, source: Path, target: Path, options: Mapping[str, str]) -> None:
        """Writes `target`. The caller makes the write atomic: a failure may leave a part of the file behind."""
        ...

    def digest(self) -> str:
        """SHA-256 of what decides the output besides the source: this converter's code and the onnx version."""
        ...


class _LazyConverters(Mapping[str, Converter]):
    def __getitem__(self, name: str) -> Converter:
        module, _, attribute = _PLACES[name].partition(":")
        return cast(Converter, getattr(import_module(module), attribute))

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


CONVERTERS: Mapping[str, Converter] = _LazyConverters()


def converter(name: str) -> Converter:
    if name not in _PLACES:
        raise UnknownNameError("converter", name, _PLACES)
    return CONVERTERS[name]
