"""A torch.export file can hold code in more ways than one: all are refused before PyTorch reads the file."""

import json
import struct
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

from mlmodelscope.predictors.port import PredictorFault
from opening import opened
from stacks import environment_of, variables_of

pytestmark = pytest.mark.needs("registry", "pythons")

MAKE = """
import os, sys
import torch

folder = sys.argv[1]

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ModuleDict({"a-b": torch.nn.Linear(4, 4)})

    def forward(self, x):
        y = torch.einsum("bi,bj->bij", self.parts["a-b"](x), x)
        z = torch.cond(x.shape[0] > 4, lambda a: a + 1, lambda a: a - 1, (x,))
        return {"pairs": y.reshape(x.shape[0] // 2, -1), "top-1 (all)": torch.nn.functional.gelu(z, approximate="tanh")}

sizes = {0: torch.export.Dim("batch", min=2, max=64) * 2}
program = torch.export.export(Model(), (torch.zeros(6, 4),), dynamic_shapes=(sizes,))
torch.export.save(program, os.path.join(folder, "good.pt2"))
torch.save((({"a\\"": torch.zeros(6, 4)},), {}), os.path.join(folder, "odd_inputs"))

class Harmful:
    def __reduce__(self):
        return os.mkdir, (os.path.join(folder, "harm"),)

torch.save(Harmful(), os.path.join(folder, "harmful"))
"""


@pytest.fixture(scope="module")
def predictor():
    with opened("pytorch") as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("archives")
    built = environment_of("pytorch", "2.13.0")
    command = [built.python, "-I", "-c", MAKE, str(made)]
    done = subprocess.run(command, env=variables_of("pytorch", built), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return made


@pytest.fixture
def harm_of_pickles(folder):
    """What must not come to be, and what a pickle here would make."""
    path = folder / "harm"
    yield path
    assert not path.exists()


@pytest.fixture
def harm(tmp_path):
    """What must not come to be."""
    path = tmp_path / "harm"
    yield path
    assert not path.exists()


def model_of(path: Path):
    return {"graph_path": str(path), "weights_path": None, "inputs": [], "outputs": [], "threads": 1, "options": {}}


def edited(folder: Path, path: Path, change=None, **members: bytes) -> Path:
    """A copy of the good file with another program, or with members added or replaced by the end of their names."""
    with zipfile.ZipFile(folder / "good.pt2") as good, zipfile.ZipFile(path, "w") as bad:
        for name in good.namelist():
            content = good.read(name)
            if name.endswith("models/model.json") and change is not None:
                document = json.loads(content)
                change(document)
                content = json.dumps(document).encode()
            bad.writestr(name, members.get(name.rpartition("/")[2], content))
    return path


def first(document, field):
    """The first object that has the field, however deep."""
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict) and field in value:
            return value
        waiting += list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    raise AssertionError(field)


def refusal_of(predictor, path: Path) -> PredictorFault:
    with pytest.raises(PredictorFault) as caught:
        predictor.load(model_of(path))
    assert caught.value.code == "model_format"
    assert caught.value.hint
    return caught.value


def test_what_pytorch_wrote_is_read(predictor, folder):
    facts = predictor.load(model_of(folder / "good.pt2"))
    assert [layer["name"] for layer in facts["outputs"]] == ["pairs", "top-1 (all)"]
    assert predictor.predict([np.zeros((8, 4), np.float32)])[0].shape == (4, 32)


def test_an_expression_that_is_more_than_one_is_refused(predictor, folder, tmp_path, harm):
    def change(program):
        first(program, "expr_str")["expr_str"] = f"__import__('os').mkdir({str(harm)!r})"

    fault = refusal_of(predictor, edited(folder, tmp_path / "bad.pt2", change))
    assert "expr_str" in fault.message


def test_a_guard_that_is_more_than_one_is_refused(predictor, folder, tmp_path, harm):
    def change(program):
        program["guards_code"].append(f"__import__('os').mkdir({str(harm)!r}) is None")

    refusal_of(predictor, edited(folder, tmp_path / "bad.pt2", change))


def test_an_operator_that_writes_files_is_refused(predictor, folder, tmp_path, harm):
    def change(program):
        arguments = {"item": {"as_tensor": {"name": "x"}}, "filename": {"as_string": str(harm)}}
        inputs = [{"name": name, "arg": arg, "kind": 1} for name, arg in arguments.items()]
        node = {"target": "torch.ops.aten.save.default", "inputs": inputs, "outputs": [], "metadata": {}}
        program["graph_module"]["graph"]["nodes"].append(node)

    assert refusal_of(predictor, edited(folder, tmp_path / "bad.pt2", change)).fields["field"] == "target"


def test_a_name_that_is_code_is_refused(predictor, folder, tmp_path, harm):
    def change(program):
        name = f"x=__import__('os').mkdir({str(harm)!r})"
        text = json.dumps(program).replace('"name": "x"', f'"name": {json.dumps(name)}')
        program.update(json.loads(text.replace('"x": {"dtype"', f'{json.dumps(name)}: {{"dtype"')))

    refusal_of(predictor, edited(folder, tmp_path / "bad.pt2", change))


def test_a_tree_that_imports_is_refused(predictor, folder, tmp_path):
    def change(program):
        factory = {"default_factory_module": "this", "default_factory_name": "s", "dict_context": []}
        tree = {"type": "collections.defaultdict", "context": json.dumps(factory), "children_spec": []}
        first(program, "out_spec")["out_spec"] = json.dumps([1, tree])

    assert refusal_of(predictor, edited(folder, tmp_path / "bad.pt2", change)).fields["field"] == "out_spec"


