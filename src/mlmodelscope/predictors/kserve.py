"""Turns tensors into tensors with any server of the Open Inference Protocol (KServe v2, REST).

Options: `address` (http://HOST:PORT; `--framework kserve-v2@ADDRESS` gives it), `model` (the model's name on the
server, by default the manifest's), `model_version`, `binary` (whether tensors travel as bytes; by default where the
server says that it can), `load_seconds` and `predict_seconds` (how long to wait). The model and its files are the
server's: nothing is sent but tensors. The server decides on threads, and does not tell: that fact is 0. Latencies are
those of a client.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import http.client
import json
import time
from typing import Any, ClassVar, Dict, List, Optional, Tuple
from urllib.parse import quote, urlsplit

from mlmodelscope.predictors.kservewire import (
    DATATYPES,
    Garbage,
    datatype_of,
    decode_answer,
    element_type_of,
    encode_request,
    whole_numbers,
)
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
_HEADER = "Inference-Header-Content-Length"
_POLL_SECONDS = 0.25


class Predictor(object):
    name: ClassVar[str] = "kserve-v2"
    packages: ClassVar[Tuple[str, ...]] = ()
    environment: ClassVar[Dict[str, str]] = {}
    formats: ClassVar[Tuple[str, ...]] = ()
    takes_address: ClassVar[bool] = True

    def __init__(self) -> None:
        self._server: Optional[_Server] = None

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        options = model.get("options") or {}
        check_options(self.name, options, _CHOICES)
        check_threads(self.name, model.get("threads", 1))
        path = _model_path(options.get("model") or model.get("name"), options.get("model_version"))
        load_seconds = _seconds(options, "load_seconds", 600.0)
        server = _Server(options.get("address"), _seconds(options, "predict_seconds", 50.0))
        try:
            about = server.get("/v2")
            server.wait_until_ready(path, load_seconds)
            described = server.get(path)
            inputs, outputs = (_layers(server.address + path, described, side) for side in ("inputs", "outputs"))
            self._inputs = _chosen("input", model.get("inputs") or [], inputs)
            self._outputs = _chosen("output", model.get("outputs") or [], outputs)
            check_element_types(model.get("inputs") or [], self._inputs)
            _check_all_fed(self._inputs, inputs)
            self._is_binary = _is_binary(options, about)
        except BaseException:
            server.close()
            raise
        self._names = [fact["name"] for fact in self._inputs]
        self._output_names = [fact["name"] for fact in self._outputs]
        self._path = path + "/infer"
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
        parts, json_size = encode_request(self._names, inputs, self._output_names, self._is_binary)
        answer, body = server.post(self._path, parts, json_size)
        header = answer.getheader(_HEADER)
        try:
            return decode_answer(body, int(header) if header else None, self._outputs)
        except (Garbage, ValueError) as error:
            raise PredictorFault(
                "predictor_failed", f"{server.address} answered with garbage: {error}", address=server.address
            ) from error

    def unload(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()


class _Server(object):
    """One connection, kept open: a new one for every query would be measured too."""

    def __init__(self, address: Any, seconds: float) -> None:
        parts = urlsplit(address) if isinstance(address, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise PredictorFault(
                "environment_missing",
                f"kserve-v2: {address!r} is no address of a server",
                hint="write kserve-v2@http://HOST:PORT",
                got=address,
            )
        self.address = str(address)
        self._prefix = parts.path.rstrip("/")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        try:
            self._connection = kind(parts.hostname, parts.port, timeout=seconds)
        except ValueError as error:
            raise PredictorFault("environment_missing", f"kserve-v2: {address}: {error}", got=address) from error
        self._seconds = seconds
        self._is_fresh = True

    def get(self, path: str) -> Dict[str, Any]:
        _, body = self._exchange("GET", path, [], {})
        try:
            found = json.loads(body.decode())
            if isinstance(found, dict):
                return found
        except (RecursionError, ValueError):
            pass
        raise PredictorFault(
            "predictor_failed",
            f"{self.address}{path} does not answer with a JSON object",
            hint="is a server of the Open Inference Protocol (KServe v2, REST) behind this address?",
            address=self.address,
        )

    def wait_until_ready(self, path: str, seconds: float) -> None:
        """A server may answer long before it has loaded its models."""
        deadline = time.monotonic() + seconds
        while True:
            status, body = self._send("GET", path + "/ready", [], {})
            if status.status == 200:
                return
            # "no such model" is said by some servers with 404, and by others with 400 and a sentence
            if status.status in (400, 404) or time.monotonic() >= deadline:
                raise self._refused(path, status.status, body)
            time.sleep(_POLL_SECONDS)

    def post(self, path: str, parts: List[bytes], json_size: Optional[int]) -> Tuple[Any, bytes]:
        headers = {"Content-Type": "application/json"}
        if json_size is not None:
            headers = {"Content-Type": "application/octet-stream", _HEADER: str(json_size)}
        return self._exchange("POST", path, parts, headers)

    def _exchange(self, method: str, path: str, parts: List[bytes], headers: Dict[str, str]) -> Tuple[Any, bytes]:
        answer, body = self._send(method, path, parts, headers)
        if answer.status != 200:
            raise self._refused(path, answer.status, body)
        return answer, body

    def _send(self, method: str, path: str, parts: List[bytes], headers: Dict[str, str]) -> Tuple[Any, bytes]:
        try:
            answer, body = self._once(method, path, parts, headers)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
            self._connection.close()
            if self._is_fresh:
                raise self._broken(error) from error
            # a server may close a connection that was idle; one that died is met again when connecting
            try:
                answer, body = self._once(method, path, parts, headers)
            except (OSError, http.client.HTTPException) as again:
                raise self._broken(again) from again
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise self._broken(error) from error
        self._is_fresh = False
        return answer, body

    def _once(self, method: str, path: str, parts: List[bytes], headers: Dict[str, str]) -> Tuple[Any, bytes]:
        self._connection.request(method, self._prefix + path, b"".join(parts) or None, headers)
        answer = self._connection.getresponse()
        return answer, answer.read()

    def _broken(self, error: Exception) -> PredictorFault:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        is_slow = isinstance(error, OSError) and "timed out" in str(error)
        if is_slow:
            return PredictorFault(
                "predictor_failed",
                f"{self.address} did not answer within {self._seconds:g} s",
                hint="option predict_seconds allows more",
                address=self.address,
            )
        if self._is_fresh:
            return PredictorFault(
                "environment_missing",
                f"no server answers at {self.address}: {reason.lower()}",
                hint="start it first, and give the address of its REST port",
                address=self.address,
            )
        return PredictorFault(
            "predictor_failed",
            f"the server at {self.address} ended or broke off: {reason.lower()}",
            hint="its own log may say why",
            address=self.address,
        )

    def _refused(self, path: str, status: int, body: bytes) -> PredictorFault:
        try:
            said = json.loads(body.decode()).get("error")
        except (AttributeError, RecursionError, ValueError):
            said = None
        if not isinstance(said, str):
            said = body[:200].decode(errors="replace")
        return PredictorFault(
            "predictor_failed",
            f"{self.address}{path} refuses with status {status}: {_first_line(said)}",
            hint="option model is the model's name on the server" if not path.endswith("/infer") else None,
            address=self.address,
            status=status,
            said=said,
        )

    def close(self) -> None:
        self._connection.close()


def _first_line(said: str) -> str:
    return next(iter(said.strip().splitlines()), "") or "no reason given"


def _text(told: Any) -> str:
    return str(told) if isinstance(told, (str, int, float)) and str(told) else "unknown"


def _model_path(name: Any, version: Any) -> str:
    if not isinstance(name, str) or not name:
        raise PredictorFault(
            "predictor_failed",
            "kserve-v2: which model of the server is meant?",
            hint="give the option model, its name on the server",
            option="model",
        )
    path = f"/v2/models/{quote(name, safe='')}"
    return path if version is None else f"{path}/versions/{quote(str(version), safe='')}"


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


def _is_binary(options: Dict[str, Any], about: Dict[str, Any]) -> bool:
    if "binary" not in options:
        return _has_binary(about)
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


def _has_binary(about: Dict[str, Any]) -> bool:
    # a server that says something else there has at any rate not said that it can
    named = about.get("extensions")
    return isinstance(named, list) and any("binary_tensor_data" in str(name) for name in named)


def _layers(origin: str, described: Dict[str, Any], side: str) -> List[Dict[str, Any]]:
    """The layers as the server tells them; it need not, but what it tells must be what the protocol says."""
    told = described.get(side)
    try:
        return [_layer(layer) for layer in ([] if told is None else told)]
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise PredictorFault(
            "predictor_failed",
            f"{origin} describes the model's {side} with garbage: {type(error).__name__}: {error}",
            hint="is a server of the Open Inference Protocol (KServe v2, REST) behind this address?",
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
