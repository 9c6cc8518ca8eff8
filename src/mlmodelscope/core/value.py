"""The root of every parsed value: frozen, strict about names, printable as canonical JSON with a digest."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict

__all__ = ["Frozen", "canonical_json", "digest_of"]


class Frozen(BaseModel):
    """A value: parsed once, never changed. Unknown fields are errors, so that a typing mistake is never silent."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def canonical_json(value: Any) -> str:
    """One text per value: sorted keys, no spaces, no NaN. The text behind every digest of ours."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest_of(value: Any) -> str:
    """SHA-256 of the canonical JSON, as lower-case hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