def test_example_inputs_with_code_in_their_keys_are_refused(predictor, folder, tmp_path):
    odd = (folder / "odd_inputs").read_bytes()
    refusal_of(predictor, edited(folder, tmp_path / "bad.pt2", **{"model.pt": odd}))


def test_a_compiled_library_is_refused(predictor, folder, tmp_path):
    path = edited(folder, tmp_path / "bad.pt2")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("good/data/aotinductor/model/model.so", b"\x7fELF")
    assert "compiled library" in refusal_of(predictor, path).message


def repacked(folder: Path, path: Path, change, root="good") -> Path:
    """A copy of the good file with its members, by PyTorch's names for them, changed."""
    with zipfile.ZipFile(folder / "good.pt2") as good:
        members = {name.partition("/")[2]: good.read(name) for name in good.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as bad:
        for name, content in members.items():
            bad.writestr(f"{root}/{name}", content)
    return path


def add_model(members: dict[str, bytes], model: str) -> None:
    """A second model beside the first, with the first one's parts."""
    for name in [name for name in members if name.rpartition("/")[2].startswith("model")]:
        before, _, after = name.rpartition("/model")
        members[f"{before}/{model}{after}"] = members[name]


def test_a_folder_named_extra_hides_no_program(predictor, folder, tmp_path, harm):
    def change(members):
        add_model(members, "extra/model")
        program = json.loads(members["models/model.json"])
        first(program, "expr_str")["expr_str"] = f"__import__('os').mkdir({str(harm)!r})"
        members["models/extra/model.json"] = json.dumps(program).encode()

    fault = refusal_of(predictor, repacked(folder, tmp_path / "bad.pt2", change, root="extra"))
    assert fault.fields["members"] == ["models/extra/model.json"]


def test_a_model_in_a_folder_hides_no_pickle(predictor, folder, tmp_path, harm_of_pickles):
    def change(members):
        add_model(members, "sub/model")
        config = json.loads(members["data/weights/model_weights_config.json"])
        for entry in config["config"].values():
            entry.update(use_pickle=True, path_name="weight_9")
        members["data/weights/sub/model_weights_config.json"] = json.dumps(config).encode()
        members["data/weights/sub/weight_9"] = b""
        members["data/weights/weight_9"] = (folder / "harmful").read_bytes()

    fault = refusal_of(predictor, repacked(folder, tmp_path / "bad.pt2", change))
    assert fault.fields["members"] == ["models/sub/model.json"]


def test_an_ending_in_capitals_hides_no_pickle(predictor, folder, tmp_path, harm_of_pickles):
    def change(members):
        del members["data/sample_inputs/model.pt"]
        members["data/sample_inputs/model.PT"] = (folder / "harmful").read_bytes()

    assert "pickled" in refusal_of(predictor, repacked(folder, tmp_path / "bad.pt2", change)).message


def parts_of(path: Path) -> tuple[bytes, bytes, int]:
    """The members of an archive, its directory, and how many entries that has."""
    content = path.read_bytes()
    entries, size, start = struct.unpack("<HII", content[-12:-2])
    return content[:start], content[start : start + size], entries


def moved(directory: bytes, by: int) -> bytes:
    """A directory whose members begin elsewhere."""
    changed, place = bytearray(directory), 0
    while place < len(changed):
        lengths = struct.unpack_from("<HHH", changed, place + 28)
        struct.pack_into("<I", changed, place + 42, struct.unpack_from("<I", changed, place + 42)[0] + by)
        place += 46 + sum(lengths)
    return bytes(changed)


def test_a_second_directory_that_only_pytorch_sees_is_looked_at(predictor, folder, tmp_path, harm):
    def change(program):
        # the larger of the two comes first, so that no member begins before the file
        program["guards_code"] += [f"__import__('os').mkdir({str(harm)!r}) is None", " " * 100_000]

    bad, hidden, entries = parts_of(edited(folder, tmp_path / "bad.pt2", change))
    good, seen, _ = parts_of(edited(folder, tmp_path / "good.pt2"))
    assert len(hidden) == len(seen)
    # Python takes the directory that ends the file, and counts from there; PyTorch the one at the place that is told
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, entries, entries, len(hidden), len(bad), 0)
    path = tmp_path / "both.pt2"
    path.write_bytes(bad + hidden + good + moved(seen, len(bad) - len(good)) + end)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    assert refusal_of(predictor, path).fields["field"] == "guards_code"


def test_a_nesting_without_end_is_refused(predictor, folder, tmp_path):
    deep = b'{"graph_module": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    refusal_of(predictor, edited(folder, tmp_path / "bad.pt2", **{"model.json": deep}))


def test_a_program_that_unpacks_to_more_than_memory_is_refused(predictor, folder, tmp_path):
    path = tmp_path / "bad.pt2"
    with zipfile.ZipFile(folder / "good.pt2") as good, zipfile.ZipFile(path, "w") as bad:
        for name in good.namelist():
            if name.endswith("models/model.json"):
                bad.writestr(name, b" " * (257 << 20), zipfile.ZIP_DEFLATED)
            else:
                bad.writestr(name, good.read(name))
    assert "too large" in refusal_of(predictor, path).message
