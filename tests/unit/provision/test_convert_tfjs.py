"""TensorFlow.js layers models to ONNX: each layer computes what Keras defines, checked against plain numpy."""

import hashlib
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mlmodelscope.core.errors import ConvertError
from mlmodelscope.provision.convert import converter

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

RANDOM = np.random.default_rng(11)


def _noise(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def _entry(name, values, quantization=None):
    entry = {"name": name, "shape": list(values.shape), "dtype": "float32"}
    return entry if quantization is None else {**entry, "quantization": quantization}


def _write(folder, model, weights, *, shards=2):
    content = b"".join(values.tobytes() for values in weights.values())
    step = max(1, math.ceil(len(content) / shards))
    parts = [content[start : start + step] for start in range(0, len(content), step)]
    paths = [f"group1-shard{index + 1}of{len(parts)}.bin" for index in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        (folder / path).write_bytes(part)
    document = {
        "format": "layers-model",
        "modelTopology": {"keras_version": "2.2.4", "model_config": model},
        "weightsManifest": [{"paths": paths, "weights": [_entry(*item) for item in weights.items()]}],
    }
    (folder / "model.json").write_text(json.dumps(document))
    return folder / "model.json"


def _layer(kind, name, after=None, **config):
    inbound = [] if after is None else [[[source, 0, 0, {}] for source in after]]
    return {"class_name": kind, "name": name, "config": {"name": name, **config}, "inbound_nodes": inbound}


def _input(shape, name="input_1"):
    return _layer("InputLayer", name, batch_input_shape=[None, *shape], dtype="float32")


def _functional(layers, outputs=None, inputs=("input_1",)):
    ends = outputs or [layers[-1]["name"]]
    config = {
        "name": "m",
        "layers": layers,
        "input_layers": [[name, 0, 0] for name in inputs],
        "output_layers": [[name, 0, 0] for name in ends],
    }
    return {"class_name": "Model", "config": config}


def _session(source):
    target = source.with_suffix(".onnx")
    converter("tfjs-to-onnx").convert(source, target, {})
    return onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"])


def _run_layer(folder, kind, x, weights=None, **config):
    """The answer of a model that is one layer, for `x` or a list of inputs."""
    inputs = x if isinstance(x, list) else [x]
    names = [f"input_{index + 1}" for index in range(len(inputs))]
    layers = [_input(value.shape[1:], name) for name, value in zip(names, inputs, strict=True)]
    layers.append(_layer(kind, "out", names, **config))
    stored = {f"out/{role}": values for role, values in (weights or {}).items()}
    session = _session(_write(folder, _functional(layers, inputs=names), stored))
    return session.run(["out"], dict(zip(names, inputs, strict=True)))[0]


def _pads(size, kernel, stride, dilation, same):
    """How TensorFlow documents SAME: from the remainder, without naming the output size."""
    if not same:
        return 0, 0
    reach = (kernel - 1) * dilation + 1
    total = max(reach - (stride if size % stride == 0 else size % stride), 0)
    return total // 2, total - total // 2


def _windows(x, kernel, strides, dilation, same, fill=0.0):
    """Every window of an NHWC picture: N, rows, columns, kernel height, kernel width, channels."""
    pads = [_pads(x.shape[axis + 1], kernel[axis], strides[axis], dilation[axis], same) for axis in (0, 1)]
    x = np.pad(x.astype(np.float64), ((0, 0), *pads, (0, 0)), constant_values=fill)
    reach = [(kernel[axis] - 1) * dilation[axis] + 1 for axis in (0, 1)]
    rows = (x.shape[1] - reach[0]) // strides[0] + 1
    columns = (x.shape[2] - reach[1]) // strides[1] + 1
    result = np.empty((x.shape[0], rows, columns, *kernel, x.shape[3]))
    for row in range(rows):
        for column in range(columns):
            top, left = row * strides[0], column * strides[1]
            result[:, row, column] = x[:, top : top + reach[0] : dilation[0], left : left + reach[1] : dilation[1]]
    return result


def _close(actual, expected):
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


CONVOLUTIONS = [
    ((7, 9), (3, 3), (1, 1), (1, 1), "same"),
    ((8, 8), (3, 3), (2, 2), (1, 1), "same"),
    ((9, 8), (3, 3), (2, 2), (1, 1), "same"),
    ((8, 7), (5, 2), (2, 3), (1, 1), "same"),
    ((8, 8), (1, 1), (2, 2), (1, 1), "same"),
    ((9, 9), (3, 3), (1, 1), (2, 2), "same"),
    ((8, 9), (3, 5), (2, 1), (1, 1), "valid"),
    ((9, 9), (3, 3), (1, 1), (2, 2), "valid"),
]


@pytest.mark.parametrize(("size", "kernel", "strides", "dilation", "padding"), CONVOLUTIONS)
def test_conv2d(tmp_path, size, kernel, strides, dilation, padding):
    x, weight, bias = _noise(2, *size, 3), _noise(*kernel, 3, 4), _noise(4)
    settings = {"kernel_size": list(kernel), "strides": list(strides), "dilation_rate": list(dilation)}
    actual = _run_layer(tmp_path, "Conv2D", x, {"kernel": weight, "bias": bias}, padding=padding, **settings)
    windows = _windows(x, kernel, strides, dilation, padding == "same")
    _close(actual, np.einsum("nrchwi,hwio->nrco", windows, weight) + bias)


def test_conv2d_without_bias_in_groups_with_an_activation(tmp_path):
    x, weight = _noise(2, 6, 6, 4), _noise(3, 3, 2, 6)
    actual = _run_layer(tmp_path, "Conv2D", x, {"kernel": weight}, use_bias=False, groups=2, activation="relu")
    windows = _windows(x, (3, 3), (1, 1), (1, 1), same=False)
    halves = [
        np.einsum("nrchwi,hwio->nrco", windows[..., i : i + 2], weight[..., o : o + 3]) for i, o in ((0, 0), (2, 3))
    ]
    _close(actual, np.maximum(np.concatenate(halves, -1), 0))


@pytest.mark.parametrize(("size", "kernel", "strides", "dilation", "padding"), CONVOLUTIONS)
def test_depthwise_and_separable_conv2d(tmp_path, size, kernel, strides, dilation, padding):
    x, deep, mixing, bias = _noise(2, *size, 3), _noise(*kernel, 3, 2), _noise(1, 1, 6, 5), _noise(6)
    settings = {"strides": list(strides), "dilation_rate": list(dilation), "padding": padding}
    windows = _windows(x, kernel, strides, dilation, padding == "same")
    middle = np.einsum("nrchwi,hwim->nrcim", windows, deep).reshape(*windows.shape[:3], 6)
    actual = _run_layer(tmp_path, "DepthwiseConv2D", x, {"depthwise_kernel": deep, "bias": bias}, **settings)
    _close(actual, middle + bias)
    weights = {"depthwise_kernel": deep, "pointwise_kernel": mixing, "bias": bias[:5]}
    actual = _run_layer(tmp_path, "SeparableConv2D", x, weights, **settings)
    _close(actual, middle @ mixing[0, 0] + bias[:5])


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize(
    ("size", "pool", "strides"), [((8, 7), [2, 2], None), ((7, 8), [3, 3], [2, 2]), ((6, 6), 3, 1)]
)
def test_pooling(tmp_path, size, pool, strides, padding):
    x = _noise(2, *size, 3) - 3  # below zero: a padding of zeros would show
    kernel = tuple(pool) if isinstance(pool, list) else (pool, pool)
    steps = kernel if strides is None else tuple(strides) if isinstance(strides, list) else (strides, strides)
    windows = _windows(x, kernel, steps, (1, 1), padding == "same", fill=np.nan)
    settings = {"pool_size": pool, "strides": strides, "padding": padding}
    _close(_run_layer(tmp_path, "MaxPooling2D", x, **settings), np.nanmax(windows, (3, 4)))
    _close(_run_layer(tmp_path, "AveragePooling2D", x, **settings), np.nanmean(windows, (3, 4)))


def test_global_pooling(tmp_path):
    x = _noise(2, 5, 4, 3)
    _close(_run_layer(tmp_path, "GlobalAveragePooling2D", x), x.mean((1, 2)))
    _close(_run_layer(tmp_path, "GlobalMaxPooling2D", x), x.max((1, 2)))
    _close(_run_layer(tmp_path, "GlobalAveragePooling2D", x, keepdims=True), x.mean((1, 2), keepdims=True))


@pytest.mark.parametrize(
    ("setting", "sides"), [(2, ((2, 2), (2, 2))), ([1, 2], ((1, 1), (2, 2))), ([[0, 1], [2, 1]], ((0, 1), (2, 1)))]
)
def test_zero_padding_and_cropping(tmp_path, setting, sides):
    x = _noise(2, 6, 7, 3)
    (top, bottom), (left, right) = sides
    _close(_run_layer(tmp_path, "ZeroPadding2D", x, padding=setting), np.pad(x, ((0, 0), *sides, (0, 0))))
    _close(_run_layer(tmp_path, "Cropping2D", x, cropping=setting), x[:, top : 6 - bottom, left : 7 - right])


@pytest.mark.parametrize("shape", [(2, 5, 4, 3), (2, 3), (2, 4, 3)])
def test_batch_normalization_over_the_last_axis(tmp_path, shape):
    x, gamma, beta, mean = _noise(*shape), _noise(3), _noise(3), _noise(3)
    variance = np.abs(_noise(3)) + np.float32(0.1)
    weights = {"gamma": gamma, "beta": beta, "moving_mean": mean, "moving_variance": variance}
    normal = (x - mean) / np.sqrt(variance + 0.01)
    _close(_run_layer(tmp_path, "BatchNormalization", x, weights, epsilon=0.01, axis=[-1]), normal * gamma + beta)
    bare = {"moving_mean": mean, "moving_variance": variance}
    actual = _run_layer(tmp_path, "BatchNormalization", x, bare, epsilon=0.01, center=False, scale=False)
    _close(actual, normal)


def _softmax(x, axis=-1):
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


_ERF = np.vectorize(math.erf)
ACTIVATIONS = {
    "elu": lambda x: np.where(x > 0, x, np.exp(x) - 1),
    "exponential": np.exp,
    "gelu": lambda x: x * 0.5 * (1 + _ERF(x / math.sqrt(2))),
    "hard_sigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "linear": lambda x: x,
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "selu": lambda x: 1.05070098 * np.where(x > 0, x, 1.67326324 * (np.exp(x) - 1)),
    "sigmoid": _sigmoid,
    "softmax": _softmax,
    "softplus": lambda x: np.log1p(np.exp(x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "swish": lambda x: x * _sigmoid(x),
    "tanh": np.tanh,
}


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations_alone_and_at_the_end_of_a_layer(tmp_path, name):
    x = _noise(2, 3, 4, 5) * 4
    _close(_run_layer(tmp_path, "Activation", x, activation=name), ACTIVATIONS[name](x))
    weight = _noise(1, 1, 5, 4)
    actual = _run_layer(tmp_path, "Conv2D", x, {"kernel": weight}, use_bias=False, activation=name)
    _close(actual, ACTIVATIONS[name](x @ weight[0, 0]))


def test_rectifiers_as_layers(tmp_path):
    x = _noise(2, 3, 4, 5) * 5
    _close(_run_layer(tmp_path, "ReLU", x), np.maximum(x, 0))
    _close(_run_layer(tmp_path, "ReLU", x, max_value=6.0, negative_slope=0.0, threshold=0.0), np.clip(x, 0, 6))
    leaky = np.where(x > 0, x, x * np.float32(0.2))
    _close(_run_layer(tmp_path, "ReLU", x, negative_slope=0.2), leaky)
    _close(_run_layer(tmp_path, "ReLU", x, negative_slope=0.2, max_value=3), np.minimum(leaky, 3))
    _close(_run_layer(tmp_path, "LeakyReLU", x, alpha=0.2), leaky)
    _close(_run_layer(tmp_path, "ELU", x, alpha=0.5), np.where(x > 0, x, 0.5 * (np.exp(x) - 1)))
    slopes = _noise(1, 1, 5)
    _close(_run_layer(tmp_path, "PReLU", x, {"alpha": slopes}, shared_axes=[1, 2]), np.where(x > 0, x, x * slopes))
    _close(_run_layer(tmp_path, "Softmax", x, axis=2), _softmax(x, 2))


def test_merging_layers(tmp_path):
    a, b, c = _noise(2, 3, 4, 5), _noise(2, 3, 4, 5), _noise(2, 3, 4, 5)
    _close(_run_layer(tmp_path, "Add", [a, b, c]), a + b + c)
    _close(_run_layer(tmp_path, "Subtract", [a, b]), a - b)
    _close(_run_layer(tmp_path, "Multiply", [a, b]), a * b)
    _close(_run_layer(tmp_path, "Average", [a, b, c]), (a + b + c) / 3)
    _close(_run_layer(tmp_path, "Maximum", [a, b]), np.maximum(a, b))
    _close(_run_layer(tmp_path, "Minimum", [a, b]), np.minimum(a, b))
    _close(_run_layer(tmp_path, "Concatenate", [a, b[..., :2]], axis=-1), np.concatenate([a, b[..., :2]], -1))
    _close(_run_layer(tmp_path, "Concatenate", [a, b[:, :1]], axis=1), np.concatenate([a, b[:, :1]], 1))


def test_dense_flatten_reshape_and_rescaling(tmp_path):
    x, kernel, bias = _noise(2, 3, 4, 5), _noise(5, 6), _noise(6)
    _close(_run_layer(tmp_path, "Dense", x, {"kernel": kernel, "bias": bias}), x @ kernel + bias)
    _close(_run_layer(tmp_path, "Dense", x[:, 0, 0], {"kernel": kernel, "bias": bias}), x[:, 0, 0] @ kernel + bias)
    _close(_run_layer(tmp_path, "Dense", x[:, 0, 0], {"kernel": kernel}, use_bias=False), x[:, 0, 0] @ kernel)
    _close(_run_layer(tmp_path, "Flatten", x), x.reshape(2, 60))
    _close(_run_layer(tmp_path, "Reshape", x, target_shape=[-1, 10]), x.reshape(2, 6, 10))
    _close(_run_layer(tmp_path, "Rescaling", x, scale=2.0, offset=-1), x * 2 - 1)
    _close(_run_layer(tmp_path, "Dropout", x, rate=0.5), x)


def _small_classifier():
    """Layout must survive: conv, then flatten, with a squeeze-and-excite branch and a shared layer between."""
    weights = {
        "conv/kernel": _noise(3, 3, 3, 4),
        "conv/bias": _noise(4),
        "squeeze/kernel": _noise(4, 4),
        "squeeze/bias": _noise(4),
        "fc/kernel": _noise(3 * 3 * 8, 5) * np.float32(0.1),
        "fc/bias": _noise(5),
    }
    layers = [
        _input((5, 5, 3)),
        _layer("Conv2D", "conv", ["input_1"], strides=[2, 2], padding="same", activation="relu"),
        _layer("GlobalAveragePooling2D", "mean", ["conv"]),
        _layer("Dense", "squeeze", ["mean"], activation="sigmoid"),
        _layer("Reshape", "grow", ["squeeze"], target_shape=[1, 1, 4]),
        _layer("Multiply", "excite", ["conv", "grow"]),
        _layer("Concatenate", "both", ["excite", "conv"], axis=3),
        _layer("Dropout", "drop", ["both"], rate=0.5),
        _layer("Flatten", "flat", ["drop"]),
        _layer("Dense", "fc", ["flat"], activation="softmax"),
    ]
    return layers, weights


def _small_reference(x, w):
    windows = _windows(x, (3, 3), (2, 2), (1, 1), same=True)
    conv = np.maximum(np.einsum("nrchwi,hwio->nrco", windows, w["conv/kernel"]) + w["conv/bias"], 0)
    squeeze = _sigmoid(conv.mean((1, 2)) @ w["squeeze/kernel"] + w["squeeze/bias"])
    both = np.concatenate([conv * squeeze[:, None, None], conv], -1)
    return _softmax(both.reshape(len(x), -1) @ w["fc/kernel"] + w["fc/bias"])


def test_a_whole_functional_model_keeps_names_layout_and_a_free_batch(tmp_path):
    layers, weights = _small_classifier()
    session = _session(_write(tmp_path, _functional(layers), weights))
    (put,), (got,) = session.get_inputs(), session.get_outputs()
    assert (put.name, put.shape) == ("input_1", ["batch", 5, 5, 3])
    assert (got.name, got.shape) == ("fc", ["batch", 5])
    for batch in (1, 3):
        x = _noise(batch, 5, 5, 3)
        _close(session.run(["fc"], {"input_1": x})[0], _small_reference(x, weights))


def test_layers_may_be_listed_in_any_order(tmp_path):
    layers, weights = _small_classifier()
    session = _session(_write(tmp_path, _functional(layers[::-1], ["fc"]), weights))
    x = _noise(2, 5, 5, 3)
    _close(session.run(["fc"], {"input_1": x})[0], _small_reference(x, weights))


def test_a_picture_as_output_is_channels_last_also_beside_another_output(tmp_path):
    layers, weights = _small_classifier()
    session = _session(_write(tmp_path, _functional(layers, ["conv", "fc", "drop"]), weights))
    x = _noise(2, 5, 5, 3)
    conv, fc, _ = session.run(["conv", "fc", "drop"], {"input_1": x})
    windows = _windows(x, (3, 3), (2, 2), (1, 1), same=True)
    _close(conv, np.maximum(np.einsum("nrchwi,hwio->nrco", windows, weights["conv/kernel"]) + weights["conv/bias"], 0))
    _close(fc, _small_reference(x, weights))


@pytest.mark.parametrize("as_list", [True, False])
@pytest.mark.parametrize("with_input", [True, False])
def test_sequential_models(tmp_path, as_list, with_input):
    kernel, bias = _noise(12, 3), _noise(3)
    first = {} if with_input else {"batch_input_shape": [None, 2, 2, 3]}
    layers = [_layer("Flatten", "flat", **first), _layer("Dense", "d", activation="relu")]
    layers = [_input((2, 2, 3), "pixels"), *layers] if with_input else layers
    model = {"class_name": "Sequential", "config": layers if as_list else {"name": "s", "layers": layers}}
    session = _session(_write(tmp_path, model, {"d/kernel": kernel, "d/bias": bias}))
    x = _noise(2, 2, 2, 3)
    name = "pixels" if with_input else "flat_input"
    _close(session.run(["d"], {name: x})[0], np.maximum(x.reshape(2, 12) @ kernel + bias, 0))


def test_a_model_nested_in_another_and_a_layer_used_twice(tmp_path):
    kernel, head = _noise(4, 4), _noise(4, 2)
    inner = _functional(
        [_input((4,), "inner_in"), _layer("Dense", "twice", ["inner_in"], use_bias=False)], None, ["inner_in"]
    )
    inner_layer = {**inner, "name": "body", "inbound_nodes": [[["input_1", 0, 0, {}]], [["body", 0, 0, {}]]]}
    last = _layer("Dense", "head", ["body"], use_bias=False)
    last["inbound_nodes"] = [[["body", 1, 0, {"training": False}]]]
    weights = {"body/twice/kernel": kernel, "head/kernel": head}
    session = _session(_write(tmp_path, _functional([_input((4,)), inner_layer, last]), weights))
    x = _noise(3, 4)
    _close(session.run(["head"], {"input_1": x})[0], x @ kernel @ kernel @ head)


def test_the_connections_of_keras_3(tmp_path):
    tensors = [{"class_name": "__keras_tensor__", "config": {"keras_history": ["input_1", 0, 0]}}] * 2
    entry = _layer("InputLayer", "input_1", batch_shape=[None, 4])
    merged = {**_layer("Add", "sum"), "inbound_nodes": [{"args": [tensors], "kwargs": {}}]}
    model = _functional([entry, merged])
    model["class_name"] = "Functional"
    model["config"].update(input_layers=["input_1", 0, 0], output_layers=["sum", 0, 0])
    x = _noise(3, 4)
    _close(_session(_write(tmp_path, model, {})).run(["sum"], {"input_1": x})[0], x + x)


def test_a_model_for_pictures_of_any_size(tmp_path):
    weight = _noise(3, 3, 3, 4)
    layers = [
        _layer("InputLayer", "input_1", batch_input_shape=[None, None, None, 3], dtype="float32"),
        _layer("Conv2D", "conv", ["input_1"], strides=2, padding="same", use_bias=False),
        _layer("GlobalAveragePooling2D", "mean", ["conv"]),
    ]
    session = _session(_write(tmp_path, _functional(layers), {"conv/kernel": weight}))
    for size in ((8, 8), (7, 10)):
        x = _noise(2, *size, 3)
        windows = _windows(x, (3, 3), (2, 2), (1, 1), same=True)
        _close(session.run(None, {"input_1": x})[0], np.einsum("nrchwi,hwio->nrco", windows, weight).mean((1, 2)))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float16"])
def test_quantised_weights(tmp_path, dtype):
    kernel = _noise(4, 3)
    least, scale = (
        float(kernel.min()),
        float((kernel.max() - kernel.min()) / np.iinfo(dtype).max) if dtype[0] == "u" else 0,
    )
    stored = kernel.astype(np.float16) if dtype == "float16" else np.rint((kernel - least) / scale).astype(dtype)
    real = stored.astype(np.float32) if dtype == "float16" else (stored * scale + least).astype(np.float32)
    quantization = {"dtype": dtype} if dtype == "float16" else {"dtype": dtype, "scale": scale, "min": least}
    layers = [_input((4,)), _layer("Dense", "d", ["input_1"], use_bias=False)]
    source = _write(tmp_path, _functional(layers), {"d/kernel": kernel})
    document = json.loads(source.read_text())
    document["weightsManifest"] = [{"paths": ["q.bin"], "weights": [_entry("d/kernel", kernel, quantization)]}]
    source.write_text(json.dumps(document))
    (tmp_path / "q.bin").write_bytes(stored.tobytes())
    x = np.eye(4, dtype=np.float32)
    np.testing.assert_allclose(_session(source).run(None, {"input_1": x})[0], real, rtol=1e-6)
    assert not np.array_equal(real, kernel)


def test_companions_are_the_shards_and_the_same_source_gives_the_same_bytes(tmp_path):
    layers, weights = _small_classifier()
    source = _write(tmp_path, _functional(layers), weights, shards=3)
    assert converter("tfjs-to-onnx").companions(source) == [f"group1-shard{index}of3.bin" for index in (1, 2, 3)]
    digests = set()
    for name in ("a.onnx", "b.onnx"):
        converter("tfjs-to-onnx").convert(source, tmp_path / name, {})
        digests.add(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    assert len(digests) == 1


@pytest.mark.parametrize(
    "path",
    [
        "../x.bin",
        "/etc/passwd",
        "a/../../x",
        "C:\\x.bin",
        "a\\b",
        "",
        ".",
        "./x.bin",
        "http://h/x",
        "a//b",
        "x\x00y",
        7,
        "a/..",
    ],
)
def test_a_shard_outside_the_models_folder_is_refused(tmp_path, path):
    layers, weights = _small_classifier()
    source = _write(tmp_path, _functional(layers), weights)
    document = json.loads(source.read_text())
    document["weightsManifest"][0]["paths"] = [path]
    source.write_text(json.dumps(document))
    with pytest.raises(ConvertError, match="not beside the model"):
        converter("tfjs-to-onnx").companions(source)


def test_an_unknown_layer_is_named(tmp_path):
    source = _write(tmp_path, _functional([_input((4,)), _layer("LSTM", "memory", ["input_1"])]), {})
    with pytest.raises(ConvertError, match="LSTM") as caught:
        _session(source)
    assert caught.value.fields == {"layer": "memory", "kind": "LSTM"}


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        ("Activation", {"activation": "sine"}, "sine"),
        ("Conv2D", {"data_format": "channels_first"}, "channels_first"),
        ("Conv2D", {"padding": "causal"}, "causal"),
        ("Conv2D", {"strides": [0, 1]}, "strides"),
        ("Conv2D", {"groups": 2}, "does not fit"),
        ("ReLU", {"threshold": 1.0}, "threshold"),
        ("Reshape", {"target_shape": [7]}, "cannot make"),
        ("MaxPooling2D", {"pool_size": [9, 9]}, "smaller than the window"),
        ("Cropping2D", {"cropping": 3}, "crops more"),
        ("BatchNormalization", {"axis": 1}, "axis"),
        ("Add", {}, "two inputs"),
        ("Dense", {"use_bias": "yes"}, "use_bias"),
        ("DepthwiseConv2D", {}, "depthwise_kernel"),
    ],
)
def test_a_setting_that_cannot_be_converted_names_the_layer(tmp_path, kind, config, message):
    weights = {"out/bias": _noise(4)} | {"out/kernel": _noise(3, 4) if kind == "Dense" else _noise(3, 3, 3, 4)}
    layers = [_input((5, 5, 3)), _layer(kind, "out", ["input_1"], **config)]
    with pytest.raises(ConvertError, match=message) as caught:
        _session(_write(tmp_path, _functional(layers), weights))
    assert caught.value.fields["layer"] == "out"


def test_shards_that_are_too_short_too_long_or_absent(tmp_path):
    layers, weights = _small_classifier()
    source = _write(tmp_path, _functional(layers), weights, shards=1)
    shard = tmp_path / "group1-shard1of1.bin"
    content = shard.read_bytes()
    for wrong, message in ((content[:-1], "end before"), (content + b"x", "belong to no weight")):
        shard.write_bytes(wrong)
        with pytest.raises(ConvertError, match=message):
            _session(source)
    shard.unlink()
    with pytest.raises(ConvertError, match="cannot read"):
        _session(source)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [2**40, 2**40]},
        {"shape": [-1]},
        {"shape": "x"},
        {"dtype": "complex64"},
        {"name": 3},
        {"quantization": {"dtype": "uint4"}},
        {"quantization": {"dtype": "uint8"}},
        {"quantization": 5},
    ],
)
def test_a_wrong_weight_entry_is_refused(tmp_path, change):
    layers, weights = _small_classifier()
    source = _write(tmp_path, _functional(layers), weights)
    document = json.loads(source.read_text())
    document["weightsManifest"][0]["weights"][0].update(change)
    source.write_text(json.dumps(document))
    with pytest.raises(ConvertError):
        _session(source)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "not json",
        '{"format": "graph-model", "modelTopology": {"node": []}}',
        '{"modelTopology": {"class_name": "Model"}}',
        '{"modelTopology": {"class_name": "Model", "config": {"layers": [1]}}}',
        '{"modelTopology": {"class_name": "Sequential", "config": []}}',
        '{"modelTopology": {"class_name": "Sequential", "config": [{"class_name": "Dense", "config": {"name": "d"}}]}}',
        '{"modelTopology": {"class_name": "Wide", "config": {}}}',
        '{"modelTopology": {"class_name": "Model", "config": {}}, "weightsManifest": [3]}',
        '{"a": ' + "[" * 100_000,
        '{"a": ' + "9" * 10_000 + "}",
    ],
)
def test_a_file_that_is_no_layers_model_is_refused(tmp_path, text):
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ConvertError):
        _session(tmp_path / "model.json")


