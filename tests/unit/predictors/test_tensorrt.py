"""The TensorRT predictor over fakes of its package and of CUDA that record their calls: no GPU is to be had here.

They show that the right calls come in the right order with the right values, not that NVIDIA's libraries like them.
"""

import ctypes
import json
import types

import numpy as np
import pytest

from mlmodelscope.predictors import tensorrt, tensorrtcuda
from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.predictors.tensorrtprofile import lay_out

ONNX = b"\x08\x08\x12\x04test\x3a\x00"


class FakeCuda:
    """Device memory is host memory of ctypes."""

    device = 0

    def __init__(self):
        self.blocks = {}
        self.streams = 0

    def allocate(self, size):
        block = ctypes.create_string_buffer(size)
        self.blocks[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def free(self, address):
        del self.blocks[address]

    def copy_in(self, device, host, size):
        ctypes.memmove(device, host, size)

    def copy_out(self, host, device, size):
        ctypes.memmove(host, device, size)

    def make_stream(self):
        self.streams += 1
        return 7

    def wait(self, stream):
        assert stream == 7

    def drop_stream(self, stream):
        self.streams -= 1

    def device_name(self):
        return "Fake GPU"

    def version(self):
        return "12.9"


class FakeContext:
    """y = 2 x and z = 3 x for batches up to 4."""

    def __init__(self):
        self.addresses = {}
        self.profiler = None

    def set_input_shape(self, name, shape):
        self.shape = shape
        return shape[0] <= 4

    def get_tensor_shape(self, name):
        return self.shape

    def set_tensor_address(self, name, address):
        self.addresses[name] = address

    def execute_async_v3(self, stream):
        count = int(np.prod(self.shape))
        floats = {name: (ctypes.c_float * count).from_address(at) for name, at in self.addresses.items()}
        for name, factor in (("y", 2), ("z", 3)):
            floats[name][:] = [factor * value for value in floats["x"]]
        if self.profiler:
            self.profiler.report_layer_time("conv", 0.0001)
            self.profiler.report_layer_time("relu", 0.00005)
        return True


class FakeEngine:
    num_io_tensors = 3

    def get_tensor_name(self, index):
        return "xyz"[index]

    def get_tensor_mode(self, name):
        return "in" if name == "x" else "out"

    def get_tensor_shape(self, name):
        return (-1, 2)

    def get_tensor_dtype(self, name):
        return np.float32

    def get_tensor_profile_shape(self, name, index):
        return (1, 2), (1, 2), (4, 2)

    def create_execution_context(self):
        return FakeContext()

    def create_engine_inspector(self):
        layers = [{"Outputs": [{"Format/Datatype": "Row major linear FP32"}]}]
        return types.SimpleNamespace(get_engine_information=lambda form: json.dumps({"Layers": layers}))


class FakeTensorRT(types.SimpleNamespace):
    def __init__(self):
        super().__init__(__version__="10.0.0", flags=[], ranges=[])
        self.Logger = type("Logger", (), {"ERROR": 1, "__init__": lambda self, level: None})
        self.IProfiler = type("IProfiler", (), {"__init__": lambda self: None})
        self.TensorIOMode = types.SimpleNamespace(INPUT="in", OUTPUT="out")
        self.LayerInformationFormat = types.SimpleNamespace(JSON="json")
        self.NetworkDefinitionCreationFlag = types.SimpleNamespace(EXPLICIT_BATCH=0)
        self.BuilderFlag = types.SimpleNamespace(TF32="tf32", FP16="fp16", INT8="int8")
        self.MemoryPoolType = types.SimpleNamespace(WORKSPACE="workspace")
        self.nptype = lambda kind: kind
        self.Runtime = lambda log: types.SimpleNamespace(
            deserialize_cuda_engine=lambda data: None if data == b"damaged" else FakeEngine()
        )
        self.OnnxParser = lambda network, log: types.SimpleNamespace(parse_from_file=lambda path: True, num_errors=0)

    def Builder(self, log):  # noqa: N802 - TensorRT's name
        tensor = types.SimpleNamespace(name="x", shape=(-1, 2))
        config = types.SimpleNamespace(
            set_flag=lambda flag: self.flags.append(("set", flag)),
            clear_flag=lambda flag: self.flags.append(("clear", flag)),
            set_memory_pool_limit=lambda pool, size: self.flags.append((pool, size)),
            add_optimization_profile=lambda profile: None,
            builder_optimization_level=3,
        )
        return types.SimpleNamespace(
            create_network=lambda flags: types.SimpleNamespace(num_inputs=1, get_input=lambda index: tensor),
            create_builder_config=lambda: config,
            create_optimization_profile=lambda: types.SimpleNamespace(set_shape=lambda *said: self.ranges.append(said)),
            build_serialized_network=lambda network, config: b"plan",
        )


@pytest.fixture
def cuda(monkeypatch):
    fake = FakeCuda()
    monkeypatch.setattr(tensorrt, "open_cuda", lambda device: fake)
    return fake


@pytest.fixture
def trt(monkeypatch):
    fake = FakeTensorRT()
    monkeypatch.setattr(tensorrt, "import_framework", lambda name, modules: fake)
    return fake


@pytest.fixture
def engine_file(tmp_path):
    path = tmp_path / "model.plan"
    path.write_bytes(b"ftrt and the rest")
    return str(path)


@pytest.fixture
def onnx_file(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(ONNX)
    return str(path)


def fault_of(call):
    with pytest.raises(PredictorFault) as caught:
        call()
    return caught.value


def test_an_engine_runs_with_named_tensors_and_any_batch(cuda, trt, engine_file):
    predictor = tensorrt.Predictor()
    facts = predictor.load({"graph_path": engine_file, "outputs": [{"layer_name": "z"}, {"layer_name": "y"}]})
    assert facts["device"] == "cuda:0 (Fake GPU)"
    assert (facts["precision"], facts["optimization"]) == ("float32", "as built")
    assert facts["inputs"] == [{"name": "x", "shape": [None, 2], "element_type": "float32"}]
    for batch in (1, 4, 2):
        x = np.arange(2 * batch, dtype=np.float32).reshape(batch, 2)
        z, y = predictor.predict([x])
        np.testing.assert_array_equal(y, 2 * x)
        np.testing.assert_array_equal(z, 3 * x)


@pytest.mark.parametrize(("asked", "index"), [(1, 1), ("1", 1), ("cuda:1", 1), ("cuda:0", 0)])
def test_the_gpu_goes_by_its_number_or_as_records_name_it(cuda, trt, engine_file, monkeypatch, asked, index):
    opened = []
    monkeypatch.setattr(tensorrt, "open_cuda", lambda device: opened.append(device) or cuda)
    tensorrt.Predictor().load({"graph_path": engine_file, "options": {"device": asked}})
    assert opened == [index]


@pytest.mark.parametrize("asked", ["gpu", "cuda:", -1, "cuda:x", None])
def test_another_device_is_a_fault(cuda, trt, engine_file, asked):
    fault = fault_of(lambda: tensorrt.Predictor().load({"graph_path": engine_file, "options": {"device": asked}}))
    assert (fault.code, fault.fields["option"]) == ("predictor_failed", "device")


def test_device_memory_and_stream_are_given_back(cuda, trt, engine_file):
    predictor = tensorrt.Predictor()
    predictor.load({"graph_path": engine_file})
    predictor.predict([np.ones((1, 2), np.float32)])
    predictor.predict([np.ones((3, 2), np.float32)])
    assert len(cuda.blocks) == 3
    predictor.unload()
    predictor.unload()
    assert (cuda.blocks, cuda.streams) == ({}, 0)
    assert fault_of(lambda: predictor.predict([np.ones((1, 2), np.float32)])).code == "predictor_failed"


def test_inputs_that_do_not_fit_are_refused(cuda, trt, engine_file):
    predictor = tensorrt.Predictor()
    predictor.load({"graph_path": engine_file})
    assert fault_of(lambda: predictor.predict([np.ones((1, 3), np.float32)])).code == "shape_mismatch"
    assert fault_of(lambda: predictor.predict([np.ones((1, 2))])).code == "shape_mismatch"
    fault = fault_of(lambda: predictor.predict([np.ones((5, 2), np.float32)]))
    assert (fault.code, fault.fields["expected"]) == ("batch_unsupported", [4, 2])
    np.testing.assert_array_equal(predictor.predict([np.ones((1, 2), np.float32)])[0], [[2, 2]])


def test_a_build_rounds_nothing_unless_asked(cuda, trt, onnx_file):
    facts = tensorrt.Predictor().load({"graph_path": onnx_file})
    assert trt.flags == [("clear", "tf32")]
    assert trt.ranges == [("x", (1, 2), (1, 2), (32, 2))]
    assert facts["optimization"] == "level 3"
    trt.flags.clear()
    options = {"precision": "float16", "tf32": "on", "workspace_mb": 2, "max_batch": 8}
    tensorrt.Predictor().load({"graph_path": onnx_file, "options": options})
    assert trt.flags == [("set", "tf32"), ("set", "fp16"), ("workspace", 2 << 20)]
    assert trt.ranges[-1][-1] == (8, 2)


def test_options_of_a_build_are_refused_for_an_engine(cuda, trt, engine_file):
    fault = fault_of(lambda: tensorrt.Predictor().load({"graph_path": engine_file, "options": {"tf32": "on"}}))
    assert fault.fields["option"] == "tf32"


@pytest.mark.parametrize("content", [b"damaged", b""])
def test_a_damaged_engine_is_refused(cuda, trt, tmp_path, content):
    path = tmp_path / "model.plan"
    path.write_bytes(content)
    assert fault_of(lambda: tensorrt.Predictor().load({"graph_path": str(path)})).code == "model_format"


def test_layers_lie_inside_their_call(cuda, trt, engine_file, tmp_path):
    predictor = tensorrt.Predictor()
    predictor.load({"graph_path": engine_file})
    predictor.start_profile(str(tmp_path))
    predictor.predict([np.ones((1, 2), np.float32)])
    (layers,) = predictor.stop_profile()
    assert [(layer["name"], layer["duration_ns"]) for layer in layers] == [("conv", 100), ("relu", 50)]
    assert layers[1]["start_ns"] == layers[0]["start_ns"] + 100
    predictor.predict([np.ones((1, 2), np.float32)])
    assert predictor.stop_profile() == []


def test_layers_never_reach_beyond_the_call():
    layers = lay_out([("a", 1.0), ("b", 1.0)], 1000, 1_001_000)
    assert [layer["start_ns"] for layer in layers] == [1000, 1_001_000]
    assert layers[-1]["duration_ns"] == 0
    assert lay_out([], 0, 10) is None


def library(**answers):
    return types.SimpleNamespace(**answers)


def counting(count):
    def fill(pointer):
        pointer._obj.value = count
        return 0

    return fill


@pytest.mark.parametrize(
    ("driver", "device", "words"),
    [
        (None, 0, "no NVIDIA driver"),
        (library(cuInit=lambda flags: 100), 0, "does not start (error 100)"),
        (library(cuInit=lambda flags: 0, cuDeviceGetCount=counting(0)), 0, "sees no device"),
        (library(cuInit=lambda flags: 0, cuDeviceGetCount=counting(1)), 1, "no GPU 1"),
        (library(cuInit=lambda flags: 0, cuDeviceGetCount=counting(1)), 0, "CUDA runtime is not found"),
    ],
)
def test_what_is_missing_is_said_exactly(monkeypatch, driver, device, words):
    monkeypatch.setattr(tensorrtcuda, "_load", lambda names: driver if "libcuda.so.1" in names else None)
    fault = fault_of(lambda: tensorrtcuda.open_cuda(device))
    assert fault.code == "environment_missing"
    assert words in fault.message


def test_a_stub_of_the_package_is_told_from_the_real_one(cuda, monkeypatch, engine_file):
    monkeypatch.setattr(tensorrt, "import_framework", lambda name, modules: types.ModuleType("tensorrt"))
    fault = fault_of(lambda: tensorrt.Predictor().load({"graph_path": engine_file}))
    assert (fault.code, "stub" in fault.message) == ("environment_missing", True)
