"""Nothing -> a small LightGBM classifier (model.txt) and what its trees answer: `python lightgbm.py OUT`."""

import os
import sys

import trees
from reading import write_files

# this file has the framework's own name: Python must not take it for the framework
sys.path.pop(0)

import lightgbm


def forest_of(dumped):
    classes = dumped["num_tree_per_iteration"]
    found = []
    for place, tree in enumerate(dumped["tree_info"]):
        flat = {"class": place % classes}
        for name in ("left", "right", "feature", "threshold", "value", "goes_left"):
            flat[name] = []
        add_node(flat, tree["tree_structure"])
        found.append(flat)
    return {
        "features": dumped["max_feature_idx"] + 1,
        "classes": classes,
        "base": [0.0] * classes,
        "mode": "BRANCH_LEQ",
        "trees": found,
    }


def add_node(flat, node):
    """Appends the node and all below it; answers with its place."""
    place = len(flat["left"])
    is_leaf = "leaf_value" in node
    flat["left"].append(-1)
    flat["right"].append(-1)
    flat["feature"].append(0 if is_leaf else node["split_feature"])
    flat["threshold"].append(0.0 if is_leaf else node["threshold"])
    flat["value"].append(node["leaf_value"] if is_leaf else 0.0)
    flat["goes_left"].append(False if is_leaf else missing_goes_left(node))
    if not is_leaf:
        assert node["decision_type"] == "<=", node["decision_type"]
        flat["left"][place] = add_node(flat, node["left_child"])
        flat["right"][place] = add_node(flat, node["right_child"])
    return place


def missing_goes_left(node):
    # where no row of the training data missed anything, a missing value counts as 0
    return node["default_left"] if node["missing_type"] == "NaN" else 0.0 <= node["threshold"]


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    values, labels = trees.data()
    settings = {"objective": "multiclass", "num_class": 3, "num_leaves": 12, "num_threads": 1, "seed": 1, "verbose": -1}
    booster = lightgbm.train(settings, lightgbm.Dataset(values[:500], labels[:500]), num_boost_round=8)
    booster.save_model(os.path.join(folder, "model.txt"))
    trees.write_answers(folder, forest_of(booster.dump_model()), values[500:], "float64")
    write_files(folder, "model.txt", outputs=["probability", "margin"], fixed=False)


if __name__ == "__main__":
    main()
