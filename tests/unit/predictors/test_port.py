import os

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.errors import error_classes
from mlmodelscope.predictors import port
from mlmodelscope.predictors.port import PredictorFault

X = {"name": "x", "shape": [None, 4], "element_type": "float32"}
NAMES = ["serving_default_x:0", "y", "z:1", "z:2"]


def layers(*names):
    return [{"layer_name": name} for name in names]


def test_every_code_is_one_of_our_errors():
    assert set(port.CODES) <= set(error_classes())


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "int8", "int32", "int64", "uint8", "bool", "string"])
def test_a_type_of_numpys_is_itself(name):
    assert port.plain_type(name) == name


@pytest.mark.parametrize(
    ("name", "wider"),
    [
        ("bfloat16", "float32"),
        ("float8_e4m3fn", "float32"),
        ("float6_e2m3fn", "float32"),
        ("float4_e2m1fn", "float32"),
        ("int4", "int8"),
        ("uint2", "uint8"),
    ],
)
def test_a_type_that_numpy_does_not_have_is_one_that_holds_its_numbers(name, wider):
    assert port.plain_type(name) == wider


@pytest.mark.parametrize(
    "asked, positions",
    [
        ([], [0, 1, 2, 3]),
        ([None, None], [0, 1]),
        (["y", 0], [1, 0]),
        (["serving_default_x"], [0]),
        (["y:0"], [1]),
        (["z:2", "z:1"], [3, 2]),
        ([1, None, None, 0], [1, None, None, 0]),
    ],
)
def test_layers_by_name_index_or_place(asked, positions):
    if positions.count(None):
        with pytest.raises(PredictorFault, match="asked for twice"):
            port.select_layers("input", layers(*asked), NAMES)
    else:
        assert port.select_layers("input", layers(*asked), NAMES) == positions


@pytest.mark.parametrize("layer", ["x", "z", "", 4, -1])
def test_layers_that_do_not_exist_are_listed(layer):
    with pytest.raises(PredictorFault) as caught:
        port.select_layers("output", layers(layer), NAMES)
    assert caught.value.fields["known"] == NAMES
    assert "z:1" in caught.value.hint


@given(st.permutations(range(5)))
def test_any_order_of_layers_comes_back_as_asked(order):
    names = [f"layer{index}" for index in range(5)]
    assert port.select_layers("output", layers(*order), names) == list(order)
    assert port.select_layers("output", layers(*(names[index] for index in order)), names) == list(order)


@pytest.mark.parametrize(
    "shape, value, code",
    [
        ([None, 4], np.zeros((7, 4), np.float32), None),
        ([1, 4], np.zeros((2, 4), np.float32), "batch_unsupported"),
        ([1, 4], np.zeros((2, 5), np.float32), "shape_mismatch"),
        ([None, 4], np.zeros((1, 5), np.float32), "shape_mismatch"),
        ([None, 4], np.zeros(4, np.float32), "shape_mismatch"),
        ([None, 4], np.zeros((1, 4)), "shape_mismatch"),
        ([None, 4], np.zeros((1, 4), ">f4"), "shape_mismatch"),
        ([None, 4], [[0.0] * 4], "shape_mismatch"),
        (None, np.zeros((3, 3, 3), np.float32), None),
    ],
)
def test_misfits_say_what_was_expected(shape, value, code):
    fault = port.misfit([{**X, "shape": shape}], [value])
    assert (fault and fault.code) == code
    assert fault is None or {"expected", "got"} <= set(fault.fields)


def test_the_second_input_is_looked_at_too():
    fault = port.misfit([X, {**X, "name": "second"}], [np.zeros((1, 4), np.float32), np.zeros((1, 3), np.float32)])
    assert fault.fields["layer"] == "second"
    assert port.misfit([X], []).fields["got"] == 0


def test_announced_types_are_compared_under_any_of_their_names():
    port.check_element_types([{"element_type": "Float"}], [X])
    port.check_element_types([{"element_type": None}], [X])
    with pytest.raises(PredictorFault) as caught:
        port.check_element_types([{"element_type": "uint8"}], [X])
    assert caught.value.code == "shape_mismatch"


def test_options_are_checked_by_name_and_choice():
    choices = {"delegate": ("xnnpack", "none"), "free": None}
    port.check_options("tflite", {"delegate": "none", "free": 3}, choices)
    with pytest.raises(PredictorFault, match="no option named 'delegat'"):
        port.check_options("tflite", {"delegat": "none"}, choices)
    with pytest.raises(PredictorFault) as caught:
        port.check_options("tflite", {"delegate": "gpu"}, choices)
    assert caught.value.fields["expected"] == ["xnnpack", "none"]


@pytest.mark.parametrize("threads", [0, -1, True, "2", None, 1.5])
def test_threads_are_whole_and_positive(threads):
    with pytest.raises(PredictorFault):
        port.check_threads("null", threads)


@given(st.integers(1, 8), st.sets(st.text()), st.sets(st.text()))
def test_threads_in_force_never_exceed_what_was_asked(asked, before, after):
    assert 1 <= port.threads_in_force(asked, before, after) <= asked
    assert port.threads_in_force(asked, before, before) == 1
    assert port.threads_in_force(asked, None, after) == asked


def test_an_absent_framework_says_how_to_install_it():
    with pytest.raises(PredictorFault) as caught:
        port.import_framework("tflite", ["no_such_framework.inner", "nor_this"])
    assert caught.value.code == "environment_missing"
    assert "--environment venv" in caught.value.hint


def test_a_broken_framework_is_not_called_absent(tmp_path, monkeypatch):
    (tmp_path / "half_installed_framework.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PredictorFault, match="cannot be imported: No module named 'no_such_dependency'"):
        port.import_framework("mine", ["half_installed_framework"])


def test_distribution_version_takes_the_first_present():
    assert port.distribution_version(["no-such-distribution", "pytest"]) == pytest.__version__
    assert port.distribution_version(["no-such-distribution"]) is None


def test_only_information_is_dropped_from_stderr(capfd):
    with port.quiet_stderr():
        os.write(2, b"INFO: Created a delegate.\nERROR: node 3 failed\n")
    os.write(2, b"INFO: afterwards\n")
    assert capfd.readouterr().err == "ERROR: node 3 failed\nINFO: afterwards\n"
