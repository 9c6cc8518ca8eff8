"""Turns tensors into tensors with any server of the Open Inference Protocol (KServe v2), by REST or gRPC.

Options: `address` (http://HOST:PORT or grpc://HOST:PORT; `--framework kserve-v2@ADDRESS` gives it), `model` (the
model's name on the server, by default the manifest's), `model_version`, `binary` (whether tensors travel as bytes; by
default where the server says that it can, and always by gRPC), `load_seconds` and `predict_seconds` (how long to wait).
The model and its files are the server's: nothing is sent but tensors. The server decides on threads, and does not tell:
that fact is 0. Latencies are those of a client.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

from typing import Any, ClassVar, Dict, List, Optional, Tuple

from mlmodelscope.predictors.kservegrpc import GRPC, GrpcServer
from mlmodelscope.predictors.kserverest import RestServer
from mlmodelscope.predictors.kservewire import DATATYPES, Garbage, datatype_of, element_type_of, whole_numbers
from mlmodelscope.predictors.port import (
    PredictorFault,
    check_element_types,
    check_options,
    check_threads,
    misfit,
    parse_flag,
    parse_seconds,
    select_layers,
    unloaded,
)

__all__ = ["Predictor"]

_CHOICES: Dict[str, Any] = dict.fromkeys(
    ("address", "model", "model_version", "binary", "load_seconds", "predict_seconds")
)


class Predictor(object):
    name: ClassVar[str] = "kserve-v2"
    packages: ClassVar[Tuple[str, ...]] = ()
    environment: ClassVar[Dict[str, str]] = {"GRPC_VERBOSITY": "NONE"}
    formats: ClassVar[Tuple[str, ...]] = ()
    takes_address: ClassVar[bool] = True

    def __init__(self) -> None:
        self._server: Any = None

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        options = model.get("options") or {}
        check_options(self.name, options, _CHOICES)
        check_threads(self.name, model.get("threads", 1))
        name, version = _model_name(options.get("model") or model.get("name")), options.get("model_version")
        load_seconds, predict_seconds = (
            _seconds(options, "load_seconds", 600.0),
            _seconds(options, "predict_seconds", 50.0),
        )
        is_binary = _is_binary(options)
        version = None if version is None else str(version)
        server = _opened(options.get("address"), name, version, predict_seconds)
        try:
            about = server.about()
            server.wait_until_ready(load_seconds)
            described = server.describe()
            origin = server.address + server.model
            inputs, outputs = (_layers(origin, described, side) for side in ("inputs", "outputs"))
            self._inputs = _chosen("input", model.get("inputs") or [], inputs)
            self._outputs = _chosen("output", model.get("outputs") or [], outputs)
            check_element_types(model.get("inputs") or [], self._inputs)
            _check_all_fed(self._inputs, inputs)
            self._is_binary = server.has_binary(about) if is_binary is None else is_binary
        except BaseException:
            server.close()
            raise
        self._names = [fact["name"] for fact in self._inputs]
        self._server = server
        engine = _text(about.get("name"))
        return {
            "framework": self.name,
            "engine": engine,
            "version": _text(about.get("version")),
            "threads": 0,
            "provider": f"{engine}: {_text(described.get('platform'))}",
            "device": "unknown",
            "library": "unknown",
            "optimization": "unknown",
            "precision": "unknown",
            "inputs": self._inputs,
            "outputs": self._outputs,
        }

    def predict(self, inputs: List[Any]) -> List[Any]:
        server = self._server
        if server is None:
            raise unloaded(self.name)
        # a server may convert or broadcast what does not fit, and answer as if nothing had happened
        fault = misfit(self._inputs, inputs) or _unsendable(self._names, inputs)
        if fault is not None:
            raise fault
        try:
            return server.infer(self._names, inputs, self._outputs, self._is_binary)  # type: ignore[no-any-return]
        except UnicodeError as error:
            raise PredictorFault(
                "shape_mismatch", f"a text cannot be sent: {error}", expected="UTF-8", got=str(error)
            ) from error
        except Garbage as error:
            raise PredictorFault(
                "predictor_failed", f"{server.address} answered with garbage: {error}", address=server.address
            ) from error

    def unload(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()


def _opened(address: Any, model: str, version: Optional[str], seconds: float) -> Any:
    """The server's side of the protocol, by the address."""
    try:
        if isinstance(address, str) and address.startswith(GRPC):
            return GrpcServer(address, model, version, seconds)
        return RestServer(str(address), model, version, seconds)
    except ValueError as error:
        raise PredictorFault(
            "environment_missing",
            f"kserve-v2: {address!r} is no address of a server",
            hint="write kserve-v2@http://HOST:PORT, or kserve-v2@grpc://HOST:PORT",
            got=address,
            reason=str(error),
        ) from error


