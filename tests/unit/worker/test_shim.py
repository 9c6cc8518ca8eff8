"""What a framework's process gives back."""

import numpy as np
import pytest

from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.worker.shim import _Host
from mlmodelscope.worker.tensors import Inbox


@pytest.mark.parametrize(
    ("items", "arrived"),
    [
        ([b"gr\xc3\xbcn", b"a"], ["gr\u00fcn", "a"]),
        (["a", "bc"], ["a", "bc"]),
        ([b"gr\xfcn", b"a"], [b"gr\xfcn", b"a"]),
    ],
    ids=["bytes that are texts", "texts", "bytes that are none"],
)
def test_texts_arrive_as_texts_and_bytes_that_are_none_as_bytes(tmp_path, items, arrived):
    output = np.array([items], object)
    (found,) = Inbox(str(tmp_path)).get(_Host(str(tmp_path))._sent([output]))
    assert found.tolist() == [arrived]
    assert output.tolist() == [items]


@pytest.mark.parametrize("item", [None, 1, "ends in NUL\0"])
def test_objects_that_would_arrive_as_others_are_refused(tmp_path, item):
    with pytest.raises(PredictorFault, match="output 1 cannot cross"):
        _Host(str(tmp_path))._sent([np.zeros(1), np.array(["text", item], object)])
