"""What only PyTorch does: three kinds of files, modules made by a factory, pickles that are never opened, devices."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

import networks
from mlmodelscope.predictors.port import PredictorFault
from opening import exported_model, opened
from stacks import environment_of, portable, variables_of

pytestmark = pytest.mark.needs("registry", "pythons")

X = np.array([[1, 2, 3, 4]], np.float32)

# a factory must be importable beside PyTorch, and only PyTorch writes its files, so this part runs there
FACTORIES = """
import os, sys, zipfile
sys.path[:0] = sys.argv[1:3]
import numpy as np
import torch
from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.predictors.pytorch import Predictor

folder = sys.argv[2]
predictor = Predictor()

def load(name, shapes, **options):
    path = os.path.join(folder, name)
    return predictor.load({"graph_path": path, "options": dict(options, shapes=shapes) if shapes else options})

def code_of(call):
    try:
        call()
    except PredictorFault as fault:
        return fault.code
    return None

made = torch.nn.Linear(4, 3)
torch.save(made.state_dict(), os.path.join(folder, "linear.pth"))
facts = load("linear.pth", [[None, 4]], factory="torch.nn:Linear", arguments=[4], keywords={"out_features": 3})
assert facts["outputs"] == [{"name": "output_0", "shape": [None, 3], "element_type": "float32"}], facts
x = np.ones((2, 4), np.float32)
assert np.allclose(predictor.predict([x])[0], made(torch.from_numpy(x)).detach().numpy())
assert code_of(lambda: load("linear.pth", [[None, 4]], factory="torch.nn:Linear", arguments=[4, 5])) == "model_format"
assert code_of(lambda: load("linear.pth", None, factory="torch.nn:Linear", arguments=[4, 3])) == "predictor_failed"
assert code_of(lambda: load("linear.pth", [[None, 4]], factory="absent:f")) == "environment_missing"

import parts
torch.save(parts.Aliases().state_dict(), os.path.join(folder, "aliases.pth"))
facts = load("aliases.pth", [[None, 2]], factory="parts:Aliases")
assert [layer["name"] for layer in facts["outputs"]] == ["same", "part", "weight", "deep.inner.output_0"], facts
x = np.array([[1, 2]], np.float32)
for _ in range(2):
    results = predictor.predict([x])
    assert [array.tolist() for array in results] == [[[1, 2]], [[1]], [[5, 6]], [[0.5, 1]]], results
    assert results[3].dtype == np.float32
    for array in results:
        array[:] = -1
assert x.tolist() == [[1, 2]]

class Harm(object):
    def __reduce__(self):
        return os.mkdir, (os.path.join(folder, "harm"),)

torch.save({"weight": Harm()}, os.path.join(folder, "harm.pth"))
assert code_of(lambda: load("harm.pth", [[None, 4]], factory="torch.nn:Linear", arguments=[4, 3])) == "model_format"
torch.export.save(torch.export.export(made, (torch.zeros(2, 4),)), os.path.join(folder, "good.pt2"))
with zipfile.ZipFile(os.path.join(folder, "good.pt2")) as good:
    with zipfile.ZipFile(os.path.join(folder, "harm.pt2"), "w") as bad:
        for name in good.namelist():
            harm = open(os.path.join(folder, "harm.pth"), "rb").read()
            bad.writestr(name, harm if name.endswith(".pt") else good.read(name))
assert code_of(lambda: load("harm.pt2", None)) == "model_format"
assert not os.path.exists(os.path.join(folder, "harm"))
print("factories run")
"""
PARTS = """
import torch

