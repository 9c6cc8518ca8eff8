"""Turns an address into a channel to the program behind it, and what gRPC says when that fails into a fault."""

from __future__ import annotations

import re
import socket
import time
from typing import Any

import grpc

from mlmodelscope.rpc.faults import RpcFault

__all__ = ["MESSAGE_BYTES", "OPTIONS", "is_answered", "open_channel", "parse_address", "refusal"]

# gRPC's own limit is 4 MiB; one of ours is met by a gigabyte of tensors in one call, and by nothing else
MESSAGE_BYTES = 1 << 30
OPTIONS = (
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    # a call that was made twice would be measured as one, and a proxy is never on the way to a device
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.so_reuseport", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
_LONGEST_SOCKET_PATH = 107
_CONNECT_SECONDS = 5.0
_PROBES, _PROBE_SECONDS = 3, 0.1
_HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):(?P<port>\d{1,5})")
_NOBODY = "start it there first, for example: mlmodelscope predictor serve NAME --address {}"
_NO_PREDICTOR = "it must serve mlmodelscope.predictor.v1.Predictor: docs/reference/predictor-rpc.md"


def parse_address(text: str) -> tuple[str, int | None]:
    """A path and None for `unix:PATH`, a host and a port for `HOST:PORT`. ValueError says what is wrong with it."""
    if text.startswith("unix:"):
        path = re.sub(r"^//(?=/)", "", text.removeprefix("unix:"))
        if not path or len(path.encode()) > _LONGEST_SOCKET_PATH:
            raise ValueError(
                f"the path of a socket has 1 to {_LONGEST_SOCKET_PATH} bytes, this one {len(path.encode())}"
            )
        return path, None
    match = _HOST_PORT.fullmatch(text)
    if match is None or int(match["port"]) > 0xFFFF:
        raise ValueError(f"{text!r} is no address: write HOST:PORT or unix:PATH")
    return match["host"].strip("[]"), int(match["port"])


def open_channel(
    address: str, connect_seconds: float = _CONNECT_SECONDS, *, who: str = "predictor", hint: str = _NOBODY
) -> Any:
    """A channel to an address at which somebody listens."""
    try:
        parse_address(address)
    except ValueError as error:
        raise RpcFault(
            "environment_missing", str(error), hint="for example: unix:/run/fpga.sock", got=address
        ) from None
    reason = is_answered(address, connect_seconds)
    if reason is not None:
        raise RpcFault(
            "environment_missing",
            f"no {who} listens at {address}: {reason}",
            hint=hint.format(address),
            address=address,
        )
    path, port = parse_address(address)
    return grpc.insecure_channel(f"unix:{path}" if port is None else address, options=OPTIONS)


def is_answered(address: str, seconds: float = _CONNECT_SECONDS) -> str | None:
    """None if a connection can be made, else the system's reason; gRPC itself would go on trying, and name none."""
    host, port = parse_address(address)
    try:
        if port is not None:
            socket.create_connection((host, port), seconds).close()
            return None
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(seconds)
            probe.connect(host)
    except UnicodeError:  # an empty label, or one of more than 63 letters
        return "this cannot be the name of a host"
    except OSError as error:
        return (error.strerror or str(error) or type(error).__name__).lower()
    return None


def _has_ended(address: str) -> bool:
    """A program that dies closes its connections one after the other, and the one that listens not always first."""
    for _ in range(_PROBES):
        if is_answered(address) is not None:
            return True
        time.sleep(_PROBE_SECONDS)
    return False


def refusal(
    error: grpc.RpcError,
    address: str,
    call: str,
    seconds: float,
    *,
    who: str = "predictor",
    unimplemented: str = _NO_PREDICTOR,
) -> RpcFault:
    """What a call that ended without an answer means."""
    status = error.code()
    details = (error.details() or "").strip().partition("\n")[0]
    facts = {"address": address, "call": call, "status": status.name}
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        limit = "load_seconds" if call == "ModelLoad" else "predict_seconds"
        return RpcFault(
            "predictor_failed",
            f"the {who} at {address} did not answer {call} within {seconds:g} s",
            hint=f"option {limit} allows more",
            **facts,
        )
    if status is grpc.StatusCode.UNAVAILABLE and "parsing HTTP/2" in details:
        return RpcFault(
            "environment_missing", f"what answers at {address} does not speak gRPC", hint=unimplemented, **facts
        )
    # a program that lives may say so too: of a queue that is full, for example
    if status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED) and _has_ended(address):
        return RpcFault(
            "predictor_failed",
            f"the {who} at {address} ended or broke off during {call}: {details}",
            hint="its own log may say why; start it again",
            **facts,
        )
    if status is grpc.StatusCode.UNIMPLEMENTED:
        return RpcFault(
            "predictor_failed",
            f"the program at {address} does not serve {call}",
            hint=unimplemented,
            **facts,
        )
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return RpcFault(
            "predictor_failed",
            f"{call} at {address}: a message is too large: {details}",
            hint=f"use a smaller batch size, or raise the program's limit of message size (ours is {MESSAGE_BYTES})",
            **facts,
        )
    if "deserializ" in details:
        return RpcFault("predictor_failed", f"the {who} at {address} answered {call} with garbage", **facts)
    return RpcFault("predictor_failed", f"the {who} at {address} failed in {call}: {details}", **facts)
