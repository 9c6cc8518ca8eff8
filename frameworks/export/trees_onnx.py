"""Trees in plain form (see trees.py) -> trees.onnx, a TreeEnsembleClassifier: `python trees_onnx.py FOLDER OUT`.

Runs in our own interpreter, with `onnx`. With onnxruntime at hand it prints the largest differences to the answers.
"""

import json
import os
import sys

import numpy as np

import trees

# a file beside this one is called onnx.py
sys.path.pop(0)

from onnx import TensorProto, helper


def rounded(threshold, mode):
    """The float32 with which float32 features compare as they do with the threshold itself."""
    near = np.float32(threshold)
    if mode == "BRANCH_LEQ" and float(near) > threshold:
        return float(np.nextafter(near, np.float32(-np.inf)))
    if mode == "BRANCH_LT" and float(near) < threshold:
        return float(np.nextafter(near, np.float32(np.inf)))
    return float(near)


def node_attributes(forest):
    nodes = {
        name: [] for name in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    }
    nodes["missing_value_tracks_true"] = []
    leaves = {"treeids": [], "nodeids": [], "ids": [], "weights": []}
    for number, tree in enumerate(forest["trees"]):
        for place, left in enumerate(tree["left"]):
            is_leaf = left == -1
            nodes["treeids"].append(number)
            nodes["nodeids"].append(place)
            nodes["featureids"].append(0 if is_leaf else tree["feature"][place])
            nodes["values"].append(0.0 if is_leaf else rounded(tree["threshold"][place], forest["mode"]))
            nodes["modes"].append("LEAF" if is_leaf else forest["mode"])
            nodes["truenodeids"].append(0 if is_leaf else left)
            nodes["falsenodeids"].append(0 if is_leaf else tree["right"][place])
            nodes["missing_value_tracks_true"].append(int(tree["goes_left"][place]))
            if is_leaf:
                leaves["treeids"].append(number)
                leaves["nodeids"].append(place)
                leaves["ids"].append(tree["class"])
                leaves["weights"].append(float(tree["value"][place]))
    attributes = {"nodes_" + name: values for name, values in nodes.items()}
    attributes.update({"class_" + name: values for name, values in leaves.items()})
    return attributes


def ensemble(forest, transform, output):
    return helper.make_node(
        "TreeEnsembleClassifier",
        ["features"],
        ["label_" + output, output],
        domain="ai.onnx.ml",
        post_transform=transform,
        base_values=[float(value) for value in forest["base"]],
        classlabels_int64s=list(range(forest["classes"])),
        **node_attributes(forest),
    )


def onnx_model(forest):
    graph = helper.make_graph(
        [ensemble(forest, "SOFTMAX", "probability"), ensemble(forest, "NONE", "margin")],
        "trees",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["N", forest["features"]])],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", forest["classes"]])
            for name in ("probability", "margin")
        ],
    )
    versions = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=8)


def differences(path, folder):
    """By output: the largest difference between onnxruntime and the answers of the folder."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with np.load(os.path.join(folder, "answers.npz")) as answers:
        got = session.run(["probability", "margin"], {"features": answers["inputs"]})
        return {name: float(np.abs(mine - answers[name]).max()) for name, mine in zip(("probability", "margin"), got)}


def main():
    folder, out = sys.argv[1:3]
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(folder, "trees.json")) as file:
        forest = json.load(file)
    assert trees.margins(forest, np.zeros((1, forest["features"]), np.float32)).shape == (1, forest["classes"])
    path = os.path.join(out, "trees.onnx")
    with open(path, "wb") as file:
        file.write(onnx_model(forest).SerializeToString())
    sys.stdout.write(json.dumps(differences(path, folder)) + "\n")


if __name__ == "__main__":
    main()
