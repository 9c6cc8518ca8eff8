"""Turns tensors into tensors with JAX: a function exported as StableHLO, or a Python function with its weights.

The graph is a file written from `jax.export.export(...).serialize()`; its sizes may be symbolic. Its inputs and outputs
go by the keys of the dicts that the function takes and returns, else by `input0`, `output0` and so on. With weights (an
.npz) the function's first argument is the dict of them.

Options: `callable` ("package.module:function" of weights and inputs, in place of an exported file; the weights are the
.npz of the manifest), with it `inputs` ([{"name", "shape", "element_type"}], null for any size), and `x64` (on, off:
whether 64-bit types exist; on where an input, output or weight has one). Each shape is compiled when it first comes.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import ctypes
import importlib
import os
import re
from typing import Any, ClassVar, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.jaxmodel import allow_x64, first_line, needs_x64, open_callable, open_exported
from mlmodelscope.predictors.jaxprofile import Profile
from mlmodelscope.predictors.port import (
    PredictorFault,
    check_all_fed,
    check_element_types,
    check_options,
    check_threads,
    import_framework,
    misfit,
    plain_type,
    select_layers,
    thread_ids,
    unloaded,
)

__all__ = ["Predictor"]

_POOL = "tf_XLAEigen"
_FLOATS = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "s8": "int8", "u8": "int8"}
_PRODUCT = re.compile(r"= \(?(\w+)\[[^\]]*\][^=]*? (?:dot|convolution)\(")
_RESULT = re.compile(r"= (bf16|f16|f32|f64|s8|u8)\[")


class Predictor(object):
    name: ClassVar[str] = "jax"
    packages: ClassVar[Tuple[str, ...]] = ("jax",)
    # an accelerator's plug-in must not be chosen unasked
    environment: ClassVar[Dict[str, str]] = {"JAX_PLATFORMS": "cpu"}
    formats: ClassVar[Tuple[str, ...]] = (".jax", ".stablehlo", ".npz")

    def __init__(self) -> None:
        self._function: Any = None
        self._programs: Dict[Any, Any] = {}
        # the same, or what measures them while they are profiled
        self._compiled: Dict[Any, Any] = {}
        self._weights: Tuple[Any, ...] = ()
        self._dtypes: List[Any] = []
        self._widths: List[str] = []
        self._is_plain = True
        # what the last call brought, and what ran it
        self._fitting: Optional[List[Any]] = None
        self._running: Any = None
        self._profile: Optional[Profile] = None

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        options = model.get("options") or {}
        check_options(self.name, options, {"callable": None, "inputs": None, "x64": ("on", "off")})
        threads = check_threads(self.name, model.get("threads", 1))
        os.environ["JAX_PLATFORMS"] = "cpu"
        jax = import_framework(self.name, ["jax"])
        opened = open_callable(jax, model, options) if "callable" in options else open_exported(jax, model)
        inputs, outputs = opened["inputs"], opened["outputs"]
        chosen = select_layers("input", model.get("inputs") or [], [fact["name"] for fact in inputs])
        check_all_fed([fact["name"] for fact in inputs], chosen)
        self._inputs = [_plain(inputs[index]) for index in chosen]
        check_element_types(model.get("inputs") or [], self._inputs)
        picked = select_layers("output", model.get("outputs") or [], [fact["name"] for fact in outputs])
        self._x64 = needs_x64(options, inputs + outputs, opened["weights"])
        if self._x64:
            jax.config.update("jax_enable_x64", True)
        client, in_force = _make_client(threads)
        self._bind(jax, client, opened, chosen, picked)
        self._bind_types(jax, [inputs[index] for index in chosen], [outputs[index] for index in picked])
        text = self._first_compilation(model)
        return {
            "framework": self.name,
            "version": jax.__version__,
            "threads": in_force,
            "provider": "XLA CPU",
            "device": "cpu",
            "library": _library(text),
            "optimization": os.environ.get("XLA_FLAGS") or "default",
            "precision": _precision(text, self._inputs),
            "inputs": self._inputs,
            "outputs": [_plain(outputs[index]) for index in picked],
        }

    def _bind(self, jax: Any, client: Any, opened: Dict[str, Any], chosen: List[int], picked: List[int]) -> None:
        import numpy as np

        # a client of our own has its own threads: two models in one process may differ in their number
        placed = jax.sharding.SingleDeviceSharding(client.devices()[0])
        weights, call, places = opened["weights"], opened["call"], [chosen.index(i) for i in range(len(chosen))]

        def function(*values: Any) -> List[Any]:
            held, given = values[: len(values) - len(places)], values[len(values) - len(places) :]
            results = call(*held, *(given[place] for place in places))
            return [results[index] for index in picked]

        self._jax, self._client = jax, client
        self._function = jax.jit(function, in_shardings=placed, out_shardings=placed)
        self._weights = () if weights is None else (jax.device_put(weights, placed),)
        self._array = np.array

    def _bind_types(self, jax: Any, inputs: Sequence[Dict[str, Any]], outputs: Sequence[Dict[str, Any]]) -> None:
        """The types that are compiled for; those that numpy does not have come and go as wider ones.

        The change is made outside of the program: inside, XLA leaves out roundings that lie between two of its own.
        """
        self._dtypes = [jax.numpy.dtype(fact["element_type"]) for fact in inputs]
        self._widths = [plain_type(fact["element_type"]) for fact in outputs]
        self._is_plain = not any(_plain(fact) != fact for fact in list(inputs) + list(outputs))

    def _first_compilation(self, model: Dict[str, Any]) -> str:
        """What the compiler made of it for sizes of 1; refusals of the file come out here, not in the first call."""
        shapes = [[1 if size is None else size for size in fact["shape"]] for fact in self._inputs]
        try:
            return str(self._compile(shapes).as_text())
        except Exception as error:
            if any(size is None for fact in self._inputs for size in fact["shape"][1:]):
                return ""  # other open sizes may have conditions that 1 does not meet
            self.unload()
            raise PredictorFault(
                "predictor_failed" if (model.get("options") or {}).get("callable") else "model_format",
                f"jax cannot compile {model['graph_path']}: {first_line(error)}",
                path=model["graph_path"],
                error=str(error),
            ) from error

    def _compile(self, shapes: Sequence[Sequence[int]]) -> Any:
        specified = [self._jax.ShapeDtypeStruct(tuple(shape), kind) for shape, kind in zip(shapes, self._dtypes)]
        with allow_x64(self._jax, self._x64), self._jax.default_matmul_precision("highest"):
            compiled = self._function.lower(*self._weights, *specified).compile()
        key = tuple((tuple(shape), kind) for shape, kind in zip(shapes, self._dtypes))
        self._programs[key] = compiled
        self._compiled[key] = compiled if self._profile is None else self._profile.around(compiled)
        return compiled

    def predict(self, inputs: List[Any]) -> List[Any]:
        if self._is_plain:
            return self._predict(inputs)
        fault = unloaded(self.name) if self._function is None else misfit(self._inputs, inputs)
        if fault is not None:
            raise fault
        narrow = [value.astype(kind) for value, kind in zip(inputs, self._dtypes)]
        return [result.astype(kind) for result, kind in zip(self._predict(narrow), self._widths)]

    def _predict(self, inputs: List[Any]) -> List[Any]:
        # Medians of one call of two products, interleaved, jaxlib 0.10.2: compiled ahead 27 us on a client that runs
        # the call at once, jit there 31, compiled ahead on a client with a queue 45.
        try:
            described = [(value.shape, value.dtype) for value in inputs]
            # as a key of a dict it would be hashed in every call, which takes longer than the comparison
            run = self._running if described == self._fitting else self._switch(tuple(described))
        except (AttributeError, KeyError, TypeError) as error:
            run = self._refit(inputs, error)
        try:
            results = run(*self._weights, *inputs)
            # a view of JAX's memory could not be written to, and may be the input itself
            return [self._array(result) for result in results]
        except Exception as error:  # the runtime's errors share no class
            raise self._fault(inputs, error) from error

    def _switch(self, described: Any) -> Any:
        run = self._compiled[described]
        # its first call makes this: what the call comes down to, without the Python round it
        inner = getattr(run, "_call", None)
        if inner is not None:
            self._running, self._fitting = inner, list(described)
        return run

    def _refit(self, inputs: Sequence[Any], error: Exception) -> Any:
        if self._function is None:
            raise unloaded(self.name) from error
        fault = misfit(self._inputs, inputs) if self._is_plain else None
        if fault is not None:
            raise fault from error
        try:
            self._compile([value.shape for value in inputs])
            return self._switch(tuple([(value.shape, value.dtype) for value in inputs]))
        except Exception as refusal:
            got = [list(value.shape) for value in inputs]
            raise PredictorFault(
                "shape_mismatch",
                f"jax cannot compile the model for {got}: {first_line(refusal)}",
                expected=[fact["shape"] for fact in self._inputs],
                got=got,
            ) from refusal

    def _fault(self, inputs: Sequence[Any], error: Exception) -> PredictorFault:
        fault = misfit(self._inputs, inputs) if self._is_plain else None
        return fault or PredictorFault(
            "predictor_failed", f"jax: {first_line(error)}", framework=self.name, error=str(error)
        )

    def start_profile(self, folder: str) -> None:
        if self._function is None:
            raise unloaded(self.name)
        self.stop_profile()
        profile = Profile(self._jax, folder)
        profile.start()
        self._profile = profile
        self._compiled = {key: profile.around(compiled) for key, compiled in self._programs.items()}
        self._fitting = None

    def stop_profile(self) -> List[Optional[List[Dict[str, Any]]]]:
        profile, self._profile = self._profile, None
        if profile is None:
            return []
        self._compiled, self._fitting = dict(self._programs), None
        return profile.finish([str(compiled.as_text()) for compiled in self._programs.values()])

    def unload(self) -> None:
        self.stop_profile()
        had_model = self._function is not None
        self._function = self._client = self._fitting = self._running = None
        self._compiled, self._programs, self._weights = {}, {}, ()
        if had_model:
            # what was traced holds the weights that are constants of it
            self._jax.clear_caches()
            _return_memory()


def _plain(fact: Dict[str, Any]) -> Dict[str, Any]:
    return dict(fact, element_type=plain_type(fact["element_type"]))


def _return_memory() -> None:
    """Gives back what the compiler freed: with a model of 28 MB the C library would keep 150 MB for later."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # another C library
        pass


