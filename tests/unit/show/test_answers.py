"""Predictions as text."""

from mlmodelscope.core.answer import Box, Boxes, Classes, ClassScore, Custom, Prediction, RawTensors, TensorFacts
from mlmodelscope.show.answers import format_predictions


def tensor(name, mean):
    return TensorFacts(
        name=name, shape=(1, 10), element_type="float32", sha256="0" * 64, minimum=None, maximum=None, mean=mean
    )


def test_every_kind_of_answer():
    answers = {
        "cat.jpg": Classes(
            classes=(
                ClassScore(index=281, label="tabby", score=0.93124),
                ClassScore(index=7, label=None, score=-12.5),
                ClassScore(index=8, label="", score=0.0),
            )
        ),
        "raw": RawTensors(tensors=(tensor("out", 0.1), tensor("0", None))),
        "own": Custom(value={"b": [1, None], "a": "ä"}),
    }
    predictions = [Prediction(sample=name, label=None, answer=answer) for name, answer in answers.items()]
    assert format_predictions(predictions) == (
        "cat.jpg\n"
        "    0.9312  tabby (281)\n"
        "  -12.5000  class (7)\n"
        "    0.0000  class (8)\n"
        "raw\n"
        "  out: float32[1, 10] mean 0.1\n"
        "  0: float32[1, 10] mean -\n"
        "own\n"
        '  {"a":"ä","b":[1,null]}'
    )


def test_boxes_below_the_limit_are_counted():
    boxes = [
        Box(index=0, label="cat", score=0.9, left=1.4, top=2.6, right=30, bottom=40),
        Box(index=7, label=None, score=0.3, left=0, top=0, right=1, bottom=1),
        Box(index=1, label="dog", score=0.2, left=0, top=0, right=1, bottom=1),
    ]
    found = Prediction(sample="a.jpg", label=None, answer=Boxes(height=50, width=60, boxes=boxes))
    nothing = Prediction(sample="b.jpg", label=None, answer=Boxes(height=5, width=6, boxes=()))
    assert format_predictions([found, nothing], min_score=0.3) == (
        "a.jpg\n"
        "    0.9000  cat (0)  from 1,3 to 30,40\n"
        "    0.3000  class (7)  from 0,0 to 1,1\n"
        "  1 more with a score below 0.3\n"
        "b.jpg\n"
        "  nothing found"
    )
    assert format_predictions([found]).count("\n") == 3


def test_no_predictions():
    assert format_predictions([]) == ""
