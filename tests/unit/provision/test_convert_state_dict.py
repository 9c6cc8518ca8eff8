"""State dicts to ONNX: the graphs compute what their architectures say, and a wrong state dict is told apart."""

import hashlib
import io
import pickle
import struct
import zipfile

import numpy as np
import pytest

from mlmodelscope.core.errors import ConvertError, UnknownNameError
from mlmodelscope.provision.convert import converter

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from mlmodelscope.provision.convert.graph import GraphBuilder, GraphOutput, same_padding  # noqa: E402
from mlmodelscope.provision.convert.state_dict_to_onnx.architectures import ARCHITECTURES  # noqa: E402
from mlmodelscope.provision.convert.state_dict_to_onnx.network import Network  # noqa: E402
from mlmodelscope.provision.convert.state_dict_to_onnx.weights import Weights  # noqa: E402


class _Recorder(Weights):
    """Learns which tensors an architecture takes."""

    def __init__(self):
        super().__init__({})
        self.shapes = {}

    def take(self, name, *shape):
        self.shapes[name] = shape
        return super().take(name, *shape)


def _shapes(architecture):
    recorder = _Recorder()
    ARCHITECTURES[architecture](GraphBuilder("shapes"), recorder)
    return recorder.shapes


def _random_tensors(architecture, seed=0):
    """Weights of a size that keeps activations near one."""
    random = np.random.default_rng(seed)
    tensors = {}
    for name, shape in _shapes(architecture).items():
        values = random.standard_normal(shape, dtype=np.float32)
        if name.endswith("running_var"):
            values = np.abs(values) + np.float32(0.5)
        elif len(shape) > 1:
            values = values * np.float32(np.sqrt(2 / np.prod(shape[1:])))
        tensors[name] = values.astype(np.float32)
    return tensors


