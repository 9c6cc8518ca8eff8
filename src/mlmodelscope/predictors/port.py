"""Turns what a framework refuses into one kind of fault, and holds what every predictor file needs to meet the port.

A predictor file defines `class Predictor` with

    name         the registered name
    packages     distributions whose installed version is the framework's version, the likeliest first
    environment  variables that must be set before the process starts
    formats      endings of the files it reads

    load(model)     -> facts      once before predict; again replaces the model
    predict(inputs) -> outputs    arrays in the order of model["inputs"] and model["outputs"], batch dimension included
    unload()        -> None       frees the model; any number of times

One thread calls them, one after the other. `model` and the facts are plain JSON values:

    model   name, graph_path, weights_path or None, inputs [{layer_name, element_type}], outputs [{layer_name}],
            threads, options
    facts   framework, version, threads, provider, device, library, optimization, precision,
            inputs and outputs [{name, shape, element_type}]

The facts are what is in force, asked of the framework after loading: `provider` is the part of the framework that runs
the model, `device` where ("cpu", "cuda:0"), `library` whose kernels compute ("oneDNN 3.11", "MLAS"; "unknown" where the
framework does not tell). A shape has None where any size is accepted. Optional abilities (`start_profile` and
`stop_profile`; `layer_names` and `reveal`; `now_ns`) are described in `core/predictor.py`. The arrays that `predict`
returns belong to the caller: no later call changes them. Every failure is a `PredictorFault`.

This file and its neighbours also run inside a framework's own environment, where nothing of ours is installed: Python
3.6 syntax, the standard library, numpy and the framework.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import contextlib
import importlib
import os
import sys
import tempfile
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set

__all__ = [
    "CODES",
    "PredictorFault",
    "check_all_fed",
    "check_element_types",
    "check_options",
    "check_threads",
    "distribution_version",
    "element_type",
    "import_framework",
    "misfit",
    "parse_flag",
    "parse_seconds",
    "plain_type",
    "quiet_stderr",
    "select_layers",
    "thread_ids",
    "threads_in_force",
    "unloaded",
]

CODES = ("batch_unsupported", "environment_missing", "model_format", "predictor_failed", "shape_mismatch")

_ELEMENT_TYPES = {"float": "float32", "double": "float64", "half": "float16", "str": "string", "object": "string"}


class PredictorFault(Exception):  # noqa: N818 - an error of ours only once it has crossed to our side
    """A failure of the model, its inputs or the framework. `code` is one of CODES, `fields` are plain JSON values."""

    def __init__(self, code: str, message: str, hint: Optional[str] = None, **fields: Any) -> None:
        super().__init__(message)
        assert code in CODES, code
        self.code = code
        self.message = message
        self.hint = hint
        self.fields: Dict[str, Any] = fields


def unloaded(name: str) -> PredictorFault:
    return PredictorFault("predictor_failed", f"{name}: no model is loaded", hint="call load() first", framework=name)


def import_framework(name: str, modules: Sequence[str]) -> Any:
    """The first of `modules` that is installed."""
    for module in modules:
        try:
            return importlib.import_module(module)
        except ImportError as error:
            # a dependency of the framework that is absent or broken must not read as "the framework is absent"
            if isinstance(error, ModuleNotFoundError) and error.name in (module, module.partition(".")[0]):
                continue
            raise PredictorFault(
                "environment_missing",
                f"{name} is installed but cannot be imported: {' '.join(str(error).split())[:500]}",
                hint="make its environment anew: mlmodelscope environments remove ID, then run again",
                framework=name,
                module=module,
            ) from error
    raise PredictorFault(
        "environment_missing",
        f"{name} is not installed in this environment",
        hint="let it have one of its own: --environment venv",
        framework=name,
        modules=list(modules),
    )


def distribution_version(distributions: Sequence[str]) -> Optional[str]:
    """The version of the first installed distribution, for frameworks that do not tell their own."""
    try:
        metadata = importlib.import_module("importlib.metadata")
    except ImportError:  # Python 3.7 and older
        return _distribution_version_before_3_8(distributions)
    for distribution in distributions:
        try:
            return str(metadata.version(distribution))
        except metadata.PackageNotFoundError:
            continue
    return None


def _distribution_version_before_3_8(distributions: Sequence[str]) -> Optional[str]:
    try:
        resources = importlib.import_module("pkg_resources")
    except ImportError:
        return None
    for distribution in distributions:
        try:
            return str(resources.get_distribution(distribution).version)
        except resources.DistributionNotFound:
            continue
    return None


def check_options(name: str, options: Dict[str, Any], choices: Dict[str, Optional[Sequence[str]]]) -> None:
    """Refuses an option that is not in `choices`, or a value that is not among its choices (None: any value)."""
    for key, value in options.items():
        if key not in choices:
            known = ", ".join(sorted(choices)) or "none"
            raise PredictorFault(
                "predictor_failed",
                f"{name} has no option named {key!r}",
                hint=f"options of {name}: {known}",
                option=key,
                known=sorted(choices),
            )
        allowed = choices[key]
        if allowed is not None and value not in allowed:
            raise PredictorFault(
                "predictor_failed",
                f"{name}: option {key} cannot be {value!r}",
                hint=f"{key} is one of: {', '.join(allowed)}",
                option=key,
                expected=list(allowed),
                got=value,
            )


def parse_flag(value: Any) -> Optional[bool]:
    """The value of an option that is true or false, also as the command line gives it; None if it is neither."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value)
    return value if isinstance(value, bool) else None


