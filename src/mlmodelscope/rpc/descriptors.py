"""Turns the description that protoc made of a .proto file into classes of messages.

The description (`*.binpb`) is what is generated and kept, not Python code: the code that protoc writes refuses to run
with any protobuf older than the compiler, and with one two major versions younger. The description has no such limits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["HERE", "load_messages"]

HERE = Path(__file__).parent


def load_messages(name: str) -> dict[str, Any]:
    """The classes of `name`.proto by the names of their messages."""
    described = descriptor_pb2.FileDescriptorSet.FromString((HERE / f"{name}.binpb").read_bytes())
    # a pool of its own: another package of this process may have read a file of the same name into the default one
    pool = descriptor_pool.DescriptorPool()
    for file in described.file:
        pool.Add(file)
    messages = [f"{file.package}.{message.name}" for file in described.file for message in file.message_type]
    return {
        full.rpartition(".")[2]: message_factory.GetMessageClass(pool.FindMessageTypeByName(full)) for full in messages
    }
