import ast
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import mlmodelscope.process.portable as portable
from mlmodelscope.core.answer import Classes, Custom
from mlmodelscope.core.errors import FunctionError, InputError
from mlmodelscope.core.manifest import FrameworkNeed, ModelInput, ModelManifest, ModelOutput, PythonFunction
from mlmodelscope.core.steps import Cast, Decode, Layout, Rescale, TopK
from mlmodelscope.process.functions import function_stage, functions_here
from mlmodelscope.process.labels import read_labels
from mlmodelscope.process.pipeline import compile_pipeline
from mlmodelscope.process.portable import FunctionFault

STEPS = (Decode(), Cast(element_type="float32"), Rescale(value=255.0))
IMAGE = (ModelInput(type="image", steps=STEPS),)
SCORES = (ModelOutput(type="probability"),)


def function(body):
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    return PythonFunction(name="fun", source=f"import numpy as np\ndef fun(env, data):\n{lines}\n")


def model(inputs=IMAGE, outputs=SCORES, **functions):
    return ModelManifest(
        name="m", version="1.2.0", framework=FrameworkNeed(name="null"), inputs=inputs, outputs=outputs, **functions
    )


def answer(value, labels=(), output_type="probability", **functions):
    pipeline = compile_pipeline(model(outputs=(ModelOutput(type=output_type),), **functions), labels)
    (found,) = pipeline.answers(pipeline.finish([np.asarray(value)[None]], 1))
    return found


def image():
    stream = BytesIO()
    Image.fromarray(np.arange(60, dtype=np.uint8).reshape(4, 5, 3)).save(stream, "PNG")
    return stream.getvalue()


def test_functions_run_where_the_caller_says():
    opened, loaded, given = [], [], []

    def open_functions(env):
        opened.append(env)

        def load(stage, name, source):
            loaded.append((stage, name))

            def call(data):
                given.append((stage, data))
                if stage == "postprocess":
                    raise FunctionFault(stage, "ValueError: no good", 7)
                return np.ones(3)

            return call

        return load

    functions = {"preprocess": function("never run"), "postprocess": function("never run")}
    pipeline = compile_pipeline(model(**functions), ["x"], open_functions=open_functions)
    assert [env["labels"] for env in opened] == [["x"]]
    assert loaded == [("preprocess", "fun"), ("postprocess", "fun")]
    (tensor,) = pipeline.prepare(b"data")
    assert given == [("preprocess", b"data")]
    np.testing.assert_array_equal(tensor, np.ones((1, 3), np.float32))
    with pytest.raises(FunctionError, match="the postprocess function failed on line 7: ValueError: no good"):
        pipeline.finish([np.zeros((1, 3))], 1)


def test_every_input_gets_the_same_sample():
    planes = ModelInput(type="image", element_type="uint8", steps=(Decode(color_layout="BGR"), Layout(to="CHW")))
    pipeline = compile_pipeline(model(inputs=(ModelInput(type="image", steps=STEPS), planes)))
    first, second = pipeline.prepare(image())
    assert (first.shape, first.dtype) == ((1, 4, 5, 3), np.float32)
    assert (second.shape, second.dtype) == ((1, 3, 4, 5), np.uint8)
    np.testing.assert_array_equal(second[0, 0], np.arange(60).reshape(4, 5, 3)[:, :, 2])
    samples = [pipeline.transform(pipeline.decode(image())) for _ in range(3)]
    assert [array.shape for array in pipeline.batch(samples)] == [(3, 4, 5, 3), (3, 3, 4, 5)]


def test_a_preprocess_function_takes_the_place_of_the_steps():
    pipeline = compile_pipeline(model(preprocess=function("return np.frombuffer(data, np.uint8) / 2")))
    (tensor,) = pipeline.prepare(b"\x04\x06")
    assert tensor.dtype == np.float32
    assert tensor.tolist() == [[2.0, 3.0]]