def test_a_circle_of_layers_is_refused(tmp_path):
    layers = [_input((4,)), _layer("Add", "a", ["input_1", "b"]), _layer("Activation", "b", ["a"], activation="relu")]
    with pytest.raises(ConvertError, match="nothing makes"):
        _session(_write(tmp_path, _functional(layers), {}))


def test_two_nested_layers_of_one_name_do_not_share_weights_by_mistake(tmp_path):
    def nested(name, after):
        inner = _functional([_input((4,), "i"), _layer("Dense", "same", ["i"], use_bias=False)], None, ["i"])
        return {**inner, "name": name, "inbound_nodes": [[[after, 0, 0, {}]]]}

    layers = [_input((4,)), nested("one", "input_1"), nested("two", "one")]
    with pytest.raises(ConvertError, match="two layers named 'same'"):
        _session(_write(tmp_path, _functional(layers), {"same/kernel": _noise(4, 4)}))


_DOCUMENT_VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3) | st.just([]) | st.just({})


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_damaged_description_gives_a_model_or_a_convert_error(tmp_path_factory, data):
    layers, weights = _small_classifier()
    folder = tmp_path_factory.getbasetemp()
    source = _write(folder, _functional(layers), weights)
    document = json.loads(source.read_text())
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and place[key] and data.draw(st.integers(0, 5)):
            place = place[key]
            continue
        place[key] = data.draw(_DOCUMENT_VALUES)
        break
    source.write_text(json.dumps(document))
    try:
        converter("tfjs-to-onnx").convert(source, folder / "damaged.onnx", {})
    except ConvertError:
        return
    assert (folder / "damaged.onnx").stat().st_size
