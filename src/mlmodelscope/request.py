"""Plain values of a caller -> an evaluation request, checked, with its inputs located."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mlmodelscope.core.asset import parse_location
from mlmodelscope.core.errors import InputError, UsageError
from mlmodelscope.core.request import EvaluationRequest

__all__ = ["make_request"]


def make_request(**fields: Any) -> EvaluationRequest:
    """A request from plain values; a UsageError says which field cannot be, an InputError which input is not there."""
    try:
        request = EvaluationRequest(**fields)
    except ValidationError as error:
        raise UsageError("; ".join(_problem(item) for item in error.errors())) from None
    return request.model_copy(update={"inputs": tuple(_locate(text) for text in request.inputs)})


def _problem(item: Mapping[str, Any]) -> str:
    message = str(item["msg"]).removeprefix("Value error, ")
    return ": ".join(filter(None, (".".join(map(str, item["loc"])), message)))


def _locate(text: str) -> str:
    """The location of an input; of a file here the whole path, so that the record can be repeated from any folder."""
    file = Path(text).absolute()
    if os.path.isfile(file):  # noqa: PTH113 - a name that no file can have is no error here
        # a name may hold what has a meaning in a location: '!', a blank at its end
        return str(file) if re.fullmatch(r"[^!\x00-\x1f]*\S", str(file)) else file.as_uri()
    try:
        location = parse_location(text)
    except ValueError as error:
        raise UsageError(f"the input {text!r} cannot be: {error}") from None
    if location.kind != "path":
        return text
    if location.member is None:
        reason = "is a folder" if file.is_dir() else "is not there"
        raise InputError(f"the input {text} {reason}", hint="give a file or a URL", input=text)
    return f"{Path(location.target).absolute()}!{location.member}"
