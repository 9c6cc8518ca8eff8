"""The service without gRPC: messages in, messages out."""

import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

pytest.importorskip("grpc", reason="gRPC is not installed: pip install 'mlmodelscope[rpc]'")

from mlmodelscope.core.errors import PredictorError, WorkerCrashError
from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.rpc import predictor_pb2 as messages
from mlmodelscope.rpc.channel import parse_address
from mlmodelscope.rpc.faults import from_message, to_message
from mlmodelscope.rpc.server import Service
from mlmodelscope.rpc.shared import OfferedFile


class Recording:
    """Remembers what it was given."""

    name, packages, environment, formats = "recording", (), {}, ()
    made: ClassVar[list] = []

    def __init__(self):
        self.is_unloaded = False
        Recording.made.append(self)

    def load(self, model):
        self.model = model
        self.content = Path(model["graph_path"]).read_bytes() if model["graph_path"] else None
        layer = {"name": "x", "shape": [None, 3], "element_type": "float32"}
        odd = {"name": "y", "shape": None, "element_type": "string"}
        return {"framework": "recording", "version": "1", "threads": 2, "inputs": [layer], "outputs": [odd]}

    def predict(self, inputs):
        return inputs

    def unload(self):
        self.is_unloaded = True


@pytest.fixture
def made():
    Recording.made = []
    return Recording.made


def test_the_model_reaches_the_predictor_as_it_is_written(made, tmp_path):
    (tmp_path / "net.bin").write_bytes(b"net")
    request = messages.OpenRequest(
        graph_path=str(tmp_path / "net.bin"),
        inputs=[messages.LayerChoice(name="a", element_type="uint8"), messages.LayerChoice(index=0)],
        outputs=[messages.LayerChoice()],
        threads=3,
        options_json='{"level": [1, null]}',
    )
    handle = Service(Recording).load(request)
    assert made[0].model == {
        "graph_path": str(tmp_path / "net.bin"),
        "weights_path": None,
        "inputs": [{"layer_name": "a", "element_type": "uint8"}, {"layer_name": 0, "element_type": None}],
        "outputs": [{"layer_name": None, "element_type": None}],
        "threads": 3,
        "options": {"level": [1, None]},
    }
    assert not handle.HasField("fault")
    assert (handle.facts.device, handle.facts.threads, list(handle.facts.inputs[0].shape)) == ("unknown", 2, [-1, 3])
    assert handle.facts.outputs[0].is_unranked


def test_uploaded_files_live_as_long_as_the_model(made):
    request = messages.OpenRequest(graph_path="../../etc/net.onnx", graph=b"uploaded", threads=1)
    service = Service(Recording)
    handle = service.load(request)
    path = made[0].model["graph_path"]
    assert made[0].content == b"uploaded"
    assert path.endswith("/graph.onnx")
    assert Path(path).read_bytes() == b"uploaded"
    service.unload(handle)
    assert made[0].is_unloaded
    assert not Path(path).exists()