def test_functions_before_and_after_the_steps():
    pipeline = compile_pipeline(
        model(before_preprocess=function("return data[4:]"), after_preprocess=function("data += 1\nreturn data"))
    )
    (tensor,) = pipeline.prepare(b"junk" + image())
    expected = np.arange(60, dtype=np.float32).reshape(1, 4, 5, 3) / np.float32(255) + np.float32(1)
    np.testing.assert_array_equal(tensor, expected)


def test_functions_for_several_tensors():
    two = (ModelInput(type="a"), ModelInput(type="b", element_type="int64"))
    pipeline = compile_pipeline(
        model(
            inputs=two,
            outputs=(ModelOutput(type="a"), ModelOutput(type="b")),
            preprocess=function("return [np.zeros(2), np.ones(3)]"),
            postprocess=function("return [len(data), data[1]]"),
        )
    )
    assert [(tensor.shape, str(tensor.dtype)) for tensor in pipeline.prepare(b"")] == [
        ((1, 2), "float32"),
        ((1, 3), "int64"),
    ]
    rows = pipeline.finish([np.zeros((2, 1)), np.array([[1, 2], [3, 4]])], 2)
    assert [found.value for found in pipeline.answers(rows)] == [[2, [1, 2]], [2, [3, 4]]]


def test_data_goes_by_reference_and_env_is_one_dictionary(tmp_path):
    env_seen = function(
        "env.setdefault('count', []).append(data)\nreturn {k: v for k, v in env.items() if k != 'count'}"
    )
    pipeline = compile_pipeline(model(postprocess=env_seen), ["x", "y"], scratch=tmp_path)
    output = np.zeros((2, 3))
    rows = pipeline.finish([output], 2)
    assert rows[1] == {
        "model": "m",
        "version": "1.2.0",
        "inputs": [{"type": "image", "layer_name": None, "element_type": "float32"}],
        "outputs": [{"type": "probability", "layer_name": None, "element_type": "float32"}],
        "labels": ["x", "y"],
        "scratch": str(tmp_path),
    }
    env = {}
    data = object()
    assert function_stage(function("env['seen'] = data\nreturn data"), functions_here(env))(data) is data
    assert env["seen"] is data


@pytest.mark.parametrize(
    "body",
    [
        "return [(1, 0.25), (0, 0.75)]",
        "return [(i, data[i]) for i in (1, 0)]",
        "return [{'index': 0, 'score': 0.75}, {'index': 1, 'score': 0.25}]",
        "return [{'label': 'cat', 'score': 0.75}, {'label': 'dog', 'score': 0.25, 'index': 1}]",
    ],
)
def test_a_postprocess_function_of_a_probability_is_read_as_classes(body):
    found = answer([0.75, 0.25], ["cat", "dog"], postprocess=function(body))
    assert isinstance(found, Classes)
    assert [(score.index, score.label, score.score) for score in found.classes] == [(0, "cat", 0.75), (1, "dog", 0.25)]


def test_other_results_stay_as_they_are():
    pairs = function("return [(1, 0.25)]")
    assert answer([0.0], output_type="box", postprocess=pairs) == Custom(value=[[1, 0.25]])
    values = function("return {'box': data, 'n': np.int64(3), 'none': None, 1: True}")
    assert answer([0.5], postprocess=values) == Custom(value={"box": [0.5], "n": 3, "none": None, "1": True})
    assert answer([0.5], postprocess=function("return [[1, 2, 3]]")) == Custom(value=[[1, 2, 3]])


