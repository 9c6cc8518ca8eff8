from types import SimpleNamespace

import numpy as np

from mlmodelscope.predictors.opencvprofile import Profile


class Net:
    """Two layers, of which the second was fused into the first."""

    def setInput(self, value, name):  # noqa: N802 - OpenCV's names
        self.shape = value.shape

    def forward(self, names):
        return ["result"]

    def getPerfProfile(self):  # noqa: N802
        return 5, np.array([[5.0], [0.0]])

    def getLayerNames(self):  # noqa: N802
        return ("onnx_node!c1", "onnx_node!r1")

    def getLayer(self, name):  # noqa: N802
        blobs = [np.zeros((2, 3), np.float32)] if name.endswith("c1") else []
        return SimpleNamespace(type="Convolution" if blobs else "ReLU", blobs=blobs)

    def getLayerId(self, name):  # noqa: N802
        return 1 if name.endswith("c1") else 2

    def getLayersShapes(self, shapes):  # noqa: N802
        batch = shapes[0][0]
        return np.array([[0], [1], [2]]), [[], [[batch, 3]], [[batch, 2]]], [[[batch, 3]], [[batch, 2]], [[batch, 2]]]


def test_only_layers_that_took_time_are_told_with_the_shapes_of_their_call():
    profile = Profile(Net(), 1e6, ["x"])
    for batch in (1, 4):
        profile.set(np.zeros((batch, 3), np.float32), "")
        assert profile.forward(["y"]) == ["result"]
    calls = profile.finish()
    assert [[layer["name"] for layer in layers] for layers in calls] == [["onnx_node!c1"], ["onnx_node!c1"]]
    layer = calls[1][0]
    assert layer["nodes"] == ["c1"]
    assert layer["operator"] == "Convolution"
    assert layer["outputs"] == [{"element_type": "float32", "shape": [4, 2]}]
    assert (layer["parameter_bytes"], layer["input_bytes"], layer["output_bytes"]) == (24, 48, 32)
    assert layer["duration_ns"] <= 5000