def _save_zip(path, tensors):
    """The layout of torch.save: a pickle that refers to one stored member per storage."""
    out = io.BytesIO()
    out.write(b"\x80\x02}(")
    for index, (name, values) in enumerate(tensors.items()):
        kind = {"float32": "FloatStorage", "int64": "LongStorage"}[values.dtype.name]
        strides = [step // values.itemsize for step in values.strides]
        out.write(pickle.dumps(name, 2)[2:-1])
        out.write(b"ctorch._utils\n_rebuild_tensor_v2\n((")
        out.write(pickle.dumps("storage", 2)[2:-1] + f"ctorch\n{kind}\n".encode())
        out.write(pickle.dumps(str(index), 2)[2:-1] + pickle.dumps("cpu", 2)[2:-1] + pickle.dumps(values.size, 2)[2:-1])
        out.write(b"tQ" + pickle.dumps(0, 2)[2:-1])
        out.write(pickle.dumps(tuple(values.shape), 2)[2:-1] + pickle.dumps(tuple(strides), 2)[2:-1])
        out.write(b"\x89ccollections\nOrderedDict\n)RtR")
    out.write(b"u.")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", out.getvalue())
        for index, values in enumerate(tensors.values()):
            archive.writestr(f"archive/data/{index}", values.tobytes())
        archive.writestr("archive/version", "3\n")
    return path


def _conv(x, weight, stride, pads, groups=1):
    """Convolution by its definition, NCHW; `pads` is (before, after) for both axes."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), pads, pads))
    outputs, _, kernel, _ = weight.shape
    size = (x.shape[2] - kernel) // stride + 1
    result = np.zeros((x.shape[0], outputs, size, size))
    inputs_per_group, outputs_per_group = x.shape[1] // groups, outputs // groups
    for group in range(groups):
        source = x[:, group * inputs_per_group : (group + 1) * inputs_per_group]
        chosen = slice(group * outputs_per_group, (group + 1) * outputs_per_group)
        for row in range(kernel):
            for column in range(kernel):
                window = source[:, :, row : row + size * stride : stride, column : column + size * stride : stride]
                result[:, chosen] += np.einsum(
                    "nihw,oi->nohw", window[:, :, :size, :size], weight[chosen, :, row, column]
                )
    return result


def _norm(x, tensors, name, epsilon):
    gamma, beta, mean, variance = (
        tensors[f"{name}.{part}"].astype(np.float64)[:, None, None]
        for part in ("weight", "bias", "running_mean", "running_var")
    )
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


def _resnet18(x, t):
    def block(x, name, stride):
        y = np.maximum(_norm(_conv(x, t[f"{name}.conv1.weight"], stride, (1, 1)), t, f"{name}.bn1", 1e-5), 0)
        y = _norm(_conv(y, t[f"{name}.conv2.weight"], 1, (1, 1)), t, f"{name}.bn2", 1e-5)
        if f"{name}.shortcut.0.weight" in t:
            x = _norm(_conv(x, t[f"{name}.shortcut.0.weight"], stride, (0, 0)), t, f"{name}.shortcut.1", 1e-5)
        return np.maximum(y + x, 0)

    x = np.maximum(_norm(_conv(x, t["conv1.weight"], 1, (1, 1)), t, "bn1", 1e-5), 0)
    for stage in (1, 2, 3, 4):
        x = block(block(x, f"layer{stage}.0", 1 if stage == 1 else 2), f"layer{stage}.1", 1)
    return x.mean((2, 3)) @ t["linear.weight"].T + t["linear.bias"]


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resnet")
    tensors = _random_tensors("resnet18-cifar")
    counters = {"bn1.num_batches_tracked": np.array(7, np.int64)}
    source = _save_zip(folder / "model.pt", {**tensors, **counters})
    converter("state-dict-to-onnx").convert(source, folder / "model.onnx", {"architecture": "resnet18-cifar"})
    return source, folder / "model.onnx", tensors


def _run(model, x):
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return session.run(["logits"], {"input": x})[0]


def test_resnet18_computes_what_its_definition_says(resnet):
    _, model, tensors = resnet
    x = np.random.default_rng(1).random((2, 3, 32, 32), dtype=np.float32)
    expected = _resnet18(x, tensors)
    np.testing.assert_allclose(_run(model, x), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_the_batch_dimension_is_free(resnet):
    _, model, _ = resnet
    x = np.random.default_rng(2).random((3, 3, 32, 32), dtype=np.float32)
    together = _run(model, x)
    for index in range(3):
        np.testing.assert_allclose(_run(model, x[index : index + 1])[0], together[index], rtol=1e-3, atol=1e-3)


def test_the_same_source_gives_the_same_bytes(resnet, tmp_path):
    source, model, _ = resnet
    again = tmp_path / "again.onnx"
    converter("state-dict-to-onnx").convert(source, again, {"architecture": "resnet18-cifar"})
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(model.read_bytes()).digest()


def test_one_error_lists_missing_unexpected_and_mis_shaped_tensors(resnet, tmp_path):
    tensors = dict(resnet[2])
    del tensors["bn1.weight"]
    tensors["linear.bias"] = np.zeros(7, np.float32)
    tensors["conv1.weight"] = tensors["conv1.weight"].astype(np.int64)
    tensors["head.weight"] = np.zeros(3, np.float32)
    source = _save_zip(tmp_path / "wrong.pt", tensors)
    with pytest.raises(ConvertError) as caught:
        converter("state-dict-to-onnx").convert(source, tmp_path / "out.onnx", {"architecture": "resnet18-cifar"})
    fields = caught.value.fields
    assert fields["missing"] == ["bn1.weight"]
    assert fields["unexpected"] == ["head.weight"]
    assert len(fields["mis_shaped"]) == 2
    assert "linear.bias is [7], expected [10]" in caught.value.message
    assert "conv1.weight is int64" in caught.value.message
    assert not (tmp_path / "out.onnx").exists()


def test_the_architecture_must_be_named_and_known(tmp_path):
    convert = converter("state-dict-to-onnx").convert
    with pytest.raises(ConvertError, match="architecture") as caught:
        convert(tmp_path / "m.pt", tmp_path / "o.onnx", {})
    assert "efficientnet-lite0" in caught.value.hint
    with pytest.raises(UnknownNameError) as unknown:
        convert(tmp_path / "m.pt", tmp_path / "o.onnx", {"architecture": "efficientnet-light0"})
    assert "efficientnet-lite0" in unknown.value.fields["near"]


def test_a_state_dict_needs_no_companions(tmp_path):
    assert converter("state-dict-to-onnx").companions(tmp_path / "m.pt") == []


@pytest.mark.parametrize(
    ("architecture", "blocks", "size", "parameters"),
    # Parameter counts as published for the family: 4.7, 5.4 and 6.1 million.
    [
        ("efficientnet-lite0", 16, 224, 4_652_008),
        ("efficientnet-lite1", 21, 240, 5_416_680),
        ("efficientnet-lite2", 21, 260, 6_092_072),
    ],
)
def test_efficientnet_lite_has_the_published_size(architecture, blocks, size, parameters):
    shapes = _shapes(architecture)
    trained = {name: shape for name, shape in shapes.items() if ".running_" not in name}
    assert sum(int(np.prod(shape)) for shape in trained.values()) == parameters
    assert len({name.split(".")[1] for name in shapes if name.startswith("_blocks.")}) == blocks
    graph, weights = GraphBuilder("size"), Weights(_random_tensors(architecture))
    output = ARCHITECTURES[architecture](graph, weights)
    weights.check(architecture)
    session = onnxruntime.InferenceSession(graph.finish([output]), providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape[1:] == [3, size, size]
    assert session.get_outputs()[0].shape[1:] == [1000]


@pytest.mark.parametrize(("size", "kernel", "stride"), [(8, 3, 2), (9, 3, 2), (8, 5, 2), (7, 3, 1), (6, 1, 2)])
def test_same_padding_puts_the_odd_cell_at_the_end(size, kernel, stride):
    random = np.random.default_rng(3)
    x = random.standard_normal((1, 4, size, size), dtype=np.float32)
    weight = random.standard_normal((4, 1, kernel, kernel), dtype=np.float32)
    graph = GraphBuilder("padding")
    network = Network(graph, Weights({"c.weight": weight}), 1e-5)
    made = network.conv(network.input(4, size), "c", 4, kernel, stride, groups=4, same=True)
    assert made.size == -(-size // stride)
    model = graph.finish([GraphOutput(made.tensor, "logits", (None, 4, made.size, made.size))])
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    before, after = same_padding(size, kernel, stride)
    assert after - before in (0, 1)
    expected = _conv(x, weight, stride, (before, after), groups=4)
    np.testing.assert_allclose(session.run(None, {"input": x})[0], expected, rtol=1e-4, atol=1e-4)


def test_relu6_stops_at_six():
    graph = GraphBuilder("relu6")
    network = Network(graph, Weights({}), 1e-5)
    made = network.relu6(network.input(1, 2), "r")
    session = onnxruntime.InferenceSession(
        graph.finish([GraphOutput(made.tensor, "y", (None, 1, 2, 2))]), providers=["CPUExecutionProvider"]
    )
    x = np.array([[[[-1, 3], [6, 9]]]], np.float32)
    assert session.run(None, {"input": x})[0].tolist() == [[[[0, 3], [6, 6]]]]


def test_the_model_is_of_the_promised_opset_and_ir_version(resnet):
    import onnx

    model = onnx.load(str(resnet[1]))
    assert model.ir_version == 8
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17)]


def test_weights_are_the_originals_to_the_bit(resnet):
    import onnx

    stored = {w.name: onnx.numpy_helper.to_array(w) for w in onnx.load(str(resnet[1])).graph.initializer}
    assert struct.pack("<f", stored["linear.bias"][0]) == struct.pack("<f", resnet[2]["linear.bias"][0])
    for name, values in resnet[2].items():
        np.testing.assert_array_equal(stored[name], values)
