"""A .pt or .pth file, zip or legacy, to its tensors by name, as views of the mapped file, without torch."""

from __future__ import annotations

import math
import mmap
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlmodelscope.core.errors import ConvertError
from mlmodelscope.provision.convert.state_dict_to_onnx.pickled import StorageRef, TensorRef, read_pickle

__all__ = ["read_state_dict"]

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001
# Tied weights appear under two names; a file whose tensors overlap more than this is made to fill the memory.
_OVERLAP_LIMIT = 4
_WRAPPERS = ("state_dict", "model")
_LOCAL_HEADER_BYTES = 30

_Array = npt.NDArray[Any]
_Locate = Callable[[StorageRef], int]


def read_state_dict(path: Path) -> dict[str, _Array]:
    """Tensors in file order; bfloat16 comes as float32. The prefix that DataParallel puts before every name is taken
    off. Raises ConvertError; a damaged file may also raise OSError, ValueError, LookupError or TypeError.
    """
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if mapped[:4] == b"PK\x03\x04":
            value, byte_order, locate = _read_zip(file, mapped)
        else:
            value, byte_order, locate = _read_legacy(mapped)
    tensors = _unwrap(value)
    if sum(math.prod(tensor.shape) for tensor in tensors.values()) > _OVERLAP_LIMIT * len(mapped):
        raise ConvertError("the tensors are together far larger than the file")
    return {name: _view(mapped, name, tensor, byte_order, locate) for name, tensor in tensors.items()}


def _read_zip(file: Any, mapped: mmap.mmap) -> tuple[Any, str, _Locate]:
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, struct.error) as error:
        raise ConvertError(f"the file begins like a zip archive but is none: {error}") from error
    members = {info.filename: info for info in archive.infolist()}
    roots = [name.removesuffix("data.pkl") for name in members if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise ConvertError("the archive holds no single data.pkl: it was not written by torch.save")
    root = roots[0]
    if f"{root}constants.pkl" in members:
        raise ConvertError("the file is a TorchScript program, not a state dict")

    def place(name: str) -> tuple[int, int]:
        if name not in members:
            raise ConvertError(f"the archive lacks {name}")
        return _stored_range(mapped, members[name])

    def content(name: str) -> bytes:
        start, size = place(name)
        return mapped[start : start + size]

    def locate(storage: StorageRef) -> int:
        start, size = place(f"{root}data/{storage.key}")
        if size != storage.count * _item_bytes(storage):
            raise ConvertError(f"storage {storage.key} holds {size} bytes, not {storage.count} elements")
        return start

    order = content(f"{root}byteorder") if f"{root}byteorder" in members else b"little"
    start, size = place(f"{root}data.pkl")
    window = _Window(mapped, start, start + size)
    return read_pickle(window), ">" if order.strip() == b"big" else "<", locate


def _stored_range(mapped: mmap.mmap, info: zipfile.ZipInfo) -> tuple[int, int]:
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 0x1:
        raise ConvertError(f"{info.filename} is compressed or encrypted, which torch never does")
    header = mapped[info.header_offset : info.header_offset + _LOCAL_HEADER_BYTES]
    if info.header_offset < 0 or len(header) != _LOCAL_HEADER_BYTES or header[:4] != b"PK\x03\x04":
        raise ConvertError(f"{info.filename} has no header where the archive's index says")
    names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    start = info.header_offset + _LOCAL_HEADER_BYTES + names
    if start + info.file_size > len(mapped):
        raise ConvertError(f"{info.filename} reaches beyond the end of the file")
    return start, info.file_size


def _read_legacy(mapped: mmap.mmap) -> tuple[Any, str, _Locate]:
    """Five pickles (magic, protocol, system, value, storage keys), then each storage: its count and its elements."""
    if mapped[:1] != b"\x80" or read_pickle(mapped) != _LEGACY_MAGIC:
        raise ConvertError("the file was not written by torch.save")
    if read_pickle(mapped) != _LEGACY_PROTOCOL:
        raise ConvertError("the file has an unknown version of torch's legacy format")
    system, value, keys = (read_pickle(mapped) for _ in range(3))
    if not isinstance(system, dict) or not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ConvertError("the file's list of storages cannot be read")
    byte_order = "<" if system.get("little_endian", True) else ">"
    items = {ref.key: _item_bytes(ref) for ref in _storages(value)}
    places: dict[str, tuple[int, int]] = {}
    position = mapped.tell()
    for key in keys:
        if key not in items:
            raise ConvertError(f"storage {key} belongs to no tensor")
        count = int.from_bytes(mapped[position : position + 8], "little" if byte_order == "<" else "big")
        places[key] = (position + 8, count)
        position += 8 + count * items[key]
        if position > len(mapped):
            raise ConvertError(f"storage {key} reaches beyond the end of the file")

    def locate(storage: StorageRef) -> int:
        if storage.key not in places:
            raise ConvertError(f"the file lacks storage {storage.key}")
        start, count = places[storage.key]
        if count != storage.count or _item_bytes(storage) != items[storage.key]:
            raise ConvertError(f"storage {storage.key} holds {count} elements, not {storage.count}")
        return start

    return value, byte_order, locate


class _Window:
    """A part of the mapped file as a source of bytes that ends where the part ends."""

    def __init__(self, mapped: mmap.mmap, start: int, stop: int) -> None:
        self._mapped, self._position, self._stop = mapped, start, stop

    def read(self, size: int, /) -> bytes:
        end = min(self._position + size, self._stop)
        content = self._mapped[self._position : end]
        self._position = end
        return content

    def readline(self) -> bytes:
        newline = self._mapped.find(b"\n", self._position, self._stop)
        end = self._stop if newline < 0 else newline + 1
        return self.read(end - self._position)


def _storages(value: Any) -> list[StorageRef]:
    """Every storage in the value, also those of an optimizer's state, without following a cycle twice."""
    found: list[StorageRef] = []
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, TensorRef):
            found.append(item.storage)
        elif isinstance(item, dict | list | tuple) and id(item) not in seen:
            seen.add(id(item))
            waiting.extend(item.values() if isinstance(item, dict) else item)
    return found


