"""A LightGBM file that would end the process is refused before the library sees it."""

import pytest

from mlmodelscope.predictors.lightgbm import _checked_header
from mlmodelscope.predictors.port import PredictorFault

TREE = """Tree=0
num_leaves=3
num_cat=0
split_feature=1 0
threshold=0.5 -1.5
left_child=1 -1
right_child=-2 -3
leaf_value=0.1 0.2 0.3
is_linear=0
shrinkage=1

"""
MODEL = f"""tree
version=v4
num_class=1
num_tree_per_iteration=1
max_feature_idx=1
objective=binary sigmoid:1
tree_sizes=200

{TREE}
end of trees
"""


def written(folder, text):
    path = folder / "model.txt"
    path.write_text(text)
    return str(path)


def test_the_header_is_read(tmp_path):
    header = _checked_header(written(tmp_path, MODEL))
    assert (header["objective"], header["num_tree_per_iteration"]) == ("binary sigmoid:1", "1")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tree\nversion", "forest\nversion"),
        ("end of trees", ""),
        ("tree_sizes=200", "tree_sizes=200 200"),
        ("leaf_value=0.1 0.2 0.3", "leaf_value=0.1 0.2"),
        ("leaf_value=0.1 0.2 0.3", "leaf_value=0.1 0.2 0x"),
        ("left_child=1 -1", "left_child=0 -1"),
        ("right_child=-2 -3", "right_child=-2 -9"),
        ("split_feature=1 0", "split_feature=2 0"),
        ("threshold=0.5 -1.5", "threshold=0.5"),
        ("num_leaves=3", "num_leaves=0"),
    ],
)
def test_damage_is_refused(tmp_path, old, new):
    assert old in MODEL
    with pytest.raises(PredictorFault) as caught:
        _checked_header(written(tmp_path, MODEL.replace(old, new)))
    assert caught.value.code == "model_format"
