import json
import zipfile
from types import SimpleNamespace

import pytest

from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.predictors.pytorcharchive import check_archive

ARGUMENT = {"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}


def program(**changes):
    node = {"target": "torch.ops.aten.relu.default", "inputs": [ARGUMENT], "outputs": [], "metadata": {}}
    graph = {"inputs": [], "outputs": [], "nodes": [{**node, **changes.pop("node", {})}], "tensor_values": {}}
    return {"graph_module": {"graph": {**graph, **changes}}, "verifiers": ["TRAINING"], "torch_version": "2.13.0+cpu"}


@pytest.fixture
def archive(tmp_path):
    """Writes an archive and tells where it is."""

    def write(found, name="m/models/model.json", **members):
        path = tmp_path / "model.pt2"
        with zipfile.ZipFile(path, "w") as file:
            file.writestr(name, json.dumps(found))
            for member, content in members.items():
                file.writestr(member, content)
        return str(path)

    return write


def torch_that(load=lambda *_, **__: {}, reader=None):
    """What the check asks of PyTorch: to read pickles of tensors, and to open archives."""

    def unreadable(_):
        raise RuntimeError

    return SimpleNamespace(load=load, _C=SimpleNamespace(PyTorchFileReader=reader or unreadable))


def reader_of(members):
    """PyTorch's own reader of an archive, which takes away the folder that all members share."""
    return lambda _path: SimpleNamespace(
        get_all_records=lambda: list(members),
        get_record=members.__getitem__,
        get_record_size=lambda name: len(members[name]),
    )


def refusal_of(path, torch=None):
    with pytest.raises(PredictorFault) as caught:
        check_archive(torch or torch_that(), path)
    assert (caught.value.code, caught.value.fields["path"]) == ("model_format", path)
    assert caught.value.hint
    return caught.value


def test_what_pytorch_writes_is_read(archive):
    texts = [{"name": "msg", "arg": {"as_string": "failed for 'ge_1'\n(why)"}, "kind": 1}]
    notes = {"stack_trace": 'File "x.py", line 1\n  f(x)'}
    check_archive(torch_that(), archive(program(node={"inputs": texts, "metadata": notes})))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"node": {"target": "torch.os.system"}}, "target"),
        ({"node": {"name": "x=f()"}}, "name"),
        ({"node": {"inputs": [{"name": "a=f(), b", "arg": {}}]}}, "name"),
        ({"node": {"inputs": [{"name": "", "arg": {"as_operator": "torch.os.system"}}]}}, "as_operator"),
        ({"inputs": [{"as_string": "' + f() + '"}]}, "as_string"),
        ({"tensor_values": {"x": {"sizes": [{"as_expr": {"expr_str": "f()"}}]}}}, "expr_str"),
        # a name of the file's own must not make its value look like a note
        ({"tensor_values": {"metadata": {"as_expr": {"expr_str": "f()"}}}}, "expr_str"),
        ({"node": {"inputs": [{"name": "", "arg": {"as_string_to_argument": {'a"': {}}}}]}}, "key"),
        (
            {"node": {"inputs": [{"arg": {"as_string_to_argument": {"metadata": {"as_operator": "torch.os.x"}}}}]}},
            "as_operator",
        ),
    ],
)
def test_texts_that_could_be_code_are_refused_wherever_they_are(archive, changes, field):
    fault = refusal_of(archive(program(**changes)))
    assert fault.fields["field"] == field
    assert fault.fields["members"] == ["models/model.json"]


def test_a_program_under_any_name_and_of_the_older_kind_is_looked_at(archive):
    odd = program(node={"target": "torch.os.system"})
    refusal_of(archive(odd, name="m/models/notes"))
    refusal_of(archive(odd, name="serialized_exported_program.json"))
    check_archive(torch_that(), archive(odd, name="m/extra/models/notes"))


def test_a_folder_named_extra_hides_no_program(archive):
    odd = program(node={"target": "torch.os.system"})
    assert refusal_of(archive(odd, name="extra/models/model.json")).fields["field"] == "target"
    # PyTorch reads every program below models/, however deep
    path = archive(odd, name="extra/models/extra/model.json")
    assert refusal_of(path).fields["members"] == ["models/extra/model.json"]
    refusal_of(path, torch_that(reader=reader_of({"models/extra/model.json": json.dumps(odd).encode()})))


def test_what_is_pickled_must_be_tensors_with_plain_names(archive):
    path = archive(program(), **{"m/data/sample_inputs/model.pt": b"pickle"})
    refusal_of(path, torch_that(lambda *_, **__: (({'a"': 1},), {})))
    check_archive(torch_that(lambda *_, **__: (({"a": 1},), {})), path)

    def refuse(*_, **__):
        raise ValueError

    assert refusal_of(path, torch_that(refuse)).fields["members"] == ["data/sample_inputs/model.pt"]


@pytest.mark.parametrize("entry", [{"path_name": "weight_0", "use_pickle": True}, {"path_name": "custom_obj_0"}])
def test_what_a_list_of_weights_says_to_unpickle_is_looked_at(archive, entry):
    config = json.dumps({"config": {"a.weight": entry}})
    members = {"m/data/weights/model_weights_config.json": config, f"m/data/weights/{entry['path_name']}": b"pickle"}

    def refuse(*_, **__):
        raise ValueError

    assert "pickled" in refusal_of(archive(program(), **members), torch_that(refuse)).message


def test_what_is_pickled_is_sought_where_pytorch_seeks_it(archive):
    """In the one folder of weights, wherever the list of them is."""
    config = json.dumps({"config": {"a.weight": {"path_name": "weight_9", "use_pickle": True}}})
    folder = "m/data/weights"
    members = {f"{folder}/sub/model_weights_config.json": config, f"{folder}/sub/weight_9": b"tensors"}

    def load(file, **_):
        if file.read() != b"tensors":
            raise ValueError
        return {}

    path = archive(program(), **members, **{f"{folder}/weight_9": b"more"})
    assert refusal_of(path, torch_that(load)).fields["members"] == ["data/weights/weight_9"]


def test_case_hides_no_member(archive):
    """PyTorch's reader finds a member in any case."""

    def refuse(*_, **__):
        raise ValueError

    refusal_of(archive(program(), **{"m/data/sample_inputs/model.PT": b"pickle"}), torch_that(refuse))
    refusal_of(archive(program(), **{"m/MODELS/model.json": b"{}"}))


def test_members_that_the_two_readers_see_differently_are_refused(archive):
    good = json.dumps(program()).encode()
    both = {"models/model.json": good, "data/weights/weight_0": b""}
    assert refusal_of(archive(program()), torch_that(reader=reader_of(both))).fields["members"] == [*both][1:]
    check_archive(torch_that(reader=reader_of(both)), archive(program(), **{"m/data/weights/weight_0": b""}))


def test_a_member_that_is_there_twice_is_refused(archive):
    path = archive(program())
    with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("m/models/model.json", json.dumps(program()))
    refusal_of(path)


def test_what_only_the_loading_reader_sees_is_looked_at_too(archive):
    hidden = json.dumps(program(node={"target": "torch.os.system"})).encode()

    reader = reader_of({"models/model.json": hidden})
    assert refusal_of(archive(program()), torch_that(reader=reader)).fields["field"] == "target"
