import itertools

import pytest

from mlmodelscope.core.errors import InputError, SampleError
from mlmodelscope.core.sample import Sample
from mlmodelscope.measure.loops import PipelineQuery, traced_loop


class Letters:
    def get(self, position):
        return Sample("abc"[position], "abc"[position])


class Straight:
    def decode(self, data):
        if data == "c":
            raise InputError("no picture")
        return data

    def transform(self, decoded):
        return [decoded]

    def batch(self, samples):
        return samples

    def finish(self, outputs, count):
        return outputs[:count]


def traced(order, queries):
    ticks = itertools.count()
    clock = lambda: next(ticks)  # noqa: E731
    query = PipelineQuery(Straight(), lambda tensors: tensors, clock)
    progress = [0]
    return traced_loop(query, Letters(), iter(order), queries, clock, progress), progress


def test_six_stamps_per_query_and_the_samples_of_each():
    (stamps, positions), progress = traced([[0], [1], [0], [1]], 3)
    assert list(stamps) == list(range(18))
    assert positions == [[0], [1], [0]]
    assert progress == [3]


def test_a_bad_sample_is_named():
    with pytest.raises(SampleError, match="sample c: no picture"):
        traced([[0, 2]], 1)
