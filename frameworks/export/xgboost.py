"""Nothing -> a small XGBoost classifier (model.ubj, model.json) and what its trees answer: `python xgboost.py OUT`."""

import json
import os
import sys

import trees
from reading import write_files

# this file has the framework's own name: Python must not take it for the framework
sys.path.pop(0)

import xgboost


def forest_of(document):
    learner = document["learner"]
    parameters = learner["learner_model_param"]
    classes = max(1, int(parameters["num_class"]))
    # a number in versions before 3.1, a list with one number per class or target since
    base = json.loads(parameters["base_score"])
    base = base if isinstance(base, list) else [base]
    model = learner["gradient_booster"]["model"]
    found = []
    for tree, owner in zip(model["trees"], model["tree_info"]):
        found.append(
            {
                "class": owner,
                "left": tree["left_children"],
                "right": tree["right_children"],
                "feature": tree["split_indices"],
                "threshold": tree["split_conditions"],
                "value": tree["split_conditions"],
                "goes_left": [bool(value) for value in tree["default_left"]],
            }
        )
    return {
        "features": int(parameters["num_feature"]),
        "classes": classes,
        "base": base * classes if len(base) == 1 else base,
        "mode": "BRANCH_LT",
        "trees": found,
    }


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    values, labels = trees.data()
    settings = {"objective": "multi:softprob", "num_class": 3, "max_depth": 4, "nthread": 1, "seed": 1}
    booster = xgboost.train(settings, xgboost.DMatrix(values[:500], labels[:500]), num_boost_round=8)
    for ending in ("json", "ubj"):
        booster.save_model(os.path.join(folder, "model." + ending))
    with open(os.path.join(folder, "model.json")) as file:
        forest = forest_of(json.load(file))
    trees.write_answers(folder, forest, values[500:], "float32")
    write_files(folder, "model.ubj", outputs=["probability", "margin"], fixed=False)


if __name__ == "__main__":
    main()
