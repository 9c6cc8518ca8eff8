"""Turns any tensors into the same prepared tensors: the predictor that costs nothing, to measure everything round it.

`load` reads no file. `predict` looks at nothing and returns one list, made at load, on every call; its arrays are zeros
and read-only, so that no caller can change what the next one gets. Their shapes are option `outputs`, by default
[[1, 1000]], whatever the batch size. Where numpy is absent they are memoryviews of the same shapes.
"""

from typing import Any, ClassVar, Dict, List, Tuple

from mlmodelscope.predictors.port import PredictorFault, check_options, check_threads, unloaded

__all__ = ["Predictor"]


class Predictor(object):
    name: ClassVar[str] = "null"
    packages: ClassVar[Tuple[str, ...]] = ()
    environment: ClassVar[Dict[str, str]] = {}
    formats: ClassVar[Tuple[str, ...]] = ()

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        options = model.get("options") or {}
        check_options(self.name, options, {"outputs": None})
        threads = check_threads(self.name, model.get("threads", 1))
        shapes = _checked_shapes(options.get("outputs", [[1, 1000]]))
        self._outputs = [_zeros(shape) for shape in shapes]
        return {
            "framework": self.name,
            "version": "1",
            "threads": threads,
            "provider": "none",
            "device": "cpu",
            "library": "none",
            "optimization": "none",
            "precision": "float32",
            "inputs": [],
            "outputs": [
                {"name": f"output_{index}", "shape": shape, "element_type": "float32"}
                for index, shape in enumerate(shapes)
            ],
        }

    def predict(self, inputs: List[Any]) -> List[Any]:
        # an absent attribute instead of a test: the good path is one look-up
        try:
            return self._outputs
        except AttributeError:
            raise unloaded(self.name) from None

    def unload(self) -> None:
        self.__dict__.pop("_outputs", None)


def _checked_shapes(shapes: Any) -> List[List[int]]:
    is_list = isinstance(shapes, (list, tuple)) and all(isinstance(shape, (list, tuple)) for shape in shapes)
    if not is_list or not all(isinstance(size, int) and size >= 1 for shape in shapes for size in shape):
        raise PredictorFault(
            "predictor_failed",
            f"null: option outputs must be a list of shapes, not {shapes!r}",
            hint="for example [[1, 1000]]",
            option="outputs",
            expected=[[1, 1000]],
            got=shapes,
        )
    return [list(shape) for shape in shapes]


def _zeros(shape: List[int]) -> Any:
    try:
        import numpy as np
    except ImportError:
        count = 1
        for size in shape:
            count *= size
        return memoryview(bytes(4 * count)).cast("f", shape)
    zeros = np.zeros(shape, dtype=np.float32)
    zeros.flags.writeable = False
    return zeros
