"""Turns the path of a TensorFlow model into its kind and the place to read it from, unpacking archives.

What a file is shows in its bytes, not in its ending. Nothing of the file is executed here.
"""

import contextlib
import importlib
import json
import os
import shutil
import tarfile
import tempfile
import zipfile
from typing import IO, Any, Iterator, List, NamedTuple, Optional, Tuple

from mlmodelscope.predictors.modelfile import describe_file
from mlmodelscope.predictors.port import PredictorFault

__all__ = ["GRAPH", "KERAS", "SAVED_MODEL", "Place", "check_keras_config", "format_fault", "opened"]

SAVED_MODEL = "saved_model"
KERAS = "keras"
GRAPH = "graph"

_SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")
_KERAS_MEMBER = "config.json"
_HDF5 = b"\x89HDF\r\n\x1a\n"
_ZIP = b"PK\x03\x04"
_ADVICE = "give tensorflow a SavedModel (a folder or an archive of one), a .keras or .h5 model, or a frozen graph (.pb)"


class Place(NamedTuple):
    """`path` is what TensorFlow is to read: a folder for a SavedModel, else a file."""

    kind: str
    path: str


@contextlib.contextmanager
def opened(path: str) -> Iterator[Place]:
    """What lies at `path`; an archive is unpacked for as long as the context lasts."""
    if os.path.isdir(path):
        yield Place(SAVED_MODEL, _saved_model_folder(path, path))
    elif os.path.basename(path) in _SAVED_MODEL_FILES and os.path.isfile(path):
        yield Place(SAVED_MODEL, os.path.dirname(path) or ".")
    elif _is_keras(path):
        yield Place(KERAS, path)
    elif _is_archive(path):
        folder = tempfile.mkdtemp(prefix="mlmodelscope-savedmodel-")
        try:
            _unpack(path, folder)
            yield Place(SAVED_MODEL, _saved_model_folder(folder, path))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    else:
        yield Place(GRAPH, path)


def format_fault(path: str, reason: str, **fields: Any) -> PredictorFault:
    return PredictorFault("model_format", f"tensorflow cannot read {path}: {reason}", hint=_ADVICE, path=path, **fields)


def _head(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(8)
    except OSError as error:
        raise format_fault(path, f"it is {describe_file(path)}", error=str(error)) from error


def _is_keras(path: str) -> bool:
    head = _head(path)
    if not head.startswith(_ZIP):
        return head == _HDF5
    try:
        with zipfile.ZipFile(path) as archive:
            return _KERAS_MEMBER in archive.namelist()
    except (zipfile.BadZipFile, OSError) as error:
        raise format_fault(path, "it is a damaged zip archive", error=str(error)) from error


def _is_archive(path: str) -> bool:
    return _head(path).startswith(_ZIP) or tarfile.is_tarfile(path)


def _saved_model_folder(folder: str, asked: str) -> str:
    """The one folder at or below `folder` that holds a SavedModel."""
    found = sorted(place for place, _, files in os.walk(folder) if any(name in files for name in _SAVED_MODEL_FILES))
    if folder in found:
        return folder
    if len(found) == 1:
        return found[0]
    several = ", ".join(os.path.relpath(place, folder) for place in found)
    reason = f"it holds several SavedModels: {several}" if found else "it holds no saved_model.pb"
    raise format_fault(asked, reason, expected="saved_model.pb", got=describe_file(asked))


def _unpack(path: str, folder: str) -> None:
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                _unpack_zip(archive, folder)
        else:
            with tarfile.open(path) as archive:
                _unpack_tar(archive, folder)
    # a damaged stream comes out as an error of its compression
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise format_fault(path, f"its archive is damaged ({error})", error=str(error)) from error
    except ValueError as error:
        raise format_fault(path, str(error), error=str(error)) from error


def _unpack_zip(archive: zipfile.ZipFile, folder: str) -> None:
    members = [member for member in archive.infolist() if not member.filename.endswith("/")]
    _check_room(folder, sum(member.file_size for member in members))
    for member in members:
        with archive.open(member) as source:
            _write(source, folder, member.filename, member.file_size)


def _unpack_tar(archive: tarfile.TarFile, folder: str) -> None:
    members = [member for member in archive.getmembers() if not member.isdir()]
    _check_room(folder, sum(member.size for member in members))
    for member in members:
        source = archive.extractfile(member) if member.isreg() else None
        if source is None:
            raise ValueError(f"its member {member.name!r} is no plain file")
        with source:
            _write(source, folder, member.name, member.size)


def _check_room(folder: str, size_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if size_bytes > free:
        raise ValueError(f"unpacked it takes {size_bytes} bytes, and {folder} has {free} left")


def _write(source: IO[bytes], folder: str, name: str, size_bytes: int) -> None:
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or not parts or ":" in parts[0]:
        raise ValueError(f"its member {name!r} would lie outside of the archive")
    target = os.path.join(folder, *parts)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    # links are never made, so a path inside the folder stays inside
    with open(target, "xb") as file:
        left = size_bytes
        while left:
            block = source.read(min(left, 1 << 20))
            if not block:
                raise ValueError(f"its member {name!r} is cut short")
            file.write(block)
            left -= len(block)


def check_keras_config(path: str) -> None:
    """Refuses a Keras model that carries Python code: several versions of Keras would run it while they load."""
    text = _keras_config(path)
    try:
        found = _first_lambda(json.loads(text)) if text else None
    except (ValueError, RecursionError) as error:
        raise format_fault(path, "its Keras configuration is damaged", error=str(error)) from error
    if not text:
        raise format_fault(path, "it holds weights, but no Keras model", expected="a model's configuration")
    if found is not None:
        raise PredictorFault(
            "model_format",
            f"{path} carries Python code in layer {found!r}, which is not run",
            hint="export the model as a SavedModel, where the layer is part of the graph",
            path=path,
            layer=found,
        )


def _keras_config(path: str) -> Optional[str]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return archive.read(_KERAS_MEMBER).decode("utf-8", "replace")
    h5py: Any = importlib.import_module("h5py")
    try:
        with h5py.File(path, "r") as file:
            config = file.attrs.get("model_config")
    except (OSError, RuntimeError) as error:
        raise format_fault(path, "its HDF5 file is cut short or damaged", error=str(error)) from error
    return config.decode("utf-8", "replace") if isinstance(config, bytes) else config


def _first_lambda(config: Any) -> Optional[str]:
    waiting: List[Tuple[str, Any]] = [("", config)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            inner = value.get("config")
            name = str(inner.get("name", name)) if isinstance(inner, dict) else name
            # a class is named with its package (keras>Lambda) or by its place (layers.Lambda)
            if str(value.get("class_name")).replace(">", ".").rpartition(".")[2] in ("Lambda", "__lambda__"):
                return name or "Lambda"
            waiting += [(name, part) for part in value.values()]
        elif isinstance(value, list):
            waiting += [(name, part) for part in value]
    return None
