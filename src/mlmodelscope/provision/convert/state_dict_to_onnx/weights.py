"""Tensors by name to the arrays an architecture asks for, with a list of all that does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mlmodelscope.core.errors import ConvertError

__all__ = ["Weights"]

_SHOWN = 8


class Weights:
    """Hands out float32 arrays and keeps account, so that one error can name every problem of a state dict.

    An architecture takes what it needs, in any order, and `check` is called before the result is used: until then a
    missing or wrong tensor is stood in for by zeros.
    """

    def __init__(self, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        self._tensors = tensors
        self._unused = dict.fromkeys(tensors)
        self._missing: list[str] = []
        self._wrong: list[str] = []

    def take(self, name: str, *shape: int) -> npt.NDArray[np.float32]:
        self.ignore(name)
        found = self._tensors.get(name)
        if found is None:
            self._missing.append(name)
        elif found.shape != shape:
            self._wrong.append(f"{name} is {list(found.shape)}, expected {list(shape)}")
        elif found.dtype.kind != "f":
            self._wrong.append(f"{name} is {found.dtype.name}, expected numbers with a fraction")
        else:
            return np.asarray(found, dtype=np.float32)
        return np.broadcast_to(np.float32(0), shape)

    def ignore(self, name: str) -> None:
        """A tensor that may be there and does not matter at inference."""
        self._unused.pop(name, None)

    def check(self, architecture: str) -> None:
        parts = [
            _summary("missing", self._missing),
            _summary("unexpected", list(self._unused)),
            _summary("mis-shaped", self._wrong),
        ]
        if any(parts):
            raise ConvertError(
                f"the state dict does not fit {architecture}: {'; '.join(part for part in parts if part)}",
                hint="is this the right architecture for these weights?",
                architecture=architecture,
                missing=self._missing,
                unexpected=list(self._unused),
                mis_shaped=self._wrong,
            )


def _summary(kind: str, names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{kind} {', '.join(names[:_SHOWN])}{more}"