def test_functions_around_the_output_steps():
    outputs = (ModelOutput(type="probability", steps=(TopK(k=1),)),)
    doubled = model(outputs=outputs, before_postprocess=function("return -data"))
    pipeline = compile_pipeline(doubled, ["a", "b"])
    found = pipeline.answers(pipeline.finish([np.array([[1.0, 2.0], [4.0, 3.0]])], 2))
    assert [(item.classes[0].label, item.classes[0].score) for item in found] == [("a", -1.0), ("b", -3.0)]
    pipeline = compile_pipeline(
        model(outputs=outputs, after_postprocess=function("return data[0]['label']")), ["a", "b"]
    )
    assert pipeline.answers(pipeline.finish([np.array([[1.0, 2.0]])], 1)) == [Custom(value="b")]
    raw = compile_pipeline(model(after_postprocess=function("return data.sum()")))
    assert raw.answers(raw.finish([np.array([[1.0, 2.0]])], 1)) == [Custom(value=3.0)]


@pytest.mark.parametrize(
    ("body", "line", "text"),
    [
        ("x = 1\nraise ValueError('no good')", 4, "ValueError: no good"),
        ("return np.linalg.inv(np.zeros((2, 2)))", 3, "Singular"),
        ("raise SystemExit(3)", 3, "SystemExit: 3"),
        ("assert data is None", 3, "AssertionError"),
        ("import not_there", 3, "not_there"),
    ],
)
def test_a_failing_function_names_its_own_line(body, line, text):
    pipeline = compile_pipeline(model(preprocess=function(body)))
    with pytest.raises(FunctionError) as caught:
        pipeline.prepare(b"")
    assert f"the preprocess function failed on line {line}: " in caught.value.message
    assert text in caught.value.message
    assert "Traceback" not in caught.value.message
    assert caught.value.fields["line"] == line
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("source", "line", "text"),
    [
        ("def fun(env, data)\n    return 1", 1, "SyntaxError"),
        ("x = 1\n1 / 0\n", 2, "ZeroDivisionError"),
        ("def other(env, data): return 1", None, "no function named 'fun'"),
        ("fun = 3", None, "no function named 'fun'"),
        ("\0", None, "null"),
    ],
)
def test_a_source_that_cannot_be_loaded_fails_when_the_pipeline_is_made(source, line, text):
    with pytest.raises(FunctionError, match=text) as caught:
        compile_pipeline(model(postprocess=PythonFunction(name="fun", source=source)))
    assert caught.value.fields["line"] == line


@pytest.mark.parametrize(
    ("stage", "body", "text"),
    [
        ("preprocess", "pass", "returned nothing"),
        ("preprocess", "return [1, 2]", "a list holding int instead of an array"),
        ("preprocess", "return 'x'", "type str"),
        ("preprocess", "return [np.zeros(1), np.zeros(1)]", "2 arrays for 1 tensors"),
        ("before_postprocess", "return 3", "type int"),
        ("postprocess", "return float('nan')", "nan"),
        ("postprocess", "return {'a': object()}", "type object"),
        ("postprocess", "return [{'label': 'cow', 'score': 1.0}]", "'cow' is not one of the 2 labels"),
    ],
)
def test_results_of_the_wrong_kind_are_refused(stage, body, text):
    pipeline = compile_pipeline(model(**{stage: function(body)}), ["cat", "dog"])
    with pytest.raises(FunctionError, match=text) as caught:
        pipeline.prepare(b"") if stage == "preprocess" else pipeline.answers(pipeline.finish([np.zeros((1, 2))], 1))
    assert caught.value.fields["stage"] == stage


def test_the_part_for_foreign_environments_is_old_syntax_and_imports_nothing_of_ours():
    source = Path(portable.__file__).read_text()
    tree = ast.parse(source, feature_version=(3, 6))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= {"sys", "typing"}


def test_labels_are_lines(tmp_path):
    file = tmp_path / "labels.txt"
    file.write_text("\ufeffcat\r\n dog \n\nécole\n\n", encoding="utf-8")
    assert read_labels(file) == ["cat", "dog", "", "école"]
    file.write_text("")
    assert read_labels(file) == []
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        read_labels(file)
    with pytest.raises(InputError, match="cannot read"):
        read_labels(tmp_path / "none.txt")
