"""Hypothesis strategies that make manifests in canonical form: every implied step is there."""

from typing import Any, get_args

from hypothesis import strategies as st

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
    Cast,
    Color,
    ColorLayout,
    Crop,
    DataLayout,
    Decode,
    Layout,
    Mean,
    Normalize,
    Pad,
    Rescale,
    Resize,
    ResizeMethod,
    Slice,
    Softmax,
    TopK,
)

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
versions = st.sampled_from(["1.0", "1.10", "2012.0.0", "1.0rc1", "2.7.post2", "1!1.0", "1e1"]).filter(
    lambda text: text != "1e1"
)
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
def outputs(draw: st.DrawFn, *, has_function: bool) -> ModelOutput:
    steps: list[Any] = []
    if not has_function:
        stop = st.none() | st.integers(5, 9)
        steps = draw(st.lists(st.just(Softmax()) | st.builds(Slice, start=st.integers(0, 3), stop=stop), max_size=2))
        labels = st.none() | assets
        last = st.builds(TopK, k=st.integers(1, 9), labels=labels) | st.builds(Argsort, labels=labels)
        steps += draw(st.lists(last, max_size=1))
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
