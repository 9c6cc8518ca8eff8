"""Turns the calls of the Open Inference Protocol into messages to a server, and its answers into plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from mlmodelscope.rpc import inference_pb2 as messages
from mlmodelscope.rpc.channel import open_channel, refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["InferenceClient"]

_SERVICE = "inference.GRPCInferenceService"
_NO_SERVER = "is a server of the Open Inference Protocol (KServe v2, gRPC) behind this address?"
_NOBODY = "start it first, and give the address of its gRPC port"
_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


class InferenceClient:
    """One model of a server at HOST:PORT; a version of "" is the server's choice. Every failure is an RpcFault."""

    def __init__(self, address: str, model: str, version: str, seconds: float) -> None:
        self._address, self._model, self._version, self._seconds = address, model, version, seconds
        self._channel = open_channel(address, who="inference server", hint=_NOBODY)
        self._calls = {
            name: self._channel.unary_unary(
                f"/{_SERVICE}/{name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=getattr(messages, f"{name}Response").FromString,
            )
            for name in ("ServerMetadata", "ModelReady", "ModelMetadata", "ModelInfer")
        }

    def about(self) -> dict[str, Any]:
        told = self._ask("ServerMetadata", messages.ServerMetadataRequest())
        return {"name": told.name, "version": told.version, "extensions": list(told.extensions)}

    def is_ready(self) -> bool:
        return bool(self._ask("ModelReady", messages.ModelReadyRequest(name=self._model, version=self._version)).ready)

    def describe(self) -> dict[str, Any]:
        """As a REST server would: `platform`, and name, datatype and shape of every one of `inputs` and `outputs`."""
        told = self._ask("ModelMetadata", messages.ModelMetadataRequest(name=self._model, version=self._version))
        sides = {"inputs": told.inputs, "outputs": told.outputs}
        return {"platform": told.platform, **{side: [_plain(layer) for layer in sides[side]] for side in sides}}

    def infer(
        self, tensors: Iterable[tuple[str, str, Sequence[int], Any]], outputs: Iterable[str]
    ) -> list[tuple[dict[str, Any], bytes | None]]:
        """What is told of each output, and its bytes; without bytes, its elements are `data`.

        `tensors` are name, datatype, shape, and the bytes of every one or the elements of every one.
        """
        # the id is optional, but some servers fail without one
        request = messages.ModelInferRequest(model_name=self._model, model_version=self._version, id="1")
        for name, datatype, shape, content in tensors:
            tensor = request.inputs.add(name=name, datatype=datatype, shape=shape)
            if isinstance(content, bytes):
                request.raw_input_contents.append(content)
            else:
                elements = getattr(tensor.contents, _CONTENTS[datatype])
                elements.extend(value.encode() if isinstance(value, str) else value for value in content)
        for name in outputs:
            request.outputs.add(name=name)
        return list(_outputs(self._ask("ModelInfer", request)))

    def _ask(self, call: str, request: Any) -> Any:
        try:
            return self._calls[call](request, timeout=self._seconds)
        except grpc.RpcError as error:
            raise refusal(
                error, self._address, call, self._seconds, who="inference server", unimplemented=_NO_SERVER
            ) from error

    def close(self) -> None:
        self._channel.close()


def _plain(tensor: Any) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}


def _outputs(answer: messages.ModelInferResponse) -> Iterator[tuple[dict[str, Any], bytes | None]]:
    raw = answer.raw_output_contents
    for place, tensor in enumerate(answer.outputs):
        told = _plain(tensor)
        if raw:
            # fewer than outputs: the missing ones are empty, which fits nothing that has elements
            yield told, raw[place] if place < len(raw) else b""
            continue
        told["data"] = list(getattr(tensor.contents, _CONTENTS.get(tensor.datatype, "bytes_contents")))
        yield told, None
