"""Turns the calls of the Open Inference Protocol into requests to a REST server, and its answers into plain values."""

import http.client
import json
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple
from urllib.parse import quote, urlsplit

from mlmodelscope.predictors.kservewire import Garbage, decode_answer, encode_request
from mlmodelscope.predictors.port import PredictorFault

__all__ = ["MODEL_HINT", "POLL_SECONDS", "RestServer"]

MODEL_HINT = "option model is the model's name on the server"
POLL_SECONDS = 0.25
# not yet: the server or a gateway before it says that it may be another answer later
_NOT_YET = (425, 429, 502, 503, 504)
_HEADER = "Inference-Header-Content-Length"


class RestServer(object):
    """One connection, kept open: a new one for every query would be measured too."""

    def __init__(self, address: str, model: str, version: Optional[str], seconds: float) -> None:
        """ValueError: this is no address."""
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the address of a REST server is http://HOST:PORT")
        parts.hostname.encode("idna")
        if not all(" " < letter <= "~" for letter in parts.path):
            raise ValueError("a path has letters of ASCII only, others as %XX")
        self.address = address
        self.model = _model_path(model, version)
        self._prefix = parts.path.rstrip("/")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=seconds)
        self._seconds = seconds
        self._is_fresh = True

    def about(self) -> Dict[str, Any]:
        return self._get("/v2")

    def describe(self) -> Dict[str, Any]:
        return self._get(self.model)

    def has_binary(self, about: Dict[str, Any]) -> bool:
        # a server that says something else there has at any rate not said that it can
        named = about.get("extensions")
        return isinstance(named, list) and any("binary_tensor_data" in str(name) for name in named)

    def infer(
        self, names: Sequence[str], inputs: Sequence[Any], outputs: Sequence[Dict[str, Any]], is_binary: bool
    ) -> List[Any]:
        """Arrays in the order of `outputs`, which are facts. Raises Garbage."""
        parts, json_size = encode_request(names, inputs, [fact["name"] for fact in outputs], is_binary)
        headers = {"Content-Type": "application/json"}
        if json_size is not None:
            headers = {"Content-Type": "application/octet-stream", _HEADER: str(json_size)}
        answer, body = self._exchange("POST", self.model + "/infer", parts, headers)
        said = answer.getheader(_HEADER)
        try:
            size = int(said) if said else None
        except ValueError as error:
            raise Garbage(f"the header {_HEADER} says {said!r}") from error
        return decode_answer(body, size, outputs)

    def _get(self, path: str) -> Dict[str, Any]:
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

    def wait_until_ready(self, seconds: float) -> None:
        """A server may answer long before it has loaded its models."""
        deadline = time.monotonic() + seconds
        while True:
            status, body = self._send("GET", self.model + "/ready", [], {})
            if status.status == 200:
                return
            if status.status not in _NOT_YET or time.monotonic() >= deadline:
                raise self._refused(self.model, status.status, body)
            time.sleep(POLL_SECONDS)

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
        if isinstance(error, http.client.BadStatusLine) and not isinstance(error, OSError):
            host = urlsplit(self.address).netloc
            return PredictorFault(
                "environment_missing",
                f"what answers at {self.address} does not speak HTTP/1",
                hint=f"if this is the server's gRPC port: kserve-v2@grpc://{host}",
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
            hint=MODEL_HINT if not path.endswith("/infer") else None,
            address=self.address,
            status=status,
            said=said,
        )

    def close(self) -> None:
        self._connection.close()


def _first_line(said: str) -> str:
    return next(iter(said.strip().splitlines()), "") or "no reason given"


def _model_path(name: str, version: Optional[str]) -> str:
    path = f"/v2/models/{quote(name, safe='')}"
    return path if version is None else f"{path}/versions/{quote(version, safe='')}"