def _make_client(threads: int) -> Tuple[Any, int]:
    """A CPU client with so many threads, and how many its pool really has.

    XLA's own flag for threads is gone; the pool reads NPROC when the client is made. A pool of one thread leaves all
    work to the caller. With n threads n are busy at a time (seen: 1, 2, 3 and 4 runnable on two processors).
    """
    xla_client = importlib.import_module("jaxlib.xla_client")
    before = thread_ids()
    held = os.environ.get("NPROC")
    os.environ["NPROC"] = str(threads)
    try:
        client = xla_client.make_cpu_client(asynchronous=False)
    finally:
        if held is None:
            del os.environ["NPROC"]
        else:
            os.environ["NPROC"] = held
    after = thread_ids()
    if before is None or after is None:
        return client, threads
    return client, sum(_thread_name(thread) == _POOL for thread in after - before) or threads


def _thread_name(thread: str) -> str:
    try:
        with open(f"/proc/self/task/{thread}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def _precision(text: str, inputs: Sequence[Dict[str, Any]]) -> str:
    """The element type of the compiled products; without any, of whatever is computed most."""
    found: List[str] = _PRODUCT.findall(text) or _RESULT.findall(text)
    if not found:
        return str(inputs[0]["element_type"]) if inputs else "unknown"
    commonest = max(sorted(set(found)), key=found.count)
    return _FLOATS.get(commonest, commonest)


def _library(text: str) -> str:
    """Whose kernels the compiled program calls beside code of XLA's own making; Eigen is XLA's default for products."""
    named = (("onednn", "oneDNN"), ("ynn_fusion", "YNNPACK"), (" dot(", "Eigen"), (" convolution(", "Eigen"))
    return "+".join(["XLA"] + sorted({library for sign, library in named if sign in text.lower()}))