def _text(told: Any) -> str:
    return str(told) if isinstance(told, (str, int, float)) and str(told) else "unknown"


def _model_name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise PredictorFault(
            "predictor_failed",
            "kserve-v2: which model of the server is meant?",
            hint="give the option model, its name on the server",
            option="model",
        )
    return name


def _seconds(options: Dict[str, Any], name: str, default: float) -> float:
    value = parse_seconds(options.get(name, default))
    if value is None:
        raise PredictorFault(
            "predictor_failed",
            f"kserve-v2: option {name} must be a number of seconds, not {options[name]!r}",
            option=name,
            expected="seconds",
            got=options[name],
        )
    return value


def _is_binary(options: Dict[str, Any]) -> Optional[bool]:
    """None: as the server likes it."""
    if "binary" not in options:
        return None
    value = parse_flag(options["binary"])
    if value is None:
        raise PredictorFault(
            "predictor_failed",
            f"kserve-v2: option binary must be true or false, not {options['binary']!r}",
            option="binary",
            expected="true or false",
            got=options["binary"],
        )
    return value


def _layers(origin: str, described: Dict[str, Any], side: str) -> List[Dict[str, Any]]:
    """The layers as the server tells them; it need not, but what it tells must be what the protocol says."""
    told = described.get(side)
    try:
        return [_layer(layer) for layer in ([] if told is None else told)]
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise PredictorFault(
            "predictor_failed",
            f"{origin} describes the model's {side} with garbage: {type(error).__name__}: {error}",
            hint="is a server of the Open Inference Protocol (KServe v2) behind this address?",
            address=origin,
            layers=side,
        ) from error


def _layer(told: Dict[str, Any]) -> Dict[str, Any]:
    name, shape = told["name"], told.get("shape")
    if not isinstance(name, str):
        raise TypeError(f"the name of a layer is a text, not {type(name).__name__}")
    sizes = [None if size < 0 else size for size in whole_numbers([] if shape is None else shape)]
    return {"name": name, "shape": sizes or None, "element_type": element_type_of(told.get("datatype"))}


def _chosen(kind: str, asked: List[Dict[str, Any]], layers: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The layers asked for; where the server keeps its own to itself, those that the manifest names."""
    if not layers and asked and all(isinstance(layer.get("layer_name"), str) for layer in asked):
        return [
            {"name": layer["layer_name"], "shape": None, "element_type": layer.get("element_type") or "unknown"}
            for layer in asked
        ]
    if not layers:
        raise PredictorFault(
            "predictor_failed",
            f"the server does not tell the model's {kind}s",
            hint=f"name every {kind} in the manifest: layer_name and element_type",
        )
    return [layers[position] for position in select_layers(kind, asked, [layer["name"] for layer in layers])]


def _check_all_fed(chosen: List[Dict[str, Any]], layers: List[Dict[str, Any]]) -> None:
    names = [fact["name"] for fact in chosen]
    left = [layer["name"] for layer in layers if layer["name"] not in names]
    if left:
        raise PredictorFault(
            "predictor_failed",
            f"the model also needs input {', '.join(left)}",
            hint="list every input of the model, in the order in which the tensors are given",
            missing=left,
        )


def _unsendable(names: List[str], inputs: List[Any]) -> Optional[PredictorFault]:
    for name, array in zip(names, inputs):
        if datatype_of(array) is None:
            return PredictorFault(
                "shape_mismatch",
                f"input {name!r}: the protocol has no word for {array.dtype}",
                hint="it knows: " + ", ".join(sorted(DATATYPES)),
                layer=name,
                expected=sorted(DATATYPES),
                got=str(array.dtype),
            )
    return None