def parse_seconds(value: Any) -> Optional[float]:
    """The value of an option that is a number of seconds, also as the command line gives it; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        seconds = float(value)
    except (OverflowError, ValueError):
        return None
    return seconds if 0 < seconds < 1e6 else None


def check_threads(name: str, threads: Any) -> int:
    if isinstance(threads, int) and not isinstance(threads, bool) and threads >= 1:
        return threads
    raise PredictorFault(
        "predictor_failed", f"{name}: threads must be 1 or more, not {threads!r}", expected=">= 1", got=threads
    )


def select_layers(kind: str, asked: Sequence[Dict[str, Any]], names: Sequence[str]) -> List[int]:
    """Positions among `names` of the layers asked for: by name, by index, by place in the list (None), or all.

    `kind` is "input" or "output". A name also matches when only a TensorFlow port (":0") tells the two apart.
    """
    chosen: List[int] = []
    for place, layer in enumerate(asked):
        wanted = layer.get("layer_name")
        position = _position(place if wanted is None else wanted, names)
        if position is None:
            raise PredictorFault(
                "predictor_failed",
                f"the model has no {kind} layer {place if wanted is None else wanted!r}",
                hint=f"{kind} layers of the model: {', '.join(names)}",
                layer=place if wanted is None else wanted,
                known=list(names),
            )
        if position in chosen:
            raise PredictorFault(
                "predictor_failed",
                f"{kind} layer {names[position]!r} is asked for twice",
                layer=names[position],
                known=list(names),
            )
        chosen.append(position)
    return chosen or list(range(len(names)))


def _position(wanted: Any, names: Sequence[str]) -> Optional[int]:
    if isinstance(wanted, int):
        return wanted if 0 <= wanted < len(names) else None
    if wanted in names:
        return list(names).index(wanted)
    bare = [_without_port(name) for name in names]
    return bare.index(_without_port(wanted)) if bare.count(_without_port(wanted)) == 1 else None


def _without_port(name: str) -> str:
    return name[:-2] if name.endswith(":0") else name


def check_all_fed(
    names: Sequence[str],
    chosen: Sequence[int],
    hint: str = "list every input of the model, in the order in which the tensors are given",
) -> None:
    """Refuses a choice that leaves an input of the model without a tensor."""
    left = [name for index, name in enumerate(names) if index not in chosen]
    if left:
        raise PredictorFault(
            "predictor_failed",
            f"the model also needs input {', '.join(left)}",
            hint=hint,
            expected=list(names),
            missing=left,
        )


def element_type(name: str) -> str:
    """numpy's name of an element type that a manifest or a framework may call otherwise."""
    return _ELEMENT_TYPES.get(name.lower(), name.lower())


