"""Laws: what is printed parses to the same value, and no text at all gets an exception out of the parser.

The strategies make manifests in canonical form: every implied step is there.
"""

from pathlib import Path
from typing import Any, get_args

from hypothesis import HealthCheck, given, settings, strategies as st

from mlmodelscope.core.asset import Asset, Checksum, Conversion
from mlmodelscope.core.manifest import (
    CsvLabels,
    DatasetManifest,
    FolderPerClass,
    FrameworkManifest,
    FrameworkNeed,
    ImageStrip,
    ModelInput,
    ModelManifest,
    ModelOutput,
    ModelSource,
    NamedFiles,
    PythonFunction,
    Synthetic,
)
from mlmodelscope.core.steps import (
    Argsort,
    Batch,
    BoxArrangement,
    BoxCoordinates,
    BoxFormat,
    Cast,
    Color,
    ColorLayout,
    Crop,
    DataLayout,
    Decode,
    DecodeBoxes,
    Layout,
    Mean,
    Nms,
    Normalize,
    Pad,
    Rescale,
    Resize,
    ResizeMethod,
    Slice,
    Softmax,
    Threshold,
    TopK,
)
from mlmodelscope.manifest import format_manifest, format_problem, parse_manifest, read_manifest

# any character but halves of surrogate pairs; words that YAML might read as something else come often
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(
        [
            "no",
            "on",
            "~",
            "null",
            "true",
            "1.10",
            "0x1F",
            "1e3",
            ".inf",
            "- a",
            "a: b",
            "# c",
            "a\n b\n",
            "x\n\n",
            "|",
            "<<",
        ]
    ),
)
words = texts.filter(lambda text: bool(text.strip()))
descriptions = texts.map(str.strip)
versions = st.sampled_from(["1.0", "1.10", "2012.0.0", "1.0rc1", "2.7.post2", "1!1.0"])
constraints = st.sampled_from(["*", "^1.x", ">=1.17 <2", "1.12.x", "1.10", "~1.4 || ^2", "latest"])
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)
divisors = numbers.filter(bool)
sizes = st.tuples(st.integers(1, 5000), st.integers(1, 5000))
locations = st.sampled_from(
    ["https://example.org/a.onnx", "models/a b.pb", "/data/x", "pypi:a-b==1.0!m/x.txt", "npm:@s/n@1.0.0!x", "a.zip!b"]
)
digits = st.text("0123456789abcdef", min_size=64, max_size=64)
checksums = st.one_of(
    st.builds(Checksum, sha256=digits),
    st.builds(Checksum, md5=digits.map(lambda text: text[:32])),
    st.builds(Checksum, sha256=digits, md5=digits.map(lambda text: text[32:])),
)
conversions = st.builds(
    Conversion,
    name=words,
    options=st.dictionaries(texts.filter(lambda text: text not in ("name", "<<")), texts, max_size=2),
)
assets = st.builds(
    Asset,
    locations=st.lists(locations, min_size=1, max_size=3).map(tuple),
    checksum=st.none() | checksums,
    conversion=st.none() | conversions,
)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts.filter(lambda key: key != "version"), inner, max_size=3)
    ),
    max_leaves=8,
)
attributes = st.dictionaries(texts.filter(lambda key: key != "version"), plain, max_size=3) | st.just(
    {"version": "1.10"}
)
containers = st.dictionaries(texts, st.dictionaries(texts, texts, max_size=2), max_size=2)
requirements = st.lists(st.sampled_from(["numpy>=1.26,<3", "a[b]==1; python_version<'4'"]), max_size=2).map(tuple)
described: dict[str, Any] = {
    "name": words,
    "version": versions,
    "description": descriptions,
    "license": texts,
    "references": st.lists(texts, max_size=2).map(tuple),
    "attributes": attributes,
}
layers = st.none() | st.integers(0, 9) | texts.filter(bool)
names = texts.filter(lambda text: text == text.strip().lower() and bool(text))
functions = st.none() | st.sampled_from(
    [
        PythonFunction(name="fun", source="def fun(env, data):\n    return data\n"),
        PythonFunction(name="other", source="import os\n\n\ndef other(env, data):\n    return '\\n\\t'  \n"),
        PythonFunction(name="fun", source="\n\ndef fun(a, b): return 'ü\U0001f600'"),
    ]
)


@st.composite
def channels(draw: st.DrawFn, elements: st.SearchStrategy[float]) -> Any:
    return draw(st.one_of(elements, st.tuples(elements, elements, elements)))


