"""XGBoost's two formats are read alike, and a tree that leads out of itself is refused."""

import json
import struct

import pytest

from mlmodelscope.predictors.xgboostfile import read_model


def document(**changes):
    tree = {
        "tree_param": {"num_nodes": "3"},
        "left_children": [1, -1, -1],
        "right_children": [2, -1, -1],
        "parents": [2147483647, 0, 0],
        "split_indices": [1, 0, 0],
        "split_conditions": [0.5, 1.0, -1.0],
        "default_left": [1, 0, 0],
        "base_weights": [0.0, 1.0, -1.0],
        "split_type": [0, 0, 0],
        **changes,
    }
    model = {"trees": [tree], "tree_info": [0]}
    parameters = {"num_feature": "2", "num_class": "0"}
    return {"learner": {"gradient_booster": {"model": model}, "learner_model_param": parameters}, "version": [3, 2, 0]}


def ubjson(value):
    if isinstance(value, dict):
        return b"{" + b"".join(_length(key) + key.encode() + ubjson(value[key]) for key in value) + b"}"
    if isinstance(value, list) and value and all(isinstance(one, int) for one in value):
        return b"[$l#" + b"L" + struct.pack(">q", len(value)) + struct.pack(f">{len(value)}i", *value)
    if isinstance(value, list):
        return b"[" + b"".join(ubjson(one) for one in value) + b"]"
    if isinstance(value, str):
        return b"S" + _length(value) + value.encode()
    return b"l" + struct.pack(">i", value) if isinstance(value, int) else b"d" + struct.pack(">f", value)


def _length(text):
    return b"L" + struct.pack(">q", len(text))


def test_both_formats_give_the_same_document(tmp_path):
    (tmp_path / "model.json").write_text(json.dumps(document()))
    (tmp_path / "model.ubj").write_bytes(ubjson(document()))
    assert read_model(str(tmp_path / "model.json")) == read_model(str(tmp_path / "model.ubj")) == document()


@pytest.mark.parametrize(
    "changes",
    [
        {"left_children": [7, -1, -1]},
        {"right_children": [0, -1, -1]},
        {"split_indices": [2, 0, 0]},
        {"parents": [2147483647, 0, 99]},
        {"parents": [2147483647, 0, 1]},
        {"split_conditions": [0.5]},
        {"tree_param": {"num_nodes": "4"}},
        {"split_type": [161, 0, 0]},
    ],
    ids=lambda changes: json.dumps(changes),
)
def test_a_tree_that_leads_nowhere_is_refused(tmp_path, changes):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(document(**changes)))
    with pytest.raises(ValueError):
        read_model(str(path))


@pytest.mark.parametrize("cut", [0, 1, 40, -1])
def test_a_file_that_is_cut_short_is_refused(tmp_path, cut):
    path = tmp_path / "model.ubj"
    path.write_bytes(ubjson(document())[:cut])
    with pytest.raises(ValueError):
        read_model(str(path))


def test_more_behind_the_model_is_refused(tmp_path):
    path = tmp_path / "model.ubj"
    path.write_bytes(ubjson(document()) + b"}")
    with pytest.raises(ValueError, match="more behind"):
        read_model(str(path))


def test_deep_nesting_is_refused(tmp_path):
    path = tmp_path / "model.ubj"
    path.write_bytes(b"[" * 5000)
    with pytest.raises(ValueError, match="too deep"):
        read_model(str(path))


@pytest.mark.parametrize(("vectors", "is_whole"), [([0, 1], True), ([0, 2], False), ([0, -2], False)])
def test_a_leaf_of_several_targets_names_one_of_the_vectors(tmp_path, vectors, is_whole):
    path = tmp_path / "model.json"
    parameters = {"num_nodes": "3", "size_leaf_vector": "2"}
    changes = {"right_children": [2, *vectors], "tree_param": parameters, "leaf_weights": [0.1, 0.2, 0.3, 0.4]}
    path.write_text(json.dumps(document(**changes)))
    if is_whole:
        assert read_model(str(path)) == document(**changes)
    else:
        with pytest.raises(ValueError, match="leads nowhere"):
            read_model(str(path))
