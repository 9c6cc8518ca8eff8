from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.errors import InputError, UsageError
from mlmodelscope.datasets.files import from_files
from mlmodelscope.datasets.select import select


def some(count):
    return from_files([bytes([n]) for n in range(count)])


@given(count=st.integers(2, 60), data=st.data(), seed=st.integers(-5, 5))
def test_a_choice_is_an_ordered_subset_and_grows_with_its_size(count, data, seed):
    larger = data.draw(st.integers(2, count))
    smaller = data.draw(st.integers(1, larger - 1))
    dataset = some(count)
    chosen = select(dataset, larger, seed)
    assert len(chosen) == len(chosen.ids()) == larger
    order = {name: place for place, name in enumerate(dataset.ids())}
    places = [order[name] for name in chosen.ids()]
    assert places == sorted(set(places))
    assert set(select(dataset, smaller, seed).ids()) < set(chosen.ids())
    assert select(dataset, larger, seed).ids() == chosen.ids()
    assert [sample.id for sample in chosen] == chosen.ids()
    assert chosen.get(0) == dataset.get(places[0])


def test_seeds_choose_differently():
    assert len({tuple(select(some(50), 5, seed).ids()) for seed in range(5)}) == 5


def test_all_is_the_data_set_itself():
    dataset = some(3)
    assert select(dataset, None, 1) is dataset
    assert select(dataset, 3, 1) is dataset


@pytest.mark.parametrize("samples", [0, -1, 4])
def test_a_number_that_cannot_be_is_refused(samples):
    with pytest.raises(UsageError, match="the data set has 3"):
        select(some(3), samples, 0)


def test_files_are_samples_without_labels(tmp_path):
    file = tmp_path / "a.jpg"
    file.write_bytes(b"A")
    dataset = from_files([file, str(file), b"B"])
    assert dataset.ids() == [str(file), f"{file}#2", "input-2"]
    assert [(sample.data, sample.label) for sample in dataset] == [(b"A", None), (b"A", None), (b"B", None)]
    assert from_files([file], ids=["https://example.org/a.jpg"]).ids() == ["https://example.org/a.jpg"]


def test_missing_files_are_listed(tmp_path):
    with pytest.raises(InputError, match=r"no such file: .*x\.png, .*y\.png") as caught:
        from_files([tmp_path / "x.png", tmp_path / "y.png"])
    assert caught.value.fields["missing"] == [str(Path(tmp_path, name)) for name in ("x.png", "y.png")]
    with pytest.raises(InputError, match="no input"):
        from_files([])
