"""Turns a predictor of this process into a program that others can call: the three calls, served at an address.

Every ModelLoad gets a predictor object of its own. One thread makes all calls, one after the other, as predictors are
promised; so two clients are served correctly, but wait for each other. A client that is gone takes its model with it:
one of this machine is missed by its lock (`rpc.shared`), one that gave up ModelLoad by its call. Of any other we hear
nothing: when there is no more room, the model that was not used for longest goes.
"""

from __future__ import annotations

import json
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Protocol

import grpc
import numpy as np

from mlmodelscope.core.errors import UsageError
from mlmodelscope.core.predictor import Simulates, Tensors
from mlmodelscope.rpc import predictor_pb2 as messages
from mlmodelscope.rpc.channel import OPTIONS, is_answered, parse_address
from mlmodelscope.rpc.client import SERVICE
from mlmodelscope.rpc.faults import RpcFault, to_message
from mlmodelscope.rpc.shared import ALIGNMENT, FOLDER, MappedFile
from mlmodelscope.rpc.tensors import GarbledTensor, element_type, read_array, write_bytes

__all__ = ["RunningServer", "Serves", "Service", "start_server"]

_MOST_MODELS = 8
_IDLE_SECONDS = 600.0
_LEAST_SHARED = 4096
# how often clients that are gone are missed, and how long the call that runs and the models are waited for at the end
_LOOK_SECONDS = 10.0
_GRACE_SECONDS = 2.0
_CLOSE_SECONDS = 10.0


@dataclass(slots=True)
class _Loaded:
    predictor: Serves
    shared: MappedFile | None
    folder: Path | None
    used_at: float

    def close(self) -> None:
        try:
            self.predictor.unload()
        finally:
            if self.shared is not None:
                self.shared.close()
            if self.folder is not None:
                shutil.rmtree(self.folder, ignore_errors=True)


class Serves(Protocol):
    """What is served: the three calls of `core.predictor.Predictor`, whatever is behind them."""

    def load(self, model: dict[str, Any]) -> dict[str, Any]: ...
    def predict(self, inputs: Tensors) -> Tensors: ...
    def unload(self) -> None: ...


