"""Turns a model file into the draft of its manifest: what the file says, and guesses for what it does not."""

from __future__ import annotations

from pathlib import Path

from mlmodelscope.core.asset import Location, parse_location
from mlmodelscope.core.errors import InputError, ModelFormatError
from mlmodelscope.manifest.skeleton import format_skeleton
from mlmodelscope.predictors.layers import read_layers
from mlmodelscope.provision.digests import hash_file

__all__ = ["draft_manifest"]


def draft_manifest(model_file: Path, folder: Path) -> str:
    """The text of a manifest that is to lie in `folder`. ModelFormatError: no ONNX or TensorFlow Lite file."""
    if not model_file.is_file():
        reason = "is a folder" if model_file.is_dir() else "is not there"
        raise InputError(f"the model file {model_file} {reason}", file=str(model_file))
    try:
        layers = read_layers(str(model_file))
        digest = hash_file(model_file).sha256
    except OSError as error:
        raise InputError(f"cannot read {model_file}: {error.strerror or error}", file=str(model_file)) from None
    except ValueError as error:
        raise ModelFormatError(
            f"no manifest can be made from {model_file}: {error}",
            hint="init reads complete ONNX and TensorFlow Lite files",
            file=str(model_file),
            reason=str(error),
        ) from None
    return format_skeleton(
        layers.format,
        layers.inputs,
        layers.outputs,
        name=model_file.stem.encode("utf-8", "replace").decode(),
        location=_location(model_file.resolve(), folder.resolve()),
        sha256=digest,
    )


def _location(file: Path, folder: Path) -> str:
    """Relative where the file lies beside or below the manifest, so that both can be moved together."""
    located = str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)
    try:
        is_plain = located.isprintable() and parse_location(located) == Location(kind="path", target=located)
    except ValueError:
        is_plain = False
    # a name may hold what has a meaning in a location: '!', a colon, a blank at its end
    return located if is_plain else file.as_uri()
