"""The private protocol between parent, worker and shim: length-prefixed JSON over a socket.

Every message is a 4-byte big-endian length and that many bytes of JSON with a `type`. The first message of each side
carries PROTOCOL_VERSION: `job` of the parent, `hello` of the worker; `hello` of the shim, `open` of the worker. Tensors
and bulk results never travel here: they lie in shared memory or in files of the run folder. Python 3.6 syntax: the shim
speaks it inside a framework's own environment.
"""

import json
import socket
import struct
import time
from typing import Any, Dict, List, Optional

__all__ = ["MAX_MESSAGE_BYTES", "PROTOCOL_VERSION", "Channel", "ProtocolViolation"]

PROTOCOL_VERSION = 1
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")


class ProtocolViolation(Exception):  # noqa: N818 - a fact about the other side; `launch` makes an error of it
    """The other side sent something that is not this protocol."""


class Channel:
    """One end of the socket pair. Blocking; used by one thread.

    With `stall_seconds`, a message that is not whole after that long is a violation: a side that must keep limits
    cannot wait for the other without end, nor for one byte after the other.
    """

    def __init__(self, end: socket.socket, stall_seconds: Optional[float] = None) -> None:
        self._socket = end
        self._stall_seconds = stall_seconds
        self._socket.settimeout(stall_seconds)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Dict[str, Any]) -> None:
        # a text may hold half a character (the name of a file, say), which no other file of ours could keep
        body = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
        if len(body) > MAX_MESSAGE_BYTES:
            raise ProtocolViolation(f"a message of {len(body)} bytes is over the limit of {MAX_MESSAGE_BYTES}")
        try:
            self._socket.sendall(_LENGTH.pack(len(body)) + body)
        except socket.timeout as error:
            raise ProtocolViolation("the other side does not take a message") from error

    def receive(self) -> Optional[Dict[str, Any]]:
        """The next message; None when the other side is gone."""
        deadline = None if self._stall_seconds is None else time.monotonic() + self._stall_seconds
        head = self._read(_LENGTH.size, deadline)
        if head is None:
            return None
        (length,) = _LENGTH.unpack(head)
        if length > MAX_MESSAGE_BYTES:
            raise ProtocolViolation(f"the other side announced a message of {length} bytes")
        body = self._read(length, deadline)
        if body is None:
            return None
        try:
            message = json.loads(body)
            # what the rest of us cannot write again: numbers without end, half characters
            json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError) as error:
            raise ProtocolViolation("the other side sent no JSON") from error
        if not isinstance(message, dict) or "type" not in message:
            raise ProtocolViolation("the other side sent a message without a type")
        return message

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int, deadline: Optional[float]) -> Optional[bytes]:
        parts: List[bytes] = []
        while size:
            try:
                if deadline is not None:
                    self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                part = self._socket.recv(size)
            except ConnectionError:
                return None
            except socket.timeout as error:
                raise ProtocolViolation("the other side stopped in the middle of a message") from error
            if not part:
                return None
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
