import pytest

from mlmodelscope.store.query import MOST_WALKS, RARE, choose

MANY = list(range(MOST_WALKS + 1))


@pytest.mark.parametrize(
    "facets, sizes, expected",
    [
        ({}, {}, ("walk", "")),
        ({"scenario": [1]}, {}, ("walk", "")),
        ({"model": [1]}, {"model": RARE}, ("merge", "model")),
        ({"model": [1]}, {"model": 3}, ("read", "model")),
        ({"model": [1], "system": MANY}, {"model": RARE, "system": 10}, ("read", "system")),
        ({"model": [1, 2], "dataset": [1]}, {"model": RARE, "dataset": RARE}, ("merge", "dataset")),
        ({"model": [1, 2], "system": MANY}, {"model": RARE, "system": RARE}, ("merge", "model")),
        ({"system": MANY}, {"system": RARE}, ("walk", "")),
    ],
)
def test_the_way_that_touches_the_fewest_records_is_chosen(facets, sizes, expected):
    assert choose(facets, sizes) == expected
