"""What every converter does around its work: options to checked options, its own code to a digest, errors to ours."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mlmodelscope.core.errors import ConvertError, UnknownNameError

__all__ = ["check_options", "code_digest", "reading", "write_target"]

_SHARED = ("graph.py", "source.py")


def check_options(options: Mapping[str, str], known: Collection[str]) -> None:
    for name in options:
        if name not in known:
            hint = None if known else "this converter takes no options"
            raise UnknownNameError("converter option", name, known, hint=hint)


def code_digest(folder: Path) -> str:
    """SHA-256 over the converter's folder, the modules all converters share and the installed onnx version."""
    try:
        onnx_version = version("onnx")
    except PackageNotFoundError:
        onnx_version = "absent"
    digest = hashlib.sha256(f"onnx {onnx_version}\n".encode())
    files = [folder.parent / name for name in _SHARED] + sorted(folder.glob("*.py"))
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


@contextmanager
def reading(source: Path) -> Iterator[None]:
    """A foreign file may be wrong in any way: whatever its reader stumbles over becomes a ConvertError."""
    try:
        yield
    except OSError as error:
        raise ConvertError(
            f"cannot read {source.name}: {error.strerror or error}", hint="is every file of the model there?"
        ) from error
    except (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        detail = str(error) or type(error).__name__
        raise ConvertError(f"{source.name} is damaged or not of the expected format: {detail}") from error


def write_target(target: Path, content: bytes) -> None:
    try:
        target.write_bytes(content)
    except OSError as error:
        raise ConvertError(f"cannot write {target.name}: {error.strerror or error}") from error
