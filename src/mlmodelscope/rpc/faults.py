"""Turns failures into Fault messages and back; the fields keep their plain JSON form on the way."""

from __future__ import annotations

import json
from typing import Any

from mlmodelscope.core.errors import MLModelScopeError
from mlmodelscope.rpc.predictor_pb2 import Fault

__all__ = ["RpcFault", "from_message", "to_message"]

CODES = ("batch_unsupported", "environment_missing", "model_format", "predictor_failed", "shape_mismatch")


class RpcFault(Exception):  # noqa: N818 - an error of ours only once the worker has it
    """A failure on either side of the wire, in the form in which predictors tell theirs."""

    def __init__(self, code: str, message: str, *, hint: str | None = None, **fields: Any) -> None:
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint
        self.fields: dict[str, Any] = fields


def to_message(error: Exception) -> Fault:
    """Whatever a predictor raised. Faults and errors of ours keep all they say, though a code that is not in the
    protocol becomes the general one; of anything else only class and text are told."""
    code = getattr(error, "code", None)
    if isinstance(error, MLModelScopeError) and code not in CODES:
        code = "predictor_failed"
    if code not in CODES:
        return Fault(code="predictor_failed", message=f"the predictor failed: {type(error).__name__}: {error}")
    fields = getattr(error, "fields", None) or {}
    return Fault(
        code=code,
        message=str(getattr(error, "message", error)),
        hint=getattr(error, "hint", None) or "",
        fields_json=json.dumps(fields, default=str) if fields else "",
    )


def from_message(fault: Fault, origin: str) -> RpcFault:
    """`origin` names the other side where it says something that is not in the protocol."""
    code = fault.code if fault.code in CODES else "predictor_failed"
    made = RpcFault(code, fault.message or f"{origin} failed and did not say why", hint=fault.hint or None)
    try:
        fields = json.loads(fault.fields_json) if fault.fields_json else {}
    except (RecursionError, ValueError):
        fields = {}
    made.fields = fields if isinstance(fields, dict) else {}
    return made
