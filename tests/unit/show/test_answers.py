"""Predictions as text."""

from mlmodelscope.core.answer import Classes, ClassScore, Custom, Prediction, RawTensors, TensorFacts
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


def test_no_predictions():
    assert format_predictions([]) == ""
