"""The private protocol between parent and worker: length-prefixed JSON over an inherited socket pair.

Every message is a 4-byte big-endian length and that many bytes of JSON with a `type`. The first message of each side
carries PROTOCOL_VERSION. Tensors and bulk results never travel here: they lie in files of the run folder.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

__all__ = ["MAX_MESSAGE_BYTES", "PROTOCOL_VERSION", "Channel", "ProtocolViolation"]

PROTOCOL_VERSION = 1
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")


class ProtocolViolation(Exception):  # noqa: N818 - a fact about the other side; `launch` makes an error of it
    """The other side sent something that is not this protocol."""


class Channel:
    """One end of the socket pair. Blocking; used by one thread."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: dict[str, Any]) -> None:
        body = json.dumps(message, separators=(",", ":")).encode()
        if len(body) > MAX_MESSAGE_BYTES:
            raise ProtocolViolation(f"a message of {len(body)} bytes is over the limit of {MAX_MESSAGE_BYTES}")
        self._socket.sendall(_LENGTH.pack(len(body)) + body)

    def receive(self) -> dict[str, Any] | None:
        """The next message; None when the other side is gone."""
        head = self._read(_LENGTH.size)
        if head is None:
            return None
        (length,) = _LENGTH.unpack(head)
        if length > MAX_MESSAGE_BYTES:
            raise ProtocolViolation(f"the other side announced a message of {length} bytes")
        body = self._read(length)
        if body is None:
            return None
        try:
            message = json.loads(body)
        except ValueError as error:
            raise ProtocolViolation("the other side sent no JSON") from error
        if not isinstance(message, dict) or "type" not in message:
            raise ProtocolViolation("the other side sent a message without a type")
        return message

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytes | None:
        parts: list[bytes] = []
        while size:
            try:
                part = self._socket.recv(size)
            except ConnectionError:
                return None
            if not part:
                return None
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