class Service:
    """The three calls as functions of messages; it needs no gRPC. One thread at a time."""

    def __init__(
        self,
        make_predictor: Callable[[], Serves],
        *,
        folder: str | None = FOLDER,
        most_models: int = _MOST_MODELS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_predictor, self._folder, self._most_models = make_predictor, folder, most_models
        self._clock = clock
        self._loaded: dict[str, _Loaded] = {}

    def load(self, request: messages.OpenRequest) -> messages.ModelHandle:
        try:
            self._make_room()
            return self._load(request)
        except Exception as error:  # a predictor is foreign code, and the client is owed an answer
            return messages.ModelHandle(fault=to_message(error))

    def _load(self, request: messages.OpenRequest) -> messages.ModelHandle:
        loaded = _Loaded(self._make_predictor(), None, None, self._clock())
        try:
            loaded.folder = _folder_for(request)
            facts = loaded.predictor.load(_model(request, loaded.folder))
            if self._folder and request.HasField("shared"):
                loaded.shared = MappedFile.attach(request.shared, self._folder)
            handle = messages.ModelHandle(
                id=uuid.uuid4().hex,
                facts=_facts_message(facts),
                has_mapped=loaded.shared is not None,
                is_simulated=isinstance(loaded.predictor, Simulates),
            )
        except BaseException:
            # the reason why it could not be loaded is the one to be told
            with suppress(Exception):
                loaded.close()
            raise
        loaded.used_at = self._clock()
        self._loaded[handle.id] = loaded
        return handle

    def _make_room(self) -> None:
        self.drop_abandoned()
        if len(self._loaded) < self._most_models:
            return
        key, oldest = min(self._loaded.items(), key=lambda item: item[1].used_at)
        if self._clock() - oldest.used_at < _IDLE_SECONDS:
            raise RpcFault(
                "predictor_failed",
                f"this predictor holds {len(self._loaded)} models already, and takes no more",
                hint=f"unload one; a model that nobody used for {_IDLE_SECONDS / 60:g} minutes makes room by itself",
                expected=self._most_models,
            )
        self._drop(key)

    def drop_abandoned(self) -> None:
        """Frees the models of clients that are known to be gone."""
        for key, loaded in list(self._loaded.items()):
            if loaded.shared is not None and loaded.shared.is_abandoned:
                self._drop(key)

    def _drop(self, key: str) -> None:
        # a predictor that fails here fails a client that is gone, and not the one that is being served
        with suppress(Exception):
            self._loaded.pop(key).close()

    def predict(self, request: messages.PredictRequest) -> messages.PredictionResponse:
        try:
            loaded = self._loaded.get(request.id)
            if loaded is None:
                raise RpcFault(
                    "predictor_failed",
                    f"no model is loaded under the handle {request.id!r}",
                    hint="call ModelLoad first",
                )
            loaded.used_at = self._clock()
            return _predict(loaded, request)
        except Exception as error:  # as in load
            return messages.PredictionResponse(fault=to_message(error))

    def unload(self, request: messages.ModelHandle) -> messages.CloseResponse:
        try:
            loaded = self._loaded.pop(request.id, None)
            if loaded is not None:
                loaded.close()
        except Exception as error:  # as in load
            return messages.CloseResponse(fault=to_message(error))
        return messages.CloseResponse()

    def close(self) -> None:
        for key in list(self._loaded):
            self.unload(messages.ModelHandle(id=key))


def _predict(loaded: _Loaded, request: messages.PredictRequest) -> messages.PredictionResponse:
    predictor = loaded.predictor
    inputs = [_read(tensor, loaded.shared) for tensor in request.inputs]
    answer = messages.PredictionResponse()
    if isinstance(predictor, Simulates):
        began = predictor.now_ns()
        outputs = predictor.predict(inputs)
        answer.simulated_ns = predictor.now_ns() - began
    else:
        outputs = predictor.predict(inputs)
    room = request.answer if request.HasField("answer") else None
    shared = loaded.shared if room is not None and loaded.shared is not None and loaded.shared.holds(room) else None
    offset, end = (room.offset, room.offset + room.size) if room is not None else (0, 0)
    for output in outputs:
        array = np.asarray(output)
        tensor = answer.outputs.add(element_type=element_type(array), shape=array.shape)
        is_string = array.dtype.kind in "OUS"
        if shared is None or is_string or array.nbytes < _LEAST_SHARED or offset + array.nbytes > end:
            tensor.data = write_bytes(array)
            continue
        np.copyto(np.ndarray(array.shape, array.dtype, shared.memory, offset), array)
        tensor.region.offset, tensor.region.size = offset, array.nbytes
        offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return answer


def _read(tensor: messages.Tensor, shared: MappedFile | None) -> Any:
    try:
        if not tensor.HasField("region"):
            # predictors may hand the memory to a library that wants to be allowed to write
            return read_array(tensor.element_type, tensor.shape, bytearray(tensor.data))
        if shared is None or not shared.holds(tensor.region):
            raise GarbledTensor("an input lies outside the shared memory")
        region = tensor.region
        return read_array(tensor.element_type, tensor.shape, shared.memory, region.offset, region.size)
    except GarbledTensor as error:
        raise RpcFault("shape_mismatch", str(error), expected=tensor.element_type, got=list(tensor.shape)) from error


def _folder_for(request: messages.OpenRequest) -> Path | None:
    """A folder of their own for files that came with the request."""
    if not request.HasField("graph") and not request.HasField("weights"):
        return None
    return Path(tempfile.mkdtemp(prefix="mlmodelscope-model-"))


def _uploaded_name(request: messages.OpenRequest, kind: str) -> str:
    # frameworks tell formats by the ending; everything before it is the client's, and none of our business
    return kind + PurePath(getattr(request, f"{kind}_path")).suffix


def _model(request: messages.OpenRequest, folder: Path | None) -> dict[str, Any]:
    try:
        options = json.loads(request.options_json) if request.options_json else {}
    except (RecursionError, ValueError):
        raise RpcFault("predictor_failed", "options_json is no JSON", got=request.options_json) from None
    paths = {kind: getattr(request, f"{kind}_path") or None for kind in ("graph", "weights")}
    for kind, path in paths.items():
        if request.HasField(kind) and folder is not None:
            kept = folder / _uploaded_name(request, kind)
            kept.write_bytes(getattr(request, kind))
            paths[kind] = str(kept)
        elif path and not Path(path).exists():
            raise RpcFault(
                "model_format",
                f"{path} is not there, as the predictor's machine sees it",
                hint="put the file there, or let it be sent with the option upload: true",
                path=path,
            )
    return {
        "graph_path": paths["graph"] or "",
        "weights_path": paths["weights"],
        "inputs": [_layer_of(choice) for choice in request.inputs],
        "outputs": [_layer_of(choice) for choice in request.outputs],
        "threads": request.threads,
        "options": options,
    }


def _layer_of(choice: messages.LayerChoice) -> dict[str, Any]:
    kind = choice.WhichOneof("layer")
    return {
        "layer_name": None if kind is None else getattr(choice, kind),
        "element_type": choice.element_type or None,
    }


def _facts_message(facts: dict[str, Any]) -> messages.Facts:
    names = ("framework", "version", "provider", "device", "library", "optimization", "precision")
    return messages.Facts(
        **{name: str(facts.get(name) or "unknown") for name in names},
        threads=facts["threads"],
        inputs=[_layer_fact(layer) for layer in facts["inputs"]],
        outputs=[_layer_fact(layer) for layer in facts["outputs"]],
    )


def _layer_fact(layer: dict[str, Any]) -> messages.LayerFact:
    shape = layer["shape"]
    return messages.LayerFact(
        name=layer["name"],
        element_type=layer["element_type"],
        shape=[-1 if size is None else size for size in shape or ()],
        is_unranked=shape is None,
    )


class RunningServer:
    """A service that listens at `address`, as it must be written to reach it."""

    def __init__(self, service: Service, server: Any, thread: ThreadPoolExecutor, address: str) -> None:
        self._service, self._server, self._thread, self.address = service, server, thread, address

    def wait(self) -> None:
        """Returns only when the server ended. Looks after clients that are gone meanwhile."""
        looking: Future[None] | None = None
        while self._server.wait_for_termination(_LOOK_SECONDS):
            # behind a call that hangs, one look is enough
            if looking is None or looking.done():
                # another thread may have stopped us meanwhile
                with suppress(RuntimeError):
                    looking = self._thread.submit(self._service.drop_abandoned)

    def stop(self) -> bool:
        """Frees the address, lets the call that runs come to its end for a moment, and frees every model.

        Whether all of that was done: a call that hangs cannot be ended, and keeps its thread. Then only the end of the
        process ends it, and Python's own waits for the thread.
        """
        ended = self._server.stop(_GRACE_SECONDS)
        self.free_address()
        begun = self._thread.submit(lambda: None)
        closing = self._thread.submit(self._service.close)
        self._thread.shutdown(wait=False)
        # gRPC has told every client by then
        ended.wait(2 * _GRACE_SECONDS)
        # what cannot even begin stands behind a call that hangs
        return bool(wait([begun], _GRACE_SECONDS).done) and bool(wait([closing], _CLOSE_SECONDS).done)

    def free_address(self) -> None:
        path, port = parse_address(self.address)
        if port is None:
            Path(path).unlink(missing_ok=True)


def start_server(service: Service, address: str) -> RunningServer:
    """Listens at `HOST:PORT` (port 0: any that is free) or `unix:PATH`. UsageError where that cannot be."""
    try:
        host, port = parse_address(address)
    except ValueError as error:
        raise UsageError(str(error), hint="for example 127.0.0.1:5500, or unix:/tmp/predictor.sock") from None
    if port is None:
        _check_free(host)
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="predictor")
    server = grpc.server(thread, options=OPTIONS)
    methods = {
        "ModelLoad": _handler(lambda message, context: _load_for(service, message, context), messages.OpenRequest),
        "ModelUnload": _handler(lambda message, context: service.unload(message), messages.ModelHandle),
        "Predict": _handler(lambda message, context: service.predict(message), messages.PredictRequest),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    taken = 0
    with suppress(RuntimeError):
        taken = server.add_insecure_port(f"unix:{host}" if port is None else address)
    if not taken:
        server.stop(None)
        thread.shutdown()
        raise UsageError(
            f"cannot listen at {address}",
            hint="the port may be taken, or the address not of this machine; port 0 takes any that is free",
            address=address,
        )
    server.start()
    return RunningServer(service, server, thread, address if port != 0 else f"{address.rpartition(':')[0]}:{taken}")


def _load_for(service: Service, message: messages.OpenRequest, context: Any) -> messages.ModelHandle:
    handle = service.load(message)
    if not context.is_active():
        # the client died or gave up while the model was loaded, and nobody will ever name the handle
        service.unload(handle)
    return handle


def _handler(call: Callable[[Any, Any], Any], request: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        call,
        request_deserializer=request.FromString,
        response_serializer=lambda answer: answer.SerializeToString(),
    )


def _check_free(path: str) -> None:
    """gRPC would take a path away from a living server without a word."""
    file = Path(path)
    if not file.parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}", path=path)
    try:
        mode = file.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise UsageError(f"{path} exists, and is no socket", path=path)
    if is_answered(f"unix:{path}") is None:
        raise UsageError(f"another program listens at unix:{path}", hint="stop it, or choose another path", path=path)
    file.unlink()