def plain_type(name: str) -> str:
    """The type itself where numpy has it, else one of numpy's that holds all of its numbers."""
    if name.startswith(("bfloat", "float4_", "float6_", "float8_")):
        return "float32"
    return {"int2": "int8", "int4": "int8", "uint2": "uint8", "uint4": "uint8"}.get(name, name)


def check_element_types(asked: Sequence[Dict[str, Any]], inputs: Sequence[Dict[str, Any]]) -> None:
    """Refuses at load what every predict would refuse: an input announced with another type than the model's."""
    for layer, fact in zip(asked, inputs):
        announced = layer.get("element_type")
        if announced is not None and element_type(announced) != fact["element_type"]:
            raise PredictorFault(
                "shape_mismatch",
                f"input {fact['name']!r} takes {fact['element_type']}, but is announced as {announced}",
                hint=f"set the input's element_type to {fact['element_type']}",
                layer=fact["name"],
                expected=fact["element_type"],
                got=announced,
            )


def misfit(inputs: Sequence[Dict[str, Any]], values: Sequence[Any]) -> Optional[PredictorFault]:
    """Why `values` do not fit the input facts, or None when they do. Called only after a refusal: it may be slow."""
    if len(values) != len(inputs):
        return PredictorFault(
            "shape_mismatch",
            f"the model takes {len(inputs)} inputs, {len(values)} were given",
            expected=[fact["name"] for fact in inputs],
            got=len(values),
        )
    for fact, value in zip(inputs, values):
        fault = _misfit_of_one(fact, value)
        if fault is not None:
            return fault
    return None


def _misfit_of_one(fact: Dict[str, Any], value: Any) -> Optional[PredictorFault]:
    name, takes = fact["name"], fact["element_type"]
    if not hasattr(value, "dtype"):
        got = type(value).__name__
        return PredictorFault(
            "shape_mismatch", f"input {name!r} takes an array, not {got}", layer=name, expected=takes, got=got
        )
    if takes != "string" and str(value.dtype) != takes:
        got = str(value.dtype)
        return PredictorFault(
            "shape_mismatch", f"input {name!r} takes {takes}, not {got}", layer=name, expected=takes, got=got
        )
    expected, shape = fact["shape"], list(value.shape)
    if expected is None:
        return None
    fits = [wanted is None or wanted == size for wanted, size in zip(expected, shape)]
    if len(expected) == len(shape) and all(fits):
        return None
    if len(expected) == len(shape) and all(fits[1:]):
        return PredictorFault(
            "batch_unsupported",
            f"the model's batch size is fixed to {expected[0]}, {shape[0]} were given",
            hint=f"use batch size {expected[0]}",
            layer=name,
            expected=expected[0],
            got=shape[0],
        )
    return PredictorFault(
        "shape_mismatch",
        f"input {name!r} takes shape {_format_shape(expected)}, not {_format_shape(shape)}",
        layer=name,
        expected=expected,
        got=shape,
    )


def _format_shape(shape: Sequence[Optional[int]]) -> str:
    return "[{}]".format(", ".join("any" if size is None else str(size) for size in shape))


def thread_ids() -> Optional[Set[str]]:
    """The threads of this process, or None where the system does not tell."""
    try:
        return set(os.listdir("/proc/self/task"))
    except OSError:
        return None


def threads_in_force(asked: int, before: Optional[Set[str]], after: Optional[Set[str]]) -> int:
    """How many threads a pool has that was started between the two looks: the caller's and the new ones.

    Threads that others started meanwhile cannot push the answer above `asked`.
    """
    if before is None or after is None:
        return asked
    return min(asked, 1 + len(after - before))


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Drops the INFO lines that a library writes to the process's own stderr; other lines come out afterwards."""
    try:
        saved = os.dup(2)
    except OSError:  # a daemon may have closed it
        yield
        return
    with tempfile.TemporaryFile() as sink:
        sys.stderr.flush()
        os.dup2(sink.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            sink.seek(0)
            kept = [line for line in sink.read().splitlines(True) if not line.startswith(b"INFO:")]
            if kept:
                os.write(2, b"".join(kept))