def geometry() -> st.SearchStrategy[Any]:
    methods = st.sampled_from(get_args(ResizeMethod))
    modes = st.sampled_from(["cover", "fit", "letterbox", "squash"])
    return st.one_of(
        st.builds(Crop, method=st.sampled_from(["center", "top_left"]), percentage=st.floats(1, 100)),
        st.builds(Crop, size=sizes),
        st.builds(Resize, size=sizes, method=methods, keep_aspect_ratio=modes, fill=numbers),
        st.builds(Resize, shorter_side=st.integers(1, 999), resizer=st.sampled_from(["pillow", "opencv"])),
        st.builds(Resize, max_dimension=st.integers(1, 999)),
        st.builds(Pad, size=sizes, value=numbers, position=st.sampled_from(["center", "top_left"])),
        st.builds(Color, to=st.sampled_from(["RGB", "BGR"])),
        st.builds(Layout, to=st.sampled_from(get_args(DataLayout))),
    )


def arithmetic() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(Mean, value=channels(numbers)),
        st.builds(Rescale, value=channels(divisors)),
        st.builds(Normalize, mean=channels(numbers), rescale=channels(divisors)),
    )


@st.composite
def inputs(draw: st.DrawFn, *, has_function: bool) -> ModelInput:
    is_image = draw(st.booleans())
    element_type = draw(st.sampled_from(["float32", "float16", "uint8"]))
    steps: list[Any] = []
    if not has_function:
        if is_image:
            steps.append(
                draw(
                    st.builds(
                        Decode,
                        color_layout=st.sampled_from(get_args(ColorLayout)[:2]),
                        data_layout=st.sampled_from(get_args(DataLayout)),
                    )
                )
            )
        steps += draw(st.lists(geometry(), max_size=2))
        counted = draw(st.lists(arithmetic(), max_size=2))
        if counted:
            steps += [Cast(element_type="float64"), *counted]
        if counted or is_image:
            steps.append(Cast(element_type=element_type))
        steps.append(Batch())
    kind = "image" if is_image else draw(names.filter(lambda name: name != "image"))
    return ModelInput(
        type=kind,
        description=draw(descriptions),
        layer_name=draw(layers),
        element_type=element_type,
        steps=tuple(steps),
    )


@st.composite
def detection(draw: st.DrawFn) -> list[Any]:
    boxes = st.builds(
        DecodeBoxes,
        format=st.sampled_from(get_args(BoxFormat)),
        coordinates=st.sampled_from(get_args(BoxCoordinates)),
        arrangement=st.sampled_from(get_args(BoxArrangement)),
        transposed=st.booleans(),
    )
    suppression = st.builds(
        Nms, iou=st.floats(0, 1), class_aware=st.booleans(), max_boxes=st.none() | st.integers(1, 99)
    )
    return [draw(boxes), *draw(st.lists(st.builds(Threshold, score=numbers) | suppression, max_size=3))]


@st.composite
def outputs(draw: st.DrawFn, *, has_function: bool) -> ModelOutput:
    steps: list[Any] = []
    if not has_function:
        stop = st.none() | st.integers(5, 9)
        steps = draw(st.lists(st.just(Softmax()) | st.builds(Slice, start=st.integers(0, 3), stop=stop), max_size=2))
        labels = st.none() | assets
        last = st.builds(TopK, k=st.integers(1, 9), labels=labels) | st.builds(Argsort, labels=labels)
        steps += draw(st.lists(last, max_size=1) | detection())
    return ModelOutput(
        type=draw(
            st.sampled_from(["probability", "box", "class"])
            | names.filter(lambda name: name not in ("classification", "boundingbox"))
        ),
        description=draw(descriptions),
        layer_name=draw(layers),
        element_type=draw(st.sampled_from(["float32", "int64"])),
        features=draw(st.none() | assets),
        steps=tuple(steps),
    )


@st.composite
def models(draw: st.DrawFn) -> ModelManifest:
    values = {name: draw(strategy) for name, strategy in described.items()}
    preprocess, postprocess = draw(functions), draw(functions)
    return ModelManifest(
        **values,
        task=draw(texts),
        modality=draw(texts),
        is_hidden=draw(st.booleans()),
        framework=FrameworkNeed(name=draw(words), version=draw(constraints)),
        container=draw(containers),
        requirements=draw(requirements),
        inputs=tuple(draw(st.lists(inputs(has_function=preprocess is not None), min_size=1, max_size=2))),
        outputs=tuple(draw(st.lists(outputs(has_function=postprocess is not None), min_size=1, max_size=2))),
        before_preprocess=draw(functions),
        preprocess=preprocess,
        postprocess=postprocess,
        after_postprocess=draw(functions),
        source=draw(st.none() | st.builds(ModelSource, graph=assets, weights=st.none() | assets)),
    )


