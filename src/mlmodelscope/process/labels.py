"""A text file with one class a line -> the labels in the order of the class index."""

from __future__ import annotations

from pathlib import Path

from mlmodelscope.core.errors import InputError

__all__ = ["read_labels"]


def read_labels(path: Path) -> list[str]:
    """Blank lines at the end are no labels; one in the middle is an empty label, so that no index moves."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read the labels {path}: {error.strerror or error}", file=str(path)) from None
    except UnicodeDecodeError:
        raise InputError(f"the labels {path} are not UTF-8 text", file=str(path)) from None
    return [line.strip() for line in text.rstrip().split("\n")] if text.strip() else []
