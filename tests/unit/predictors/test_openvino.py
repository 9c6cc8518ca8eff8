import sys
from pathlib import Path

import pytest

from mlmodelscope.predictors import openvino
from mlmodelscope.predictors.port import PredictorFault


class Core:
    def __init__(self, *capabilities):
        self.capabilities = capabilities

    def get_property(self, device, name):
        assert (device, name) == ("CPU", "OPTIMIZATION_CAPABILITIES")
        return list(self.capabilities)


def test_reduced_precision_is_off_unless_asked_for():
    settings = openvino._settings(Core("FP32", "BF16"), "f32", 3)
    assert settings["INFERENCE_PRECISION_HINT"] == "f32"
    assert settings["EXECUTION_MODE_HINT"] == "ACCURACY"
    assert (settings["INFERENCE_NUM_THREADS"], settings["NUM_STREAMS"]) == (3, 1)
    assert openvino._settings(Core("FP32", "BF16"), "bf16", 1)["INFERENCE_PRECISION_HINT"] == "bf16"


def test_a_precision_that_the_processor_lacks_is_refused():
    with pytest.raises(PredictorFault) as caught:
        openvino._settings(Core("FP32", "INT8", "BF16"), "f16", 1)
    assert caught.value.fields["expected"] == ["bf16", "f32"]
    assert "f16" in caught.value.message


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("f32", "float32"), ("bf16", "bfloat16"), ("i64", "int64"), ("u8", "uint8"), ("boolean", "bool"), ("string",) * 2],
)
def test_element_types_have_numpys_names(theirs, ours):
    assert openvino._type_name(theirs) == ours


def test_a_foreign_file_is_told_by_its_content(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(PredictorFault) as caught:
        openvino._read(None, str(path), None)
    assert caught.value.code == "model_format"
    assert "zip" in caught.value.fields["got"]


def test_weights_that_are_missing_are_named(tmp_path):
    path = tmp_path / "network.xml"
    path.write_text("<?xml version='1.0'?><net/>")
    with pytest.raises(PredictorFault) as caught:
        openvino._read(None, str(path), None)
    assert caught.value.fields["expected"] == str(tmp_path / "network.bin")


def test_a_file_of_another_ending_is_read_under_the_right_one(tmp_path):
    path = tmp_path / "graph.lite"
    path.write_bytes(b"\x00\x00\x00\x00TFL3")
    with openvino._with_ending(str(path), ".tflite") as named:
        assert named.endswith(".tflite")
        assert Path(named).read_bytes() == path.read_bytes()
    with openvino._with_ending(str(path), "") as named:
        assert named == str(path)


def test_the_sender_of_telemetry_is_kept_out(monkeypatch):
    monkeypatch.delitem(sys.modules, "openvino", raising=False)
    monkeypatch.delitem(sys.modules, "openvino_telemetry", raising=False)
    monkeypatch.setattr(openvino, "import_framework", lambda name, modules: sys.modules["openvino_telemetry"])
    assert openvino._import_quietly() is None
    with pytest.raises(ImportError):
        __import__("openvino_telemetry")
    monkeypatch.delitem(sys.modules, "openvino_telemetry", raising=False)
