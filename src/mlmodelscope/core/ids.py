"""The wall clock and chance -> record ids: 26 characters that sort by time and never meet twice."""

from __future__ import annotations

import re
import secrets
import threading
import time
from datetime import UTC, datetime

__all__ = ["ID_LENGTH", "id_floor", "id_hex", "id_time", "is_id", "new_id"]

# Crockford's digits: no i, l, o, u, so that an id can be read aloud and typed; in ASCII order, so that text order is
# the order of the numbers.
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
ID_LENGTH = 26
_RANDOM_BITS = 80
_STEP_BITS = 64
_ID = re.compile(f"[0-7][{_DIGITS}]{{25}}")

_lock = threading.Lock()
_last = 0


def new_id() -> str:
    """A new id: 48 bits of milliseconds since 1970 (UTC), then 80 bits of chance.

    Each id of a process is greater than the one before, also within a millisecond and after the clock was set back.
    The step is random too, so that processes forked from one another do not count through the same numbers.
    Thread-safe.
    """
    global _last
    fresh = (time.time_ns() // 1_000_000 << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
    with _lock:
        _last = fresh if fresh > _last else _last + 1 + secrets.randbits(_STEP_BITS)
        return _format(_last)


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def id_time(record_id: str) -> datetime:
    """The moment an id was made, in UTC, to the millisecond."""
    milliseconds = _parse(record_id) >> _RANDOM_BITS
    return datetime.fromtimestamp(milliseconds // 1000, UTC).replace(microsecond=milliseconds % 1000 * 1000)


def id_hex(record_id: str) -> str:
    """The same number as 32 hexadecimal digits: the form of a trace id."""
    return f"{_parse(record_id):032x}"


def id_floor(moment: datetime) -> str:
    """The lowest id that could have been made at `moment` (with a time zone): a bound for searching by time."""
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    # whole milliseconds, rounded up: an id made in the millisecond that `moment` lies in was made before it
    milliseconds = -(-(since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds) // 1000)
    return _format(max(0, milliseconds) << _RANDOM_BITS)


def _parse(record_id: str) -> int:
    if not is_id(record_id):
        raise ValueError(f"{record_id!r} is not a record id")
    number = 0
    for digit in record_id:
        number = number << 5 | _DIGITS.index(digit)
    return number


def _format(number: int) -> str:
    return "".join(_DIGITS[number >> shift & 31] for shift in range(125, -1, -5))