def _unwrap(value: Any) -> Mapping[str, TensorRef]:
    if isinstance(value, dict) and not any(isinstance(item, TensorRef) for item in value.values()):
        value = next((value[key] for key in _WRAPPERS if isinstance(value.get(key), dict)), value)
    if not isinstance(value, dict) or not value:
        raise ConvertError("the file holds no state dict: expected tensors by name")
    others = sorted(str(key) for key, item in value.items() if not isinstance(item, TensorRef))
    if others or not all(isinstance(key, str) for key in value):
        raise ConvertError(
            f"the state dict holds entries that are no tensors: {', '.join(others[:8])}",
            hint="a checkpoint keeps its weights under 'state_dict' or 'model'",
            entries=others,
        )
    if all(key.startswith("module.") for key in value):
        value = {key.removeprefix("module."): item for key, item in value.items()}
    tensors: dict[str, TensorRef] = value
    return tensors


def _item_bytes(storage: StorageRef) -> int:
    return 2 if storage.elements == "bfloat16" else np.dtype(storage.elements).itemsize


def _view(mapped: mmap.mmap, name: str, tensor: TensorRef, byte_order: str, locate: _Locate) -> _Array:
    storage = tensor.storage
    count = math.prod(tensor.shape)
    last = tensor.offset + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.strides, strict=False))
    fits = len(tensor.shape) == len(tensor.strides) and count <= storage.count
    if not fits or (count and last >= storage.count):
        raise ConvertError(f"tensor {name} of shape {list(tensor.shape)} does not fit its storage", tensor=name)
    kind = "u2" if storage.elements == "bfloat16" else storage.elements
    dtype = np.dtype(f"{byte_order}{kind}" if kind != "bool" else kind)
    start = locate(storage)
    elements = np.frombuffer(mapped, dtype, storage.count, start) if storage.count else np.empty(0, dtype)
    strides = tuple(step * dtype.itemsize for step in tensor.strides)
    window = elements[tensor.offset :]
    view = np.lib.stride_tricks.as_strided(window, tensor.shape, strides, writeable=False)
    if storage.elements == "bfloat16":
        widened = view.astype(np.uint32) << np.uint32(16)
        return widened.view(np.float32)
    return view
