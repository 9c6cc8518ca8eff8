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

# what TorchScript, torch.export and a module of the same code do with memory that is not theirs; the script's last
# argument is this text
MEMORY = """
import mmap, os, sys
sys.path[:0] = sys.argv[1:3]
import numpy as np
import torch
from mlmodelscope.predictors.pytorch import Predictor
import kinds

folder = sys.argv[2]

def files(kind):
    module = getattr(kinds, kind)().eval()
    example = torch.full((2, 4), -1.0)
    torch.jit.script(module).save(os.path.join(folder, kind + ".pt"))
    torch.export.save(torch.export.export(module, (example,)), os.path.join(folder, kind + ".pt2"))
    torch.save(module.state_dict(), os.path.join(folder, kind + ".pth"))
    shapes = {"shapes": [[None, 4]]}
    return [(".pt", {}), (".pt2", {}), (".pth", dict(shapes, factory="kinds:" + kind))]

def locked(array):
    \"\"\"The array in memory that nobody may write to, as it comes from another process.\"\"\"
    with open(os.path.join(folder, "array"), "wb") as file:
        file.write(array.tobytes())
    with open(os.path.join(folder, "array"), "rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(memory, array.dtype).reshape(array.shape)

for kind in sys.argv[3:]:
    for ending, options in files(kind):
        predictor = Predictor()
        predictor.load({"graph_path": os.path.join(folder, kind + ending), "options": options})
        given = np.full((2, 4), -1, np.float32)
        x = locked(given)
        kept = []
        for _ in range(3):
            results = predictor.predict([x])
            assert np.array_equal(x, given), (kind, ending, x)
            kept.append([array.copy() for array in results])
            places = [array.__array_interface__["data"][0] for array in results]
            assert len(set(places)) == len(places), (kind, ending)
            for array in results:
                array[:] = 7
            assert np.array_equal(x, given), (kind, ending, x)
        for later in kept[1:]:
            assert all(np.array_equal(a, b) for a, b in zip(kept[0], later)), (kind, ending, kept)
        assert isinstance(predictor.reveal([x], predictor.layer_names()[:1]), list)
print("memory is left alone")
"""
KINDS = """
import torch
from typing import Tuple

class Writes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.ReLU(inplace=True)
        self.second = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.second(self.first(x))

class Returns(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.nn.Linear(4, 4)

    def forward(self, x):
        return x

class Twice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.nn.Linear(4, 4)

    def forward(self, x) -> Tuple[torch.Tensor, torch.Tensor]:
        y = self.part(x)
        return y, y
"""
TYPES = """
import os, sys
sys.path[:0] = sys.argv[1:3]
import numpy as np
import torch
from mlmodelscope.predictors.pytorch import Predictor
import texts

path = os.path.join(sys.argv[2], "text.pt")
torch.jit.script(texts.Text().eval()).save(path)
inputs = [{"layer_name": "ids", "element_type": "int64"}]
predictor = Predictor()
facts = predictor.load({"graph_path": path, "inputs": inputs, "options": {}})
assert [layer["element_type"] for layer in facts["outputs"]] == ["unknown", "unknown"], facts
facts = predictor.load({"graph_path": path, "inputs": inputs, "options": {"shapes": [[None, 5]]}})
assert facts["outputs"] == [
    {"name": "logits", "shape": [None, 3], "element_type": "float32"},
    {"name": "best", "shape": [None], "element_type": "int64"},
], facts
results = predictor.predict([np.zeros((2, 5), np.int64)])
assert [str(array.dtype) for array in results] == ["float32", "int64"]
facts = predictor.load({"graph_path": path, "inputs": inputs, "options": {"shapes": [[None, 6]]}})
assert [layer["element_type"] for layer in facts["outputs"]] == ["unknown", "unknown"], facts

torch.jit.script(texts.Alone().eval()).save(path)
facts = predictor.load({"graph_path": path, "inputs": [], "options": {}})
assert facts["inputs"] == []
assert predictor.predict([])[0].tolist() == [1, 1]
print("types are told")
"""
TEXTS = """
import torch
from typing import Dict

class Text(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(10, 4)
        self.last = torch.nn.Linear(20, 3)

    def forward(self, ids) -> Dict[str, torch.Tensor]:
        logits = self.last(self.words(ids).flatten(1))
        return {"logits": logits, "best": logits.argmax(-1)}

class Alone(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.held = torch.nn.Parameter(torch.ones(2))

    def forward(self):
        return self.held * 1
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


def run_beside(script, folder, *arguments):
    """What a script says at the end that runs beside PyTorch, and what it complained of."""
    built = environment_of("pytorch", "2.13.0")
    command = [built.python, "-I", "-c", script, str(portable()), str(folder), *arguments]
    done = subprocess.run(command, env=variables_of("pytorch", built), capture_output=True, text=True, timeout=300)
    return done.stdout.strip(), f"{done.returncode}: {done.stderr[-3000:]}"


def test_factories_run_and_pickles_do_not(tmp_path):
    (tmp_path / "parts.py").write_text(PARTS)
    said, complaint = run_beside(FACTORIES, tmp_path)
    assert said.endswith("factories run"), complaint


@pytest.mark.parametrize("kind", ["Writes", "Returns", "Twice"])
def test_memory_of_the_caller_is_left_alone(tmp_path, kind):
    (tmp_path / "kinds.py").write_text(KINDS)
    said, complaint = run_beside(MEMORY, tmp_path, kind)
    assert said.endswith("memory is left alone"), complaint


def test_types_of_outputs_are_told_by_a_trial_or_not_at_all(tmp_path):
    (tmp_path / "texts.py").write_text(TEXTS)
    said, complaint = run_beside(TYPES, tmp_path)
    assert said.endswith("types are told"), complaint


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
