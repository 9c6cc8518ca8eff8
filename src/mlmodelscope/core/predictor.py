"""The predictor as the rest of the program sees it: three calls, and abilities that only some predictors have.

`predictors/port.py` states the same contract for the files that implement it; they cannot import this one, because they
also run in environments where nothing of ours is installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Predictor", "Profiles", "Reveals", "Simulates", "Tensors"]

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
    """A predictor that can also say how long each layer took. Calls of `predict` between the two are profiled."""

    def start_profile(self, folder: str) -> None:
        """From now on calls of `predict` are profiled, and may be slower. `folder` is for files needed meanwhile."""
        ...

    def stop_profile(self) -> Sequence[Sequence[Mapping[str, Any]] | None]:
        """For each call of `predict` since the start its layers in the order of execution; None where some are missing.

        A layer is plain JSON: `name` (as executed), `start_ns` and `duration_ns` (of the clock of the latencies), and
        where known `operator`, `nodes` (the names of the model's own nodes behind it), `provider`, `inputs` and
        `outputs` (lists of {"element_type", "shape"}), `parameter_bytes`, `input_bytes`, `output_bytes`. Afterwards
        `predict` is as fast as before the start.
        """
        ...


@runtime_checkable
class Reveals(Protocol):
    """A predictor that can also show what the layers inside the model computed."""

    def layer_names(self) -> list[str]:
        """Every layer whose output can be had, in the order of execution where the framework has one."""
        ...

    def reveal(self, inputs: Tensors, names: Sequence[str]) -> Tensors:
        """The outputs of the named layers for these inputs. `predict` is afterwards what it was before."""
        ...


@runtime_checkable
class Simulates(Protocol):
    """A predictor with a clock of its own, such as a simulator of a device. Latencies and spans are then of that clock,
    labelled `simulated`, and never compared with measured time."""

    def now_ns(self) -> int:
        """Nanoseconds of simulated time; it goes on only inside `predict`, and never back."""
        ...
