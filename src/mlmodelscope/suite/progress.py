"""A suite file and a home -> which of its evaluations are done, kept on disk so that a run can be taken up again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlmodelscope.core.errors import MLModelScopeError
from mlmodelscope.core.record import Record
from mlmodelscope.core.request import EvaluationRequest
from mlmodelscope.provision.durable import read_json, write_json

__all__ = ["SuiteProgress", "SuiteRow"]

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """One evaluation of a suite: its record, or the error that kept it from being planned.

    `is_earlier`: it was done by an earlier run of the suite and not repeated.
    """

    request: EvaluationRequest
    record: Record | None = None
    error: dict[str, Any] | None = None
    is_earlier: bool = False

    @property
    def is_failed(self) -> bool:
        return self.record is None or self.record.status == "failed"

    @classmethod
    def refused(cls, request: EvaluationRequest, error: MLModelScopeError) -> SuiteRow:
        return cls(request, error=error.to_fields())


class SuiteProgress:
    """The ids of the records that a suite has made, by the key of what was run.

    One file per suite file, in `home`. It is written after every group, whole or not at all; a run that is killed loses
    the group under way and nothing before it. What the file names must still be looked up: a record may be gone.
    """

    def __init__(self, home: Path, suite: Path) -> None:
        self._suite = suite
        self._file = home / "suites" / f"{hashlib.sha256(str(suite).encode()).hexdigest()[:16]}.json"
        known = read_json(self._file) or {}
        done = known.get("done") if known.get("format") == _FORMAT else None
        self._done: dict[str, str] = dict(done) if isinstance(done, dict) else {}

    def record_of(self, key: str) -> str | None:
        return self._done.get(key)

    def add(self, finished: dict[str, str]) -> None:
        """Keys and the ids of their records."""
        self._done.update(finished)
        write_json(self._file, {"format": _FORMAT, "suite": str(self._suite), "done": self._done})
