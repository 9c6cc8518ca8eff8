"""Holds what every kind of PyTorch model answers, whatever file it came from, and what the kinds share.

The kinds are in `pytorchfile.py` (TorchScript, torch.export) and `pytorchfactory.py` (a module and a state dict).
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import abc
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.port import PredictorFault, element_type

__all__ = [
    "TRIAL_BATCHES",
    "Fact",
    "Model",
    "Output",
    "common_shape",
    "fitting_types",
    "follow",
    "numpy_type",
    "sorted_as",
    "stated_shapes",
]

# sizes that differ between the two trials come from an open dimension
TRIAL_BATCHES = (1, 2)
_TRIAL_SIZE = 64

Fact = Dict[str, Any]
# a name, a shape or None, an element type or None, and the keys that lead to it from the returned value
Output = Tuple[str, Any, Any, Tuple[Any, ...]]


class Model(abc.ABC):
    """One opened model. `call` takes tensors in the order of `inputs`; `guarded` is the same with the framework's own
    checks of the shapes, where it has any. `mark` is called with a name and gives a context manager."""

    provider = "eager"
    optimization = "none"

    def __init__(self, torch: Any, module: Any) -> None:
        self.torch = torch
        self.module = module
        self.call: Callable[..., Any] = module
        self.guarded: Optional[Callable[..., Any]] = None
        self.inputs: List[Fact] = []
        self.dtypes: List[Any] = []
        self.outputs: List[Output] = []
        # whether a call may write into its inputs; None where only a call tells
        self.is_written_to: Optional[bool] = None

    def is_quantised(self) -> bool:
        return any("quantized" in type(part).__module__ for part in self.module.modules())

    def held(self) -> List[Any]:
        """Every tensor that outlives a call: weights, buffers, and what the parts keep beside them."""
        kept = [value for part in self.module.modules() for value in vars(part).values()]
        owned = [*self.module.parameters(), *self.module.buffers(), *kept]
        return [value for value in owned if isinstance(value, self.torch.Tensor)]

    def zeros(self, batch: int, device: Any) -> List[Any]:
        """Inputs for a trial. Open sizes other than the batch's are what most networks can bear."""
        tensors = []
        for fact, dtype in zip(self.inputs, self.dtypes):
            sizes = [_TRIAL_SIZE if size is None else size for size in fact["shape"]]
            if sizes and fact["shape"][0] is None:
                sizes[0] = batch
            tensors.append(self.torch.zeros(sizes, dtype=dtype, device=device))
        return tensors

    @abc.abstractmethod
    def layer_names(self) -> List[str]: ...

    @abc.abstractmethod
    def reveal(self, tensors: Sequence[Any], names: Sequence[str]) -> List[Any]: ...

    def watched(self, mark: Callable[[str], Any]) -> Tuple[Callable[..., Any], Callable[[], None]]:
        """A call that marks what it is doing, and what ends the watching."""
        return self.call, lambda: None

    def operators(self) -> List[Tuple[str, str]]:
        """(name, operator) of every layer in the order of execution, where the names cannot be marked on the way."""
        return []


def follow(value: Any, keys: Sequence[Any]) -> Any:
    """The part of a returned value to which keys lead."""
    for key in keys:
        value = value[key]
    return value


def common_shape(first: Any, second: Any) -> List[Optional[int]]:
    """The shape of one output in two trials: None where they differ."""
    return [size if size == twin else None for size, twin in zip(first.shape, second.shape)]


def numpy_type(dtype: Any) -> str:
    """numpy's name of a torch type; numpy has no bfloat16, whose numbers all are float32 numbers."""
    name = str(dtype).rpartition(".")[2]
    return "float32" if name == "bfloat16" else name


def stated_shapes(framework: str, options: Fact, names: Sequence[str]) -> List[Any]:
    """The option `shapes`: one list for every input, None where any size will do."""
    given = options.get("shapes")
    if given is None:
        return [None] * len(names)
    is_right = isinstance(given, (list, tuple)) and all(
        isinstance(shape, (list, tuple))
        and all(size is None or (isinstance(size, int) and not isinstance(size, bool) and size >= 1) for size in shape)
        for shape in given
    )
    if not is_right or len(given) != len(names):
        raise PredictorFault(
            "predictor_failed",
            f"{framework}: option shapes must hold a list of sizes for every input: {', '.join(names)}",
            hint="for example shapes: [[null, 3, 224, 224]], null where any size will do",
            option="shapes",
            expected=list(names),
            got=given,
        )
    return [list(shape) for shape in given]


def fitting_types(torch: Any, module: Any, asked: Sequence[Fact], count: int) -> Tuple[List[str], List[Any]]:
    """Types of inputs that the file does not tell: as announced, otherwise that of the weights."""
    floats = [value.dtype for value in module.state_dict().values() if _is_float(value)]
    weights = floats[0] if floats else torch.float32
    names, dtypes = [], []
    for place in range(count):
        announced = asked[place].get("element_type") if place < len(asked) else None
        name = element_type(announced) if announced else numpy_type(weights)
        dtype = weights if name == numpy_type(weights) else getattr(torch, name, None)
        if not isinstance(dtype, torch.dtype):
            raise PredictorFault(
                "shape_mismatch", f"pytorch has no element type {name}", expected="a numeric type", got=name
            )
        names.append(name)
        dtypes.append(dtype)
    return names, dtypes


def _is_float(value: Any) -> bool:
    return hasattr(value, "is_floating_point") and bool(value.is_floating_point())


def sorted_as(names: Sequence[str], asked: Sequence[Fact]) -> List[Fact]:
    """What is announced, in the order of the model's own inputs."""
    found = []
    for place, name in enumerate(names):
        fits = [
            fact
            for index, fact in enumerate(asked)
            if fact.get("layer_name") in (name, place) or (fact.get("layer_name") is None and index == place)
        ]
        found.append(fits[0] if fits else {})
    return found
