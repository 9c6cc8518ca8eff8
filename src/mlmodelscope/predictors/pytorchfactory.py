"""Turns the name of a module factory and a state dict into a PyTorch model: code from a package, weights from a file.

The file is read with `weights_only`, so that it can hold tensors and nothing that runs. The factory's package is one
that the manifest lists in `requirements`.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import importlib
import inspect
import pickle
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.modelfile import describe_file
from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.predictors.pytorchmodel import (
    TRIAL_BATCHES,
    Fact,
    Model,
    Output,
    common_shape,
    fitting_types,
    numpy_type,
    sorted_as,
    stated_shapes,
)

__all__ = ["MadeModel"]


class MadeModel(Model):
    """A module made by a factory. Only running it tells what comes out, so it is tried once with zeros."""

    def __init__(self, torch: Any, path: str, asked: Sequence[Fact], options: Fact, device: Any) -> None:
        state = _read_state(torch, path)
        module = _make(torch, options)
        _fill(module, state, path)
        module.eval().requires_grad_(False).to(device)
        Model.__init__(self, torch, module)
        names = _input_names(module)
        types, self.dtypes = fitting_types(torch, module, sorted_as(names, asked), len(names))
        shapes = stated_shapes("pytorch", options, names)
        if None in shapes:
            raise PredictorFault(
                "predictor_failed",
                "pytorch: a module does not tell the shapes of its inputs",
                hint="add the option shapes, for example shapes: [[null, 3, 224, 224]]; inputs: " + ", ".join(names),
                option="shapes",
                known=names,
            )
        self.inputs = [
            {"name": name, "shape": shape, "element_type": kind} for name, shape, kind in zip(names, shapes, types)
        ]
        self._device = device
        self.outputs = self._try()

    def _try(self) -> List[Output]:
        try:
            with self.torch.inference_mode():
                first, second = [_leaves(self.call(*self.zeros(batch, self._device))) for batch in TRIAL_BATCHES]
        except Exception as error:  # the module's code is anybody's
            raise PredictorFault(
                "predictor_failed",
                f"the module fails on zeros of the shapes stated: {error}",
                hint="compare the options shapes, arguments and keywords with what the module takes",
                error=str(error),
            ) from error
        outputs: List[Output] = []
        for (name, keys, tensor), (_, _, other) in zip(first, second):
            outputs.append((name, common_shape(tensor, other), numpy_type(tensor.dtype), keys))
        if not outputs:
            raise PredictorFault("predictor_failed", "the module returns no tensor")
        return outputs

    def layer_names(self) -> List[str]:
        names: List[str] = []
        with self.torch.inference_mode():
            self._observed(self.zeros(1, self._device), lambda name, _: names.append(name))
        return sorted(set(names), key=names.index)

    def reveal(self, tensors: Sequence[Any], names: Sequence[str]) -> List[Any]:
        found: Dict[str, Any] = {}
        self._observed(tensors, lambda name, value: found.update({name: value}) if name in names else None)
        return [found[name] for name in names]

    def _observed(self, tensors: Sequence[Any], see: Callable[[str, Any], Any]) -> None:
        """Calls `see` with the name and the result of every part that returns a tensor."""

        def hook_for(name: str) -> Callable[..., None]:
            return lambda _part, _given, result: see(name, result) if hasattr(result, "numpy") else None

        hooks = [part.register_forward_hook(hook_for(name)) for name, part in self.module.named_modules() if name]
        try:
            self.call(*tensors)
        finally:
            for hook in hooks:
                hook.remove()

    def watched(self, mark: Callable[[str], Any]) -> Tuple[Callable[..., Any], Callable[[], None]]:
        open_marks: List[Any] = []

        def enter(name: str) -> Callable[..., None]:
            def hook(_part: Any, _given: Any) -> None:
                open_marks.append(mark(name))
                open_marks[-1].__enter__()

            return hook

        def leave(_part: Any, _given: Any, _result: Any) -> None:
            open_marks.pop().__exit__(None, None, None)

        hooks = []
        for name, part in self.module.named_modules():
            if name:
                hooks += [part.register_forward_pre_hook(enter(name)), part.register_forward_hook(leave)]

        def finish() -> None:
            for hook in hooks:
                hook.remove()

        return self.call, finish


def _read_state(torch: Any, path: str) -> Dict[str, Any]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, OSError, EOFError, ValueError, KeyError, AttributeError) as error:
        looks = describe_file(path)
        raise PredictorFault(
            "model_format",
            f"{path} cannot be read as a state dict: it is {looks}",
            hint="save the weights alone: torch.save(module.state_dict(), path); a pickle of objects is never opened",
            path=path,
            expected="a state dict",
            got=looks,
            error=str(error),
        ) from error
    # trainers often save the weights beside their own notes
    inner = state.get("state_dict") if isinstance(state, dict) else None
    state = inner if isinstance(inner, dict) else state
    if not isinstance(state, dict) or not state or not all(isinstance(key, str) for key in state):
        raise PredictorFault(
            "model_format",
            f"{path} holds {type(state).__name__}, not a state dict",
            path=path,
            expected="a state dict",
            got=type(state).__name__,
        )
    return state


def _make(torch: Any, options: Fact) -> Any:
    named = options["factory"]
    arguments, keywords = options.get("arguments") or [], options.get("keywords") or {}
    if not isinstance(arguments, (list, tuple)) or not isinstance(keywords, dict):
        raise PredictorFault(
            "predictor_failed",
            "pytorch: option arguments is a list, and keywords a mapping",
            option="arguments" if isinstance(keywords, dict) else "keywords",
        )
    factory = _find(named)
    try:
        module = factory(*arguments, **keywords)
    except Exception as error:  # the factory's code is anybody's
        raise PredictorFault(
            "predictor_failed",
            f"{named} fails: {error}",
            hint="see the options arguments and keywords",
            option="factory",
            error=str(error),
        ) from error
    if not isinstance(module, torch.nn.Module):
        raise PredictorFault(
            "predictor_failed",
            f"{named} makes {type(module).__name__}, not a torch.nn.Module",
            option="factory",
            got=type(module).__name__,
        )
    return module


def _find(named: Any) -> Any:
    package, colon, attribute = str(named).partition(":")
    if not isinstance(named, str) or not (package and colon and attribute):
        raise PredictorFault(
            "predictor_failed",
            f"pytorch: option factory cannot be {named!r}",
            hint="write it as package.module:callable",
            option="factory",
            got=named,
        )
    try:
        found = importlib.import_module(package)
    except Exception as error:  # somebody else's module can fail in any way
        raise PredictorFault(
            "environment_missing",
            f"{package} cannot be imported: {type(error).__name__}: {error}",
            hint="list its package in the manifest's requirements",
            option="factory",
            module=package,
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = sorted(name for name in dir(found) if not name.startswith("_"))
            raise PredictorFault(
                "predictor_failed",
                f"{package} has no {attribute}",
                hint=f"it has: {', '.join(known[:20])}",
                option="factory",
                known=known,
            )
        found = getattr(found, part)
    return found


def _fill(module: Any, state: Dict[str, Any], path: str) -> None:
    try:
        module.load_state_dict(state)
    except (RuntimeError, TypeError) as error:
        mine = set(module.state_dict())
        missing, left = sorted(mine - set(state)), sorted(set(state) - mine)
        raise PredictorFault(
            "model_format",
            f"{path} does not fit the module: {len(missing)} weights missing, {len(left)} unknown, or of other shapes",
            hint="see the options factory, arguments and keywords",
            path=path,
            missing=missing[:20],
            unknown=left[:20],
            error=str(error),
        ) from error


def _input_names(module: Any) -> List[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(module.forward).parameters.values()
    names = [part.name for part in parameters if part.kind in kinds and part.default is inspect.Parameter.empty]
    return names or ["input_0"]


def _leaves(
    value: Any, words: Tuple[str, ...] = (), keys: Tuple[Any, ...] = ()
) -> List[Tuple[str, Tuple[Any, ...], Any]]:
    """Name, keys and tensor of every tensor in what a module returned."""
    steps: Optional[Sequence[Any]] = None
    if hasattr(value, "untyped_storage"):
        return [(".".join(words) or "output_0", keys, value)]
    if isinstance(value, dict):
        steps, labels = list(value), [str(key) for key in value]
    elif isinstance(value, (list, tuple)):
        steps = range(len(value))
        labels = list(getattr(value, "_fields", ())) or [f"output_{step}" for step in steps]
    if steps is None:
        return []
    return [
        leaf for label, step in zip(labels, steps) for leaf in _leaves(value[step], words + (label,), keys + (step,))
    ]
