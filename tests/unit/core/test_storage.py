"""What is chosen to be removed."""

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.errors import UsageError
from mlmodelscope.core.storage import (
    HISTORY,
    LEAST_AGE_SECONDS,
    STORAGE_KINDS,
    StorageItem,
    choose_items,
    parse_age,
    parse_bytes,
)

NOW = 1_000_000_000.0
ITEMS = st.lists(
    st.builds(
        StorageItem,
        kind=st.sampled_from(STORAGE_KINDS),
        key=st.uuids().map(str),
        name=st.just(""),
        size_bytes=st.integers(0, 1000),
        used_at=st.floats(NOW - 10 * LEAST_AGE_SECONDS, NOW),
        is_needed=st.sampled_from([True, False, None]),
    )
)
KINDS = st.lists(st.sampled_from([kind for kind in STORAGE_KINDS if kind not in HISTORY]), unique=True)
AGES = st.floats(0, 9 * LEAST_AGE_SECONDS)


@given(ITEMS, KINDS, AGES)
def test_takes_all_that_is_free_and_nothing_else(items, kinds, age):
    chosen = choose_items(items, kinds, now=NOW, older_than_seconds=age)
    oldest = NOW - max(age, LEAST_AGE_SECONDS)
    free = [item for item in items if item.kind in kinds and item.used_at <= oldest and not item.is_needed]
    assert sorted(chosen, key=lambda item: item.key) == sorted(free, key=lambda item: item.key)


@given(ITEMS, KINDS, AGES, st.integers(0, 5000))
def test_takes_the_longest_unused_until_the_rest_fits(items, kinds, age, size):
    everything = choose_items(items, kinds, now=NOW, older_than_seconds=age)
    chosen = choose_items(items, kinds, now=NOW, older_than_seconds=age, max_bytes=size)
    assert chosen == everything[: len(chosen)]
    total = sum(item.size_bytes for item in items if item.kind in kinds)
    left = total - sum(item.size_bytes for item in chosen)
    assert left <= size or chosen == everything
    if chosen:
        assert left + chosen[-1].size_bytes > size


def test_what_a_record_needs_goes_only_where_that_is_asked():
    needed = StorageItem("assets", "a", "a", 1, 0.0, True)
    assert choose_items([needed], ["assets"], now=NOW, older_than_seconds=0) == []
    assert choose_items([needed], ["assets"], now=NOW, older_than_seconds=0, also_needed=True) == [needed]


@pytest.mark.parametrize("kind", HISTORY)
def test_the_history_itself_is_not_pruned(kind):
    with pytest.raises(UsageError):
        choose_items([], [kind], now=NOW, older_than_seconds=0, also_needed=True)


@pytest.mark.parametrize(
    "text, seconds",
    [("0", 0), ("30d", 30 * 86_400), ("12h", 43_200), (" 1.5H ", 5400), ("2w", 1_209_600), ("45m", 2700)],
)
def test_ages(text, seconds):
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text, size", [("0", 0), ("5GB", 5 * 10**9), ("512MiB", 2**29), ("1.5 kb", 1500)])
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "soon", "-1d", "1", "1y", "9" * 400 + "d", "nan"])
def test_what_is_no_age(text):
    with pytest.raises(UsageError):
        parse_age(text)


@pytest.mark.parametrize("text", ["", "much", "-1GB", "1XB", "9" * 400, "nan"])
def test_what_is_no_size(text):
    with pytest.raises(UsageError):
        parse_bytes(text)
