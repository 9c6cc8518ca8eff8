import threading
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core import ids

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOMENTS = st.timedeltas(timedelta(0), timedelta(days=80_000)).map(lambda since: EPOCH + since)


def test_ids_are_new_well_formed_and_in_order():
    made = [ids.new_id() for _ in range(2000)]
    assert made == sorted(set(made))
    assert all(ids.is_id(one) for one in made)


def test_ids_stay_in_order_when_the_clock_is_set_back(monkeypatch):
    first = ids.new_id()
    monkeypatch.setattr("time.time_ns", lambda: 0)
    assert first < ids.new_id() < ids.new_id()


def test_two_processes_forked_within_one_millisecond_make_different_ids(monkeypatch):
    monkeypatch.setattr("time.time_ns", lambda: 0)
    monkeypatch.setattr(ids, "_last", 1 << 120)
    one = ids.new_id()
    monkeypatch.setattr(ids, "_last", 1 << 120)
    assert ids.new_id() != one


def test_threads_never_get_the_same_id():
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.extend([ids.new_id() for _ in range(500)])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 2000


def test_an_id_tells_when_it_was_made(monkeypatch):
    monkeypatch.setattr(ids, "_last", 0)
    monkeypatch.setattr("time.time_ns", lambda: 1_774_958_400_123_456_789)
    assert ids.id_time(ids.new_id()) == datetime(2026, 3, 31, 12, 0, 0, 123_000, tzinfo=UTC)


@given(MOMENTS, MOMENTS)
def test_floors_sort_as_their_moments_do(one, other):
    assert (ids.id_floor(one) <= ids.id_floor(other)) or one > other


@given(MOMENTS)
def test_a_floor_is_the_first_id_that_is_not_before_its_moment(moment):
    floor = ids.id_floor(moment)
    assert ids.is_id(floor)
    assert timedelta(0) <= ids.id_time(floor) - moment < timedelta(milliseconds=1)


@pytest.mark.parametrize("text", ["", "8" * 26, "0" * 25, "0" * 27, "i" * 26, "0" * 25 + "A", "0" * 26 + "\n"])
def test_other_text_is_no_id(text):
    assert not ids.is_id(text)
    with pytest.raises(ValueError):
        ids.id_time(text)


def test_the_hexadecimal_form_is_the_same_number():
    made = [ids.new_id() for _ in range(50)]
    forms = [ids.id_hex(one) for one in made]
    assert forms == sorted(forms)
    assert all(len(form) == 32 and int(form, 16) for form in forms)
    assert ids.id_hex("00000000000000000000000010") == f"{32:032x}"
    with pytest.raises(ValueError, match="not a record id"):
        ids.id_hex("nonsense")