frameworks = st.builds(FrameworkManifest, **described, container=containers, requirements=requirements)
layouts = st.one_of(
    st.builds(FolderPerClass, path=assets, classes=st.none() | assets),
    st.builds(
        CsvLabels, path=assets, labels=assets, file_column=texts, label_column=texts, label_offset=st.integers(-9, 9)
    ),
    st.builds(
        NamedFiles, files=st.lists(assets, min_size=1, max_size=2).map(tuple), pattern=st.just(r"_(?P<label>\d+)\.jpg$")
    ),
    st.builds(ImageStrip, image=assets, labels=assets, sample_size=sizes),
    st.builds(
        Synthetic, count=st.integers(1, 99), size=sizes, classes=st.none() | st.integers(1, 9), seed=st.integers(-9, 9)
    ),
)
datasets = st.builds(DatasetManifest, **described, task=texts, split=texts, layout=layouts, labels=st.none() | assets)


FIXTURES = [path.read_text() for path in sorted((Path(__file__).parent / "fixtures").glob("*.yml"))]
slow = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
fuzz = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check_round_trip(value):
    text = format_manifest(value)
    reading = parse_manifest(text, "canonical")
    assert [format_problem(one) for one in reading.problems if one.level == "error"] == []
    assert {one.code for one in reading.problems} <= {"integer_arithmetic", "image_device"}
    assert reading.value == value
    assert reading.value.digest == value.digest
    assert format_manifest(reading.value) == text


@slow
@given(models())
def test_models(value: ModelManifest):
    check_round_trip(value)


@slow
@given(datasets)
def test_datasets(value):
    check_round_trip(value)


@slow
@given(frameworks)
def test_frameworks(value):
    check_round_trip(value)


def check_is_ours(text: str):
    reading = parse_manifest(text, "fuzz")
    lines = text.count("\n") + sum(text.count(char) for char in "\r\x85\u2028\u2029") + 1
    for problem in reading.problems:
        assert 1 <= problem.line <= lines + 1
        assert problem.column >= 1
        assert format_problem(problem)
    assert (reading.value is None) == any(one.level == "error" for one in reading.problems)
    if reading.value is not None:
        check_round_trip_of_read(reading.value)


def check_round_trip_of_read(value):
    again = parse_manifest(format_manifest(value), "again").value
    assert again == value
    assert again.digest == value.digest


@fuzz
@given(st.text(max_size=200))
def test_any_text(text: str):
    check_is_ours(text)


@fuzz
@given(st.text("{}[]:,-&*!|>'\"%@`#?\t\n \\ab01.<~", max_size=60))
def test_text_of_yaml_signs(text: str):
    check_is_ours(text)


@fuzz
@given(st.binary(max_size=200))
def test_any_bytes(tmp_path_factory, content: bytes):
    path = tmp_path_factory.getbasetemp() / "fuzz.yml"
    path.write_bytes(content)
    reading = read_manifest(path)
    assert reading.value is not None or reading.problems


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(FIXTURES))
    junk = st.sampled_from(
        [
            "",
            " ",
            "\n",
            "[",
            "{",
            "}",
            ": ",
            "- ",
            "0",
            "-1",
            ".nan",
            "1e999",
            "null",
            "true",
            "'",
            "&a ",
            "*a",
            "!!x ",
            "9" * 500,
        ]
    )
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        text = text[:start] + draw(junk) + text[end:]
    return text


@st.composite
def swapped(draw: st.DrawFn) -> str:
    """A fixture in which the values of some lines were exchanged: right YAML of wrong types."""
    lines = draw(st.sampled_from(FIXTURES)).split("\n")
    keyed = [index for index, line in enumerate(lines) if ": " in line]
    first, second = draw(st.sampled_from(keyed)), draw(st.sampled_from(keyed))
    key, _, mine = lines[first].partition(": ")
    other, _, theirs = lines[second].partition(": ")
    lines[first] = f"{key}: {theirs}"
    lines[second] = f"{other}: {mine}" if first != second else f"{key}: [{mine}, ~, {{a: 1}}]"
    return "\n".join(lines)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated() | swapped())
def test_mutated_manifests(text: str):
    check_is_ours(text)
