"""One query of a whole data set: order, bounds, padding, threads of their own, errors with their sample."""

import itertools
import threading
import time
from array import array

import pytest

from mlmodelscope.core.errors import InputError, SampleError
from mlmodelscope.core.sample import Sample
from mlmodelscope.measure.offline import OfflineQuery


class Numbers:
    """A data set of numbers that notices two readers at once."""

    def __init__(self, count: int, bad: int | None = None) -> None:
        self.count, self.bad = count, bad
        self.readers = self.most_readers = self.read = 0

    def __len__(self) -> int:
        return self.count

    def get(self, index: int) -> Sample:
        self.readers += 1
        self.most_readers = max(self.most_readers, self.readers)
        self.read += 1
        time.sleep(0)
        self.readers -= 1
        return Sample(f"s{index}", "bad" if index == self.bad else index, index % 3)


class Doubling:
    """Decodes a number to itself, transforms it to its double; remembers which threads used it, one at a time."""

    def __init__(self) -> None:
        self.users: set[int] = set()
        self.is_busy = False
        self.was_shared = False

    def decode(self, data):
        self.was_shared |= self.is_busy
        self.is_busy = True
        self.users.add(threading.get_ident())
        time.sleep(0)
        if data == "bad":
            self.is_busy = False
            raise InputError("not a number")
        return data

    def transform(self, decoded):
        self.is_busy = False
        return [decoded * 2]

    def batch(self, samples):
        return [[tensors[0] for tensors in samples]]

    def finish(self, outputs, count):
        return outputs[0][:count]


def run(dataset: Numbers, batch_size: int = 4, threads: int = 2):
    preparers = [Doubling() for _ in range(threads)]
    batches: list[list[int]] = []
    rows: list[tuple[str, int]] = []

    def predict(inputs):
        batches.append(inputs[0])
        return [[value + 1 for value in inputs[0]]]

    progress = array("q", [0])
    query = OfflineQuery(Doubling(), preparers, predict, itertools.count(step=10).__next__)
    times = query(
        dataset,
        batch_size,
        progress,
        lambda samples, found: rows.extend((s.id, row) for s, row in zip(samples, found, strict=True)),
    )
    return times, rows, batches, preparers, progress[0]


@pytest.mark.parametrize("batch_size", [1, 3, 4, 64, 100])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_sample_is_answered_once_in_order(batch_size, threads):
    _, rows, _, _, progress = run(Numbers(50), batch_size, threads)
    assert rows == [(f"s{i}", 2 * i + 1) for i in range(50)]
    assert progress == -(-50 // batch_size)


def test_the_last_batch_is_filled_up_and_its_copies_are_dropped():
    _, rows, batches, _, _ = run(Numbers(5), batch_size=4)
    assert batches == [[0, 2, 4, 6], [8, 8, 8, 8]]
    assert len(rows) == 5


def test_a_pipeline_is_never_used_by_two_threads_at_once_nor_by_the_predicting_one():
    _, _, _, preparers, _ = run(Numbers(200), threads=4)
    assert not any(preparer.was_shared for preparer in preparers)
    assert threading.get_ident() not in set().union(*(preparer.users for preparer in preparers))


def test_the_data_set_is_read_by_one_thread_at_a_time():
    dataset = Numbers(200)
    run(dataset, threads=4)
    assert (dataset.most_readers, dataset.read) == (1, 200)


@pytest.mark.parametrize(("batch_size", "threads"), [(1, 2), (8, 2), (4, 4)])
def test_the_set_is_never_all_in_memory(batch_size, threads):
    dataset = Numbers(1000)
    answered = 0
    most = 0

    def predict(inputs):
        nonlocal answered, most
        time.sleep(0.0001)
        most = max(most, dataset.read - answered)
        answered += len(inputs[0])
        return [inputs[0]]

    OfflineQuery(Doubling(), [Doubling() for _ in range(threads)], predict, itertools.count().__next__)(
        dataset, batch_size, array("q", [0])
    )
    assert most <= batch_size + batch_size + max(batch_size, 3 * threads)


def test_times_lie_end_to_end_and_hold_the_work_of_every_sample():
    times, _, _, _, _ = run(Numbers(10), batch_size=4)
    stamps = times.stamps()
    assert stamps == sorted(stamps)
    assert (stamps[0], stamps[-1]) == (times.start_ns, times.end_ns)
    assert len(times.work) == 20
    assert min(times.work) > 0


def test_a_sample_that_cannot_be_decoded_is_named():
    dataset = Numbers(500, bad=7)
    with pytest.raises(SampleError, match="sample s7: not a number") as caught:
        run(dataset)
    assert caught.value.fields["sample"] == "s7"
    assert dataset.read < 100, "what follows a failure is not prepared"


def test_an_error_of_the_framework_ends_the_query():
    def predict(inputs):
        raise RuntimeError("no")

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="no"):
        OfflineQuery(Doubling(), [Doubling()], predict, itertools.count().__next__)(Numbers(100), 4, array("q", [0]))
    assert threading.active_count() == before