def test_what_fails_to_load_leaves_nothing(made, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(Recording, "load", lambda self, model: 1 / 0)
    handle = Service(Recording).load(messages.OpenRequest(graph_path="a.b", graph=b"uploaded", threads=1))
    assert handle.fault.message == "the predictor failed: ZeroDivisionError: division by zero"
    assert made[0].is_unloaded
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_even_be_made_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    service = Service(lambda: 1 / 0)
    assert service.load(messages.OpenRequest(graph_path="a.b", graph=b"uploaded", threads=1)).HasField("fault")
    assert list(tmp_path.iterdir()) == []


def test_the_model_that_was_not_used_for_longest_makes_room(made):
    now = [0.0]
    service = Service(Recording, most_models=2, clock=lambda: now[0])
    first = service.load(messages.OpenRequest(threads=1))
    now[0] = 1.0
    second = service.load(messages.OpenRequest(threads=1))
    now[0] = 2.0
    service.predict(messages.PredictRequest(id=first.id))
    assert "10 minutes" in service.load(messages.OpenRequest(threads=1)).fault.hint
    now[0] = 601.0
    assert not service.load(messages.OpenRequest(threads=1)).HasField("fault")
    assert [one.is_unloaded for one in made] == [False, True, False]
    answer = service.predict(messages.PredictRequest(id=second.id))
    assert "no model is loaded" in answer.fault.message
    # the rest was used less than ten minutes ago
    assert service.load(messages.OpenRequest(threads=1)).HasField("fault")


def test_a_model_is_as_old_as_its_last_use_and_loading_is_one(made, monkeypatch):
    now = [0.0]
    loads = Recording.load

    def slowly(self, model):
        now[0] += 3600
        return loads(self, model)

    monkeypatch.setattr(Recording, "load", slowly)
    service = Service(Recording, most_models=1, clock=lambda: now[0])
    service.load(messages.OpenRequest(threads=1))
    assert service.load(messages.OpenRequest(threads=1)).HasField("fault")
    assert not made[0].is_unloaded


@pytest.mark.parametrize("is_failing", [False, True])
def test_the_models_of_clients_that_are_gone_are_freed(made, monkeypatch, tmp_path, is_failing):
    def unload(self):
        self.is_unloaded = True
        if is_failing:
            raise RuntimeError("no")

    monkeypatch.setattr(Recording, "unload", unload)
    service = Service(Recording, folder=str(tmp_path), most_models=2)
    files = [OfferedFile.make(str(tmp_path), 1 << 22) for _ in range(2)]
    handles = [service.load(messages.OpenRequest(threads=1, shared=file.described())) for file in files]
    service.drop_abandoned()
    assert [one.is_unloaded for one in made] == [False, False]
    files[0].close()
    service.drop_abandoned()
    assert [one.is_unloaded for one in made] == [True, False]
    assert service.predict(messages.PredictRequest(id=handles[0].id)).HasField("fault")
    assert not service.predict(messages.PredictRequest(id=handles[1].id)).HasField("fault")
    files[1].close()


@pytest.mark.parametrize("kind", [PredictorError, WorkerCrashError])
def test_an_error_of_our_own_is_told_by_its_message(kind):
    fault = to_message(kind("the framework's process ended", hint="look", signal="SIGSEGV"))
    assert (fault.code, fault.message, fault.hint) == ("predictor_failed", "the framework's process ended", "look")
    assert json.loads(fault.fields_json) == {"signal": "SIGSEGV"}


def test_an_unknown_handle_is_closed_already():
    assert not Service(Recording).unload(messages.ModelHandle(id="nobody")).HasField("fault")


def test_closing_unloads_every_model(made):
    service = Service(Recording)
    for _ in range(3):
        service.load(messages.OpenRequest(threads=1))
    service.close()
    assert [one.is_unloaded for one in made] == [True, True, True]


@pytest.mark.parametrize(
    "tensor",
    [
        messages.Tensor(element_type="float32", shape=[2], data=bytes(4)),
        messages.Tensor(element_type="float32", shape=[1], region=messages.Region(offset=64, size=4)),
        messages.Tensor(),
    ],
)
def test_an_input_that_does_not_add_up_is_refused(tensor):
    service = Service(Recording)
    handle = service.load(messages.OpenRequest(threads=1))
    answer = service.predict(messages.PredictRequest(id=handle.id, inputs=[tensor]))
    assert answer.fault.code == "shape_mismatch"


def test_inputs_may_be_written_to(monkeypatch):
    monkeypatch.setattr(Recording, "predict", lambda self, inputs: [np.add(inputs[0], 1, out=inputs[0])])
    service = Service(Recording)
    handle = service.load(messages.OpenRequest(threads=1))
    tensor = messages.Tensor(element_type="float32", shape=[1], data=np.float32([1]).tobytes())
    answer = service.predict(messages.PredictRequest(id=handle.id, inputs=[tensor]))
    assert answer.outputs[0].data == np.float32([2]).tobytes()


def test_broken_options_are_refused():
    handle = Service(Recording).load(messages.OpenRequest(threads=1, options_json="{"))
    assert "options_json" in handle.fault.message


@pytest.mark.parametrize("fields", ["{", "[1]", "[" * 100_000])
def test_a_fault_whose_fields_are_garbage_is_told_without_them(fields):
    told = from_message(messages.Fault(code="model_format", message="no", fields_json=fields), "the program")
    assert (told.code, told.message, told.fields) == ("model_format", "no", {})


def test_a_fault_comes_back_with_all_that_it_says():
    fault = PredictorFault("shape_mismatch", "no", hint="do", expected=[None, 3], got=[1])
    back = from_message(to_message(fault), "somewhere")
    assert (back.code, back.message, back.hint, back.fields) == (fault.code, "no", "do", fault.fields)
    assert json.loads(to_message(fault).fields_json) == fault.fields


@pytest.mark.parametrize(
    "text, parsed",
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
        ("some-host.example:0", ("some-host.example", 0)),
        ("unix:/run/a.sock", ("/run/a.sock", None)),
        ("unix:///run/a.sock", ("/run/a.sock", None)),
        ("unix:a.sock", ("a.sock", None)),
    ],
)
def test_addresses(text, parsed):
    assert parse_address(text) == parsed


@pytest.mark.parametrize(
    "text", ["", "host", "host:", "host:port", "host:65536", "::1:80", "unix:", "unix:" + "a" * 108]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError):
        parse_address(text)
