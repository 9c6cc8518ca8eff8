"""What a worker said last, and the files it left in the run folder -> checked values: it may have meant harm.

Everything that is not what a worker of ours writes is a ProtocolViolation or, in a file, a WorkerCrashError.
`most_bytes` bounds what is read at all.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from mlmodelscope.core.answer import Prediction
from mlmodelscope.core.errors import MLModelScopeError, WorkerCrashError, from_fields
from mlmodelscope.core.record import LaunchFacts, Software
from mlmodelscope.core.system import SystemFacts
from mlmodelscope.worker.protocol import ProtocolViolation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "MOST_BYTES",
    "MOST_UNTRUSTED_BYTES",
    "checked_error",
    "checked_message",
    "read_predictions",
    "read_result",
    "read_stamps",
    "read_table",
]

# of one file: more would not fit the memory of the process that reads it
MOST_BYTES = 8 * 1024**3
# of one file of untrusted code: the answers for 50,000 samples are 20 MB, and become ten times that in memory
MOST_UNTRUSTED_BYTES = 64 * 1024**2
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..{'descr': '(?P<type>[<>]i8)', 'fortran_order': False, "
    rb"'shape': \((?P<rows>\d{1,12}), (?P<columns>\d{1,4})\), } *\n",
    re.DOTALL,
)


class _Execution(BaseModel):
    threads: int
    provider: str
    optimization: str
    precision: str
    device: str = "cpu"
    library: str = "unknown"
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]


class _Result(BaseModel):
    execution: _Execution
    performance_set: list[str]
    sample_count: NonNegativeInt
    sample_ids_digest: str
    launch: LaunchFacts
    software: Software | None
    system: SystemFacts | None


class _Error(BaseModel):
    code: str
    message: str
    hint: str | None = None
    fields: dict[str, Any] = Field(default_factory=dict)


def checked_error(value: Any) -> MLModelScopeError:
    """The error that a worker told."""
    try:
        return from_fields(_Error.model_validate(value).model_dump())
    except ValidationError:
        raise ProtocolViolation("its error is none") from None


def checked_message(message: dict[str, Any], *, is_first: bool) -> dict[str, Any]:
    """The final message, if everything is in it that a record is made of; the first launch tells the software too."""
    try:
        result = _Result.model_validate(message)
    except ValidationError as error:
        names = dict.fromkeys(str(problem["loc"][0]) for problem in error.errors())
        raise ProtocolViolation(f"its result lacks {', '.join(names)}") from None
    if is_first and (result.software is None or result.system is None):
        raise ProtocolViolation("its result lacks software or system")
    return message


def read_result(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a result file: a plain file of at most that size; no link is followed and no pipe waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _broken(path, error.strerror or str(error)) from None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise _broken(path, "it is not a plain file")
        if facts.st_size > most_bytes:
            raise _broken(path, f"it has {facts.st_size} bytes, more than {most_bytes}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def read_predictions(path: Path, most_bytes: int = MOST_BYTES) -> tuple[bytes, list[Prediction]]:
    """The text, and the answers in it: one JSON object a line."""
    text = read_result(path, most_bytes)
    try:
        lines = (json.loads(line, parse_constant=_finite, parse_float=_finite) for line in text.splitlines())
        return text, [Prediction.model_validate(line) for line in lines]
    except ValidationError as error:
        raise _broken(path, f"an answer does not fit its type: {error.errors()[0]['msg']}") from None
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"a line is not JSON: {error}") from None


def read_stamps(path: Path, most_bytes: int = MOST_BYTES) -> NDArray[np.int64]:
    """The time stamps of one launch: a row per query, nanoseconds that never go back within a row."""
    table = read_table(path, most_bytes)
    if (table[:, 1:] < table[:, :-1]).any():
        raise _broken(path, "its clock goes backwards")
    return table


def read_table(path: Path, most_bytes: int = MOST_BYTES) -> NDArray[np.int64]:
    """Rows of two or more whole numbers, none below zero; at least one row."""
    import numpy as np

    content = read_result(path, most_bytes)
    # numpy's own reader evaluates the header and believes its shape; a worker of ours writes this one form
    header = _HEADER.match(content)
    if header is None:
        raise _broken(path, "it is not a table of whole numbers")
    rows, columns = int(header["rows"]), int(header["columns"])
    body = memoryview(content)[header.end() :]
    if rows < 1 or columns < 2 or len(body) != rows * columns * 8:
        raise _broken(path, f"it has {len(body)} bytes for {rows} rows of {columns} numbers")
    table: NDArray[np.int64] = np.frombuffer(body, header["type"].decode()).astype(np.int64).reshape(rows, columns)
    if table.min() < 0:
        raise _broken(path, "it holds a number below zero")
    return table


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number")
    return value


def _broken(path: Path, reason: str) -> WorkerCrashError:
    return WorkerCrashError(
        f"the worker left a result that cannot be used: {path.name}: {reason}", file=path.name, reason=reason
    )
