from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from mlmodelscope.core.errors import ConstraintError
from mlmodelscope.core.store import HistoryQuery, parse_moment


@pytest.mark.parametrize(
    "text, expected",
    [
        ("2026-03-31", datetime(2026, 3, 31, tzinfo=UTC)),
        (" 2026-03-31T14:00 ", datetime(2026, 3, 31, 14, tzinfo=UTC)),
        ("2026-03-31T14:00:00Z", datetime(2026, 3, 31, 14, tzinfo=UTC)),
        ("2026-03-31T14:00:00+02:00", datetime(2026, 3, 31, 14, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_dates_and_times_are_read(text, expected):
    assert parse_moment(text) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "31.3.2026", "2026-02-30"])
def test_other_text_is_a_constraint_error_with_a_hint(text):
    with pytest.raises(ConstraintError) as caught:
        parse_moment(text)
    assert "2026-03-31" in caught.value.hint


@pytest.mark.parametrize("name", ["model", "framework"])
def test_a_version_without_a_name_is_refused(name):
    with pytest.raises(ValidationError, match=f"{name}_version needs {name}"):
        HistoryQuery(**{f"{name}_version": ">1"})


def test_a_moment_without_a_zone_is_refused():
    with pytest.raises(ValidationError):
        HistoryQuery(since=datetime(2026, 1, 1))  # noqa: DTZ001 - that is what is refused
