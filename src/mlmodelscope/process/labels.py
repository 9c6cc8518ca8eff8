"""A file of class names (one a line, or JSON) -> the labels in the order of the class index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlmodelscope.core.errors import InputError

__all__ = ["read_labels"]


def read_labels(path: Path) -> list[str]:
    """Text: one label a line. JSON: a list, or a mapping from index to label (`{"0": "tench", ...}`).

    Blank lines at the end are no labels; one in the middle is an empty label, so that no index moves.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read the labels {path}: {error.strerror or error}", file=str(path)) from None
    except UnicodeDecodeError:
        raise InputError(f"the labels {path} are not UTF-8 text", file=str(path)) from None
    if path.suffix == ".json":
        return _from_json(path, text)
    return [line.strip() for line in text.rstrip().split("\n")] if text.strip() else []


def _from_json(path: Path, text: str) -> list[str]:
    try:
        value: Any = json.loads(text)
    except ValueError as error:
        raise InputError(f"the labels {path} are no JSON: {error}", file=str(path)) from None
    if isinstance(value, dict) and set(value) == {str(index) for index in range(len(value))}:
        value = [value[str(index)] for index in range(len(value))]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise InputError(f"the labels {path} are neither a list of names nor a mapping of indices to names", file=str(path))
