"""Trees of any framework in one plain form -> their answers, walked with numpy alone (Python 3.6 syntax).

    {"features": 12, "classes": 3, "base": [0.5, 0.5, 0.5], "mode": "BRANCH_LT" or "BRANCH_LEQ",
     "trees": [{"class": 0, "left": [...], "right": [...], "feature": [...], "threshold": [...], "value": [...],
                "goes_left": [...]}]}

A node is a place in the lists of its tree; place 0 is the root, a leaf has the left child -1. A row goes left where its
feature is less than (or equal to) the threshold; `goes_left` says where a missing one goes.
"""

import json
import os

import numpy as np

__all__ = ["data", "margins", "probabilities", "write_answers"]


def data(rows=600, features=12, classes=3):
    """Rows of three overlapping clouds and the cloud of each row: the same numbers at every call."""
    generator = np.random.RandomState(7)
    labels = generator.randint(0, classes, rows)
    centres = generator.standard_normal((classes, features)) * 1.5
    values = centres[labels] + generator.standard_normal((rows, features)) * 1.2
    return values.astype(np.float32), labels


def margins(forest, values):
    """Sums of leaves per class, float64, before any softmax."""
    sums = np.tile(np.asarray(forest["base"], np.float64), (len(values), 1))
    for tree in forest["trees"]:
        for row, sample in enumerate(values):
            sums[row, tree["class"]] += tree["value"][_leaf(tree, sample, forest["mode"])]
    return sums


def _leaf(tree, sample, mode):
    node = 0
    while tree["left"][node] != -1:
        value, threshold = sample[tree["feature"][node]], tree["threshold"][node]
        if np.isnan(value):
            is_left = tree["goes_left"][node]
        else:
            # as doubles: a float32 beside a Python float would round the threshold first
            is_left = float(value) < threshold if mode == "BRANCH_LT" else float(value) <= threshold
        node = tree["left"][node] if is_left else tree["right"][node]
    return node


def probabilities(sums):
    powers = np.exp(sums - sums.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def write_answers(folder, forest, values, element_type):
    """The trees, some rows and what the trees answer for them, as `trees.json` and `answers.npz`."""
    sums = margins(forest, values)
    with open(os.path.join(folder, "trees.json"), "w") as file:
        json.dump(forest, file)
    np.savez(
        os.path.join(folder, "answers.npz"),
        inputs=values,
        margin=sums.astype(element_type),
        probability=probabilities(sums).astype(element_type),
    )
