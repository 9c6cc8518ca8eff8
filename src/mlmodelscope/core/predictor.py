"""The predictor as the rest of the program sees it: three calls, and abilities that only some predictors have.

`predictors/port.py` states the same contract for the files that implement it; they cannot import this one, because they
also run in environments where nothing of ours is installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Predictor", "Profiles", "Tensors"]

Tensors: TypeAlias = "list[NDArray[Any]]"


@runtime_checkable
class Predictor(Protocol):
    """Runs one loaded model. One thread calls it, one call after the other; the class is made without arguments.

    A failure is a `mlmodelscope.predictors.port.PredictorFault`, or whatever exception of a third party's predictor has
    the same `code`, `message`, `hint` and `fields`.
    """

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    environment: ClassVar[dict[str, str]]
    formats: ClassVar[tuple[str, ...]]

    def load(self, model: dict[str, Any]) -> dict[str, Any]:
        """Takes the model's paths, layers, threads and options; answers with the facts in force, both plain JSON."""
        ...

    def predict(self, inputs: Tensors) -> Tensors:
        """Arrays with a batch dimension, in the order of the layers given to `load`; the caller owns the results."""
        ...

    def unload(self) -> None:
        """Frees the model. May be called at any time and any number of times."""
        ...


@runtime_checkable
class Profiles(Protocol):
    """A predictor that can also say how long each layer took."""

    def profile(self, inputs: Tensors) -> Sequence[Mapping[str, Any]]:
        """One row per layer of one run, in the order of execution; durations in nanoseconds."""
        ...
