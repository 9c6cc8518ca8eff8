"""Turns the three calls of a predictor into messages to a program elsewhere, and its answers into facts and arrays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np

from mlmodelscope.rpc import predictor_pb2 as messages
from mlmodelscope.rpc.channel import MESSAGE_BYTES, open_channel, refusal
from mlmodelscope.rpc.faults import RpcFault, from_message
from mlmodelscope.rpc.shared import ALIGNMENT, FOLDER, OfferedFile
from mlmodelscope.rpc.tensors import GarbledTensor, element_type, read_array, write_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SERVICE", "Client"]

SERVICE = "mlmodelscope.predictor.v1.Predictor"
# below this a copy into the message costs less than the region's description
_LEAST_SHARED = 4096
_CLOSE_SECONDS = 30.0


class Client:
    """One model of a program at an address. One thread calls it: `load` once, `predict`, `close` any number of times.

    Every failure is an RpcFault. `is_simulated` after `load`: the program has a clock of its own, and `simulated_ns` is
    what it has counted so far.
    """

    def __init__(
        self, address: str, *, load_seconds: float, predict_seconds: float, folder: str | None = FOLDER
    ) -> None:
        self._address = address
        self._load_seconds, self._predict_seconds = load_seconds, predict_seconds
        self._channel = open_channel(address)
        self._load = self._call("ModelLoad", messages.ModelHandle)
        self._unload = self._call("ModelUnload", messages.CloseResponse)
        self._predict = self._call("Predict", messages.PredictionResponse)
        self._id: str | None = None
        self._types: list[str] = []
        self._shared = OfferedFile.make(folder) if folder else None
        self.is_simulated = False
        self.simulated_ns = 0

    def _call(self, name: str, answer: Any) -> Any:
        return self._channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )

    def load(self, model: dict[str, Any], options: dict[str, Any], *, uploads: bool) -> dict[str, Any]:
        """The facts in force, as predictors tell them."""
        request = _open_request(model, options, uploads=uploads)
        if self._shared is not None:
            request.shared.CopyFrom(self._shared.described())
        try:
            handle = self._answer(self._load, request, "ModelLoad", self._load_seconds)
        finally:
            if self._shared is not None:
                self._shared.forget_name()
        if not handle.has_mapped and self._shared is not None:
            self._shared.close()
            self._shared = None
        self._id, self.is_simulated = handle.id, handle.is_simulated
        facts = _facts(handle.facts, self._address)
        self._types = [fact["element_type"] for fact in facts["outputs"]]
        return facts

    @property
    def shares_memory(self) -> bool:
        return self._shared is not None

    def predict(self, inputs: Sequence[Any]) -> list[Any]:
        """GarbledTensor where an input is none that can be sent."""
        request = messages.PredictRequest(id=self._id or "")
        offset = ALIGNMENT
        for array in inputs:
            offset = self._add(request, array, offset)
        if self._shared is not None:
            request.answer.CopyFrom(self._shared.answer)
        try:
            answer = self._predict(request, timeout=self._predict_seconds)
        except grpc.RpcError as error:
            raise refusal(error, self._address, "Predict", self._predict_seconds) from error
        if answer.HasField("fault"):
            raise from_message(answer.fault, self._address)
        if self.is_simulated:
            self._advance(answer)
        try:
            return self._outputs(answer)
        except GarbledTensor as error:
            raise self._garbage(str(error)) from error

    def _add(self, request: messages.PredictRequest, array: Any, offset: int) -> int:
        """Puts an input into the message or the shared memory; where the next one may begin."""
        tensor = request.inputs.add(element_type=element_type(array), shape=array.shape)
        shared, size = self._shared, int(array.nbytes)
        if shared is None or size < _LEAST_SHARED or array.dtype.kind in "OUS" or not shared.has_room(offset, size):
            tensor.data = write_bytes(array)
            return offset
        np.copyto(np.ndarray(array.shape, array.dtype, shared.memory, offset), array)
        tensor.region.offset, tensor.region.size = offset, size
        return offset + -(-size // ALIGNMENT) * ALIGNMENT

    def _outputs(self, answer: messages.PredictionResponse) -> list[Any]:
        found: list[Any] = []
        sent = 0
        types = [tensor.element_type for tensor in answer.outputs]
        # a predictor may learn what comes out only when it does
        known = [kind if told == "unknown" else told for kind, told in zip(types, self._types, strict=False)]
        if len(types) != len(self._types) or types != known:
            raise GarbledTensor(f"outputs of types {types}, announced were {self._types}")
        for tensor in answer.outputs:
            if tensor.HasField("region"):
                region = tensor.region
                if self._shared is None or not self._shared.holds(region):
                    raise GarbledTensor("an output lies outside the memory that it was given")
                found.append(
                    read_array(
                        tensor.element_type, tensor.shape, self._shared.memory, region.offset, region.size
                    ).copy()
                )
            else:
                found.append(read_array(tensor.element_type, tensor.shape, tensor.data).copy())
                sent += len(tensor.data) + ALIGNMENT
        if sent > _LEAST_SHARED and self._shared is not None:
            self._shared.expect(self._shared.answer.size + sent)
        return found

    def _advance(self, answer: messages.PredictionResponse) -> None:
        if not answer.HasField("simulated_ns") or answer.simulated_ns < 0:
            raise self._garbage("it announced a clock of its own, but the answer has no time of it")
        self.simulated_ns += answer.simulated_ns

    def _garbage(self, reason: str) -> RpcFault:
        return RpcFault(
            "predictor_failed",
            f"the predictor at {self._address} answered Predict with garbage: {reason}",
            address=self._address,
            call="Predict",
        )

    def _answer(self, call: Any, request: Any, name: str, seconds: float) -> Any:
        try:
            answer = call(request, timeout=seconds)
        except grpc.RpcError as error:
            raise refusal(error, self._address, name, seconds) from error
        if answer.HasField("fault"):
            raise from_message(answer.fault, self._address)
        return answer

    def close(self) -> None:
        """Unloads the model where there is one, and lets go of everything; a program that is gone has done so too."""
        handle, self._id = self._id, None
        try:
            if handle is not None:
                self._answer(self._unload, messages.ModelHandle(id=handle), "ModelUnload", _CLOSE_SECONDS)
        except RpcFault:
            # the caller wants to be rid of the model, and so it is
            pass
        finally:
            self._channel.close()
            if self._shared is not None:
                self._shared.close()
                self._shared = None


def _open_request(model: dict[str, Any], options: dict[str, Any], *, uploads: bool) -> messages.OpenRequest:
    request = messages.OpenRequest(
        graph_path=model.get("graph_path") or "",
        weights_path=model.get("weights_path") or "",
        inputs=[_choice(layer) for layer in model.get("inputs") or []],
        outputs=[_choice(layer) for layer in model.get("outputs") or []],
        threads=model.get("threads", 1),
        options_json=json.dumps(options) if options else "",
    )
    if uploads and request.graph_path:
        request.graph = _content(request.graph_path)
        request.graph_path = Path(request.graph_path).name
    if uploads and request.weights_path:
        request.weights = _content(request.weights_path)
        request.weights_path = Path(request.weights_path).name
    return request


def _choice(layer: dict[str, Any]) -> messages.LayerChoice:
    chosen = messages.LayerChoice(element_type=layer.get("element_type") or "")
    name = layer.get("layer_name")
    if isinstance(name, int):
        chosen.index = name
    elif name is not None:
        chosen.name = name
    return chosen


def _content(path: str) -> bytes:
    file = Path(path)
    if file.is_dir():
        raise RpcFault(
            "predictor_failed",
            f"{path} is a folder, and only files can be uploaded",
            hint="put it on the predictor's machine and give its path there, without the option upload",
            path=path,
        )
    try:
        size = file.stat().st_size
        if size >= MESSAGE_BYTES:
            raise RpcFault(
                "predictor_failed",
                f"{path} has {size} bytes, at most {MESSAGE_BYTES} can be uploaded",
                hint="put it on the predictor's machine and give its path there, without the option upload",
                path=path,
            )
        return file.read_bytes()
    except OSError as error:
        raise RpcFault("model_format", f"{path} cannot be read: {error.strerror}", path=path) from error


def _facts(facts: messages.Facts, address: str) -> dict[str, Any]:
    told = {name: getattr(facts, name) or "unknown" for name in ("provider", "device", "library", "optimization")}
    if not facts.framework or not facts.version or facts.threads < 1 or not facts.outputs:
        raise RpcFault(
            "predictor_failed",
            f"the predictor at {address} loaded the model, but does not say what it is",
            hint="the facts need framework, version, threads and every output: docs/reference/predictor-rpc.md",
            address=address,
        )
    return {
        "framework": facts.framework,
        "version": facts.version,
        "threads": facts.threads,
        **told,
        "precision": facts.precision or "unknown",
        "inputs": [_layer(fact) for fact in facts.inputs],
        "outputs": [_layer(fact) for fact in facts.outputs],
    }


def _layer(fact: messages.LayerFact) -> dict[str, Any]:
    shape = None if fact.is_unranked else [None if size < 0 else size for size in fact.shape]
    return {"name": fact.name, "shape": shape, "element_type": fact.element_type}
