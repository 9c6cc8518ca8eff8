"""Turns the calls of the Open Inference Protocol into those of a gRPC server, and its answers into plain values."""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from mlmodelscope.predictors.kserverest import MODEL_HINT, POLL_SECONDS
from mlmodelscope.predictors.kservewire import datatype_of, decode_outputs, plain_values, raw_bytes
from mlmodelscope.predictors.overgrpc import as_fault, calling
from mlmodelscope.predictors.port import PredictorFault

__all__ = ["GRPC", "GrpcServer"]

GRPC = "grpc://"


class GrpcServer(object):
    """One model of a server at grpc://HOST:PORT, over one channel."""

    def __init__(self, address: str, model: str, version: Optional[str], seconds: float) -> None:
        """ValueError: this is no address."""
        rpc = calling("kserve-v2")
        host = address[len(GRPC) :].rstrip("/")
        # what else could be an address of ours, a path, is none of the protocol's
        if host.startswith("unix:"):
            raise ValueError("a server of the protocol has a host and a port")
        rpc.parse_address(host)
        self.address = address
        self.model = f" {model}" if version is None else f" {model} {version}"
        self._failure = rpc.RpcFault
        self._client = self._told(lambda: rpc.InferenceClient(host, model, version or "", seconds))

    def about(self) -> Dict[str, Any]:
        return self._told(self._client.about)  # type: ignore[no-any-return]

    def wait_until_ready(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._told(self._client.is_ready, MODEL_HINT):
            if time.monotonic() >= deadline:
                raise PredictorFault(
                    "predictor_failed",
                    f"{self.address}{self.model} was not ready within {seconds:g} s",
                    hint=MODEL_HINT,
                    address=self.address,
                )
            time.sleep(POLL_SECONDS)

    def describe(self) -> Dict[str, Any]:
        return self._told(self._client.describe, MODEL_HINT)  # type: ignore[no-any-return]

    def has_binary(self, about: Dict[str, Any]) -> bool:
        """By gRPC every server takes bytes, whatever it says `about` itself."""
        return True

    def infer(
        self, names: Sequence[str], inputs: Sequence[Any], outputs: Sequence[Dict[str, Any]], is_binary: bool
    ) -> List[Any]:
        """Arrays in the order of `outputs`, which are facts. Raises Garbage."""
        # lists of numbers exist for every type but one, and bytes are for all inputs or for none
        is_raw = is_binary or any(datatype_of(array) == "FP16" for array in inputs)
        put = raw_bytes if is_raw else plain_values
        tensors = [(name, datatype_of(array), array.shape, put(array)) for name, array in zip(names, inputs)]
        wanted = [fact["name"] for fact in outputs]
        return decode_outputs(self._told(lambda: self._client.infer(tensors, wanted)), outputs)

    def _told(self, call: Callable[[], Any], hint: Optional[str] = None) -> Any:
        try:
            return call()
        except self._failure as fault:
            made = as_fault(fault)
            made.hint = made.hint or hint
            raise made from fault

    def close(self) -> None:
        self._client.close()