class Aliases(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("held", torch.tensor([[5.0, 6.0]]))

    def forward(self, x):
        return {"same": x, "part": x[:, :1], "weight": self.held, "deep": {"inner": [(x / 2).bfloat16()]}}
"""


@pytest.fixture(scope="module")
def predictor():
    with opened("pytorch") as found:
        yield found


def script_model(name, **changes):
    model = exported_model("pytorch", name, **changes)
    return {**model, "graph_path": str(Path(model["graph_path"]).with_suffix(".pt"))}


def fault_of(call):
    with pytest.raises(PredictorFault) as caught:
        call()
    return caught.value


def test_factories_run_and_pickles_do_not(tmp_path):
    built = environment_of("pytorch", "2.13.0")
    (tmp_path / "parts.py").write_text(PARTS)
    command = [built.python, "-I", "-c", FACTORIES, str(portable()), str(tmp_path)]
    done = subprocess.run(command, env=variables_of("pytorch", built), capture_output=True, text=True, timeout=300)
    assert done.stdout.strip().endswith("factories run"), done.stderr[-3000:]


def test_torchscript_and_export_give_the_same_answers(predictor):
    images = np.random.default_rng(1).standard_normal((3, 3, 32, 32), dtype=np.float32) / 20
    answers = []
    for model in (exported_model("pytorch", "convolutional"), script_model("convolutional")):
        facts = predictor.load(model)
        answers.append(predictor.predict([images])[0])
        assert facts["outputs"][0]["name"] == "p"
    np.testing.assert_allclose(*answers, rtol=1e-5, atol=1e-6)


def test_torchscript_says_what_it_does_not_know(predictor):
    facts = predictor.load(script_model("linear"))
    assert facts["inputs"] == [{"name": "x", "shape": None, "element_type": "float32"}]
    assert [layer["name"] for layer in facts["outputs"]] == ["y", "z"]
    assert fault_of(lambda: predictor.predict([np.zeros((1, 5), np.float32)])).code == "predictor_failed"


def test_stated_shapes_are_held_to(predictor):
    predictor.load(script_model("linear", options={"shapes": [[1, 4]]}))
    np.testing.assert_array_equal(predictor.predict([X])[0], X @ networks.WEIGHTS.T + networks.BIAS)
    assert fault_of(lambda: predictor.predict([np.zeros((2, 4), np.float32)])).code == "batch_unsupported"
    assert fault_of(lambda: predictor.predict([np.zeros((1, 5), np.float32)])).code == "shape_mismatch"


def test_torchscript_has_layers_of_its_own_names(predictor, tmp_path):
    predictor.load(script_model("linear"))
    names = predictor.layer_names()
    y, z = predictor.reveal([X], names)
    np.testing.assert_array_equal(z, np.maximum(y, 0))
    predictor.start_profile(str(tmp_path))
    predictor.predict([X])
    [layers] = predictor.stop_profile()
    assert [layer["operator"] for layer in layers] == ["aten::linear", "aten::relu"]
    assert [layer["nodes"] for layer in layers] == [[name] for name in names]


def test_layers_of_a_profile_do_not_overlap(predictor, tmp_path):
    predictor.load(exported_model("pytorch", "convolutional"))
    predictor.start_profile(str(tmp_path))
    predictor.predict([np.zeros((1, 3, 32, 32), np.float32)])
    [layers] = predictor.stop_profile()
    assert [layer["operator"].rpartition("::")[2] for layer in layers] == [
        *("conv2d", "relu", "conv2d", "conv2d", "add", "relu", "mean", "linear", "softmax"),
    ]
    ends = [layer["start_ns"] + layer["duration_ns"] for layer in layers]
    assert all(end <= layer["start_ns"] for end, layer in zip(ends, layers[1:], strict=False))
    assert layers[0]["inputs"][0] == {"element_type": "float32", "shape": [1, 3, 32, 32]}


def test_float32_is_float32_and_the_library_has_a_version(predictor):
    facts = predictor.load(exported_model("pytorch", "convolutional"))
    assert (facts["precision"], facts["device"], facts["provider"]) == ("float32", "cpu", "torch.export")
    assert "oneDNN 3" in facts["library"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"device": "cuda:99"}, "environment_missing"),
        ({"device": "moon"}, "predictor_failed"),
        ({"shapes": [[1, 4]]}, "predictor_failed"),
        ({"arguments": [1]}, "predictor_failed"),
    ],
)
def test_options_that_cannot_be_met_are_refused(predictor, options, code):
    assert fault_of(lambda: predictor.load(exported_model("pytorch", "linear", options=options))).code == code


def test_a_state_dict_alone_is_no_model(predictor):
    model = exported_model("pytorch", "linear")
    model["graph_path"] = str(Path(model["graph_path"]).with_suffix(".pth"))
    fault = fault_of(lambda: predictor.load(model))
    assert fault.code == "model_format"
    assert "factory" in fault.hint
