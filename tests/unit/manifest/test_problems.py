"""Bad manifests: every problem at once, each with its line, column and code."""

from pathlib import Path

import pytest

from mlmodelscope.core.errors import ManifestError
from mlmodelscope.manifest import format_problem, load_manifest, parse_manifest, read_manifest
from mlmodelscope.manifest.problem import CODES, Problem

HEAD = "name: a\nversion: 1.0\nframework: {name: onnxruntime}\n"  # lines 1 to 3
SIDES = "inputs: [{type: image}]\noutputs: [{type: image}]\n"
IMAGE = "inputs:\n- type: image\n  steps:\n"  # a step list goes on in line 7
OUT = "outputs: [{type: image}]\n"


def found(text: str) -> list[tuple[int, int, str]]:
    return [(one.line, one.column, one.code) for one in parse_manifest(text, "f").problems]


SYNTAX = [
    ("", [(1, 1, "empty")]),
    ("# only a comment\n", [(1, 1, "empty")]),
    ("~\n", [(1, 1, "empty")]),
    ("- a\n- b\n", [(1, 1, "not_a_mapping")]),
    ("just text\n", [(1, 1, "not_a_mapping")]),
    ("name: a\n---\nname: b\n", [(2, 1, "several_documents")]),
    ("name: [1, 2\n", [(2, 1, "yaml_syntax")]),
    ("name: a\n\tversion: 1\n", [(2, 1, "yaml_syntax")]),
    ("name: a\n bad: : x\n", [(2, 5, "yaml_syntax")]),
    ('name: "\\U99999999"\n', [(1, 1, "yaml_syntax")]),
    ('name: "\\ud800"\n', [(1, 7, "not_text")]),
    ("name: a\x00b\n", [(1, 8, "not_text")]),
    ("name: a\nb: \x1b[0m\n", [(2, 4, "not_text")]),
    ("name: *nobody\n", [(1, 7, "yaml_alias")]),
    ("name: &a [*a]\n", [(1, 11, "yaml_alias")]),
    ("name: !!python/object:os.system x\n", [(1, 7, "yaml_tag")]),
    ("name: !!binary aGk=\n", [(1, 7, "yaml_tag")]),
    ("attributes: !!set {a}\n", [(1, 13, "yaml_tag")]),
    ("? [a]\n: b\n", [(1, 3, "yaml_syntax")]),
    ("a: " + "[" * 80 + "]" * 80, [(1, 67, "too_deep")]),
    ("".join(f"{' ' * i}a:\n" for i in range(100)), [(64, 64, "too_deep")]),
    ("a: &a [" + "1," * 999 + "1]\nb: [" + "*a," * 200 + "]\n", [(2, 299, "too_many_nodes")]),
]


@pytest.mark.parametrize("text, expected", SYNTAX, ids=range(len(SYNTAX)))
def test_text_that_is_no_manifest(text: str, expected: list[tuple[int, int, str]]):
    assert found(text) == expected


def test_aliases_count_in_full():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 8)]
    assert [code for _, _, code in found("\n".join(lines))] == ["too_many_nodes"]


def test_the_reading_ends_when_there_are_too_many_problems():
    text = "name: a\n" + "\n".join(f"key{i}: x" for i in range(5000))
    problems = parse_manifest(text, "f").problems
    assert len(problems) == 201
    assert sum(one.code == "too_many_problems" for one in problems) == 1


FIELDS = [
    ("name: a\nname: b\nversion: 1\nframework: {name: x}\n" + SIDES, [(2, 1, "duplicate_key")]),
    ("version: 1\nframework: {name: x}\n" + SIDES, [(1, 1, "missing")]),
    ("name:\nversion: 1\nframework: {name: x}\n" + SIDES, [(1, 1, "missing")]),
    ("name: ''\nversion: 1\nframework: {name: x}\n" + SIDES, [(1, 7, "wrong_value")]),
    ("name: a\nversion: one\nframework: {name: x}\n" + SIDES, [(2, 10, "version")]),
    ("name: a\nversion: [1]\nframework: {name: x}\n" + SIDES, [(2, 10, "wrong_type")]),
    ("name: a\nversion: 1\nframework: onnx\n" + SIDES, [(3, 12, "wrong_type")]),
    ("name: a\nversion: 1\nframework: {name: x, version: '>=1 <'}\n" + SIDES, [(3, 31, "constraint")]),
    ("name: a\nversion: 1\nframework: {name: x, version: '>2 <1'}\n" + SIDES, [(3, 31, "constraint")]),
    ("kind: modle\n" + HEAD + SIDES, [(1, 7, "unknown_kind")]),
    (HEAD, [(1, 1, "missing"), (1, 1, "missing")]),
    (HEAD + "inputs: []\n" + OUT, [(4, 9, "missing")]),
    (HEAD + "inputs: image\n" + OUT, [(4, 9, "wrong_type")]),
    (HEAD + "inputs: [image]\n" + OUT, [(4, 10, "wrong_type")]),
    (HEAD + "inputs: [{type: image, element_type: flaot32}]\n" + OUT, [(4, 38, "wrong_value")]),
    (HEAD + "inputs: [{type: image, layout: WHC}]\n" + OUT, [(4, 32, "wrong_value")]),
    (HEAD + "inputs: [{type: image, layer_name: -1}]\n" + OUT, [(4, 36, "wrong_type")]),
    (HEAD + "inputs: [{type: image, colour_layout: RGB}]\n" + OUT, [(4, 24, "unknown_key")]),
    (HEAD + SIDES + "atributes: {}\n", [(6, 1, "unknown_key")]),
    (HEAD + SIDES + "hidden: yes\n", [(6, 9, "wrong_type")]),
    (HEAD + SIDES + "requirements: [numpy>=1, 'no no']\n", [(6, 26, "requirement")]),
    (HEAD + SIDES + "attributes: {a: .nan, b: 1e999, c: 99999999999999999999}\n",
     [(6, 17, "wrong_value"), (6, 26, "wrong_value"), (6, 36, "wrong_value")]),
    (HEAD + SIDES + "attributes: [1]\n", [(6, 13, "wrong_type")]),
    (HEAD + SIDES + "container: {amd64: image}\n", [(6, 20, "wrong_type")]),
    (HEAD + SIDES + "container: {amd64: {cpu: a/b:1-gpu, gpu: c:cuda12}}\n", [(6, 26, "image_device")]),
    (HEAD + SIDES + "source: ftp://example.org/a\n", [(6, 9, "location")]),
    (HEAD + SIDES + "source: {weights_path: a}\n", [(6, 9, "missing")]),
    (HEAD + SIDES + "source: {graph_path: [a, 'pypi:b']}\n", [(6, 26, "location")]),
    (HEAD + SIDES + "source: {graph_path: a, checksum: 123}\n", [(6, 35, "checksum")]),
    (HEAD + SIDES + "source: {graph_path: a, checksum: {}}\n", [(6, 35, "checksum")]),
    (HEAD + SIDES + "source: {graph_path: a, checksum: {sha1: 123}}\n", [(6, 35, "checksum"), (6, 36, "unknown_key")]),
    (HEAD + SIDES + "source: {graph_path: a, is_archive: true}\n", [(6, 9, "missing")]),
    (HEAD + SIDES + "source: a\nmodel: b\n", [(7, 8, "contradiction")]),
    (HEAD + SIDES + "x: &x {a: 1}\nattributes:\n  <<: *x\n", [(6, 1, "unknown_key"), (8, 3, "merge_key")]),
    (HEAD + "inputs: [{type: image}]\noutputs: [{type: image, features_checksum: 00}]\n", [(5, 44, "ignored")]),
]  # fmt: skip


@pytest.mark.parametrize("text, expected", FIELDS, ids=range(len(FIELDS)))
def test_fields(text: str, expected: list[tuple[int, int, str]]):
    assert found(text) == expected


STEPS = [
    ("  - crop: {method: middle, percentage: 50}\n", [(7, 20, "wrong_value")]),
    ("  - crop: {percentage: 120}\n", [(7, 24, "wrong_value")]),
    ("  - crop: {percentage: 50, size: [1, 1]}\n", [(7, 5, "wrong_value")]),
    ("  - crop: {percentage: 50, ratio: 1}\n", [(7, 28, "unknown_key")]),
    ("  - resize: 256\n", [(7, 13, "step_form")]),
    ("  - resize: {size: 256}\n", [(7, 20, "wrong_value")]),
    ("  - resize: {dimensions: [299, 299, 3]}\n", [(7, 26, "wrong_value")]),
    ("  - resize: {size: [1, 1], dimensions: [1, 1]}\n", [(7, 40, "contradiction")]),
    ("  - resize: {shorter_side: 1.5}\n", [(7, 28, "wrong_type")]),
    ("  - pad: {}\n", [(7, 5, "missing")]),
    ("  - reszie: {shorter_side: 1}\n", [(7, 5, "unknown_step")]),
    ("  - softmax\n", [(7, 5, "step_side")]),
    ("  - batch\n  - crop: {percentage: 50}\n", [(7, 5, "step_order")]),
    ("  - crop: {percentage: 50}\n  - decode: {}\n", [(8, 5, "step_order")]),
    ("  - {crop: {percentage: 50}, mean: 1}\n", [(7, 5, "step_form")]),
    ("  -\n", [(7, 4, "step_form")]),
    ("  - batch: 1\n", [(7, 12, "step_form")]),
    ("  - cast: float31\n", [(7, 11, "wrong_value")]),
    ("  - mean: [1, 2]\n", [(7, 11, "channels")]),
    ("  - color: GRAY\n  - normalize: {mean: [1], std: [1, 2, 3]}\n", [(8, 33, "channels")]),
    ("  - mean: [1, x, 3]\n", [(7, 15, "wrong_type")]),
    ("  - mean: x\n", [(7, 11, "wrong_type")]),
    ("  - mean: []\n", [(7, 11, "wrong_value")]),
    ("  - rescale: 0\n", [(7, 5, "wrong_value")]),
    ("  - normalize: {std: 2, scale: 3}\n", [(7, 32, "contradiction")]),
    ("  - decode: {color_layout: RGBA}\n", [(7, 28, "wrong_value")]),
    ("  - decode: {element_type: int8}\n", [(7, 28, "int8_bytes")]),
]


@pytest.mark.parametrize("text, expected", STEPS, ids=range(len(STEPS)))
def test_steps(text: str, expected: list[tuple[int, int, str]]):
    assert found(HEAD + IMAGE + text + OUT) == expected


MORE = [
    ("inputs:\n- type: image\n  steps:\n    crop: {percentage: 50}\n    crop: {percentage: 60}\n" + OUT,
     [(8, 5, "duplicate_key")]),
    ("inputs: [{type: image, color_layout: BGR, steps: [decode: {color_layout: RGB}]}]\n" + OUT,
     [(4, 38, "contradiction")]),
    ("inputs: [{type: image, parameters: {element_type: raw_image, crop_method: center}}]\n" + OUT,
     [(4, 51, "raw_image"), (4, 62, "ignored")]),
    ("inputs: [{type: image, parameters: {colour_mode: RGB, dimensions: [1, 2, 3, 4]}}]\n" + OUT,
     [(4, 37, "unknown_key"), (4, 67, "wrong_value")]),
    ("inputs: [{type: image}]\noutputs: [{type: probability, steps: [topk: 5, softmax]}]\n", [(5, 39, "step_order")]),
    ("inputs: [{type: image}]\noutputs: [{type: box, steps: [nms, boxes]}]\n", [(5, 31, "step_order")]),
    ("inputs: [{type: image}]\noutputs: [{type: box, steps: [boxes, cast: uint8]}]\n", [(5, 38, "step_order")]),
    ("inputs: [{type: image}]\noutputs: [{type: box, steps: [boxes, topk: 5]}]\n", [(5, 38, "step_order")]),
    ("inputs: [{type: image}]\noutputs: [{type: box, steps: [boxes, threshold]}]\n", [(5, 38, "missing")]),
    ("inputs: [{type: image}]\noutputs: [{type: box, steps: [boxes, nms: {iou: 2}]}]\n", [(5, 49, "wrong_value")]),
    ("inputs: [{type: image}]\noutputs: [{type: box, steps: [boxes: {format: xy}]}]\n", [(5, 47, "wrong_value")]),
    ("inputs: [{type: image}]\noutputs: [{type: probability, steps: [topk: 0]}]\n", [(5, 45, "wrong_value")]),
    ("inputs: [{type: image}]\noutput: {type: classification, parameters: {probabilities_transform: sigmoid}}\n",
     [(5, 70, "wrong_value")]),
]  # fmt: skip


@pytest.mark.parametrize("text, expected", MORE, ids=range(len(MORE)))
def test_inputs_and_outputs(text: str, expected: list[tuple[int, int, str]]):
    assert found(HEAD + text) == expected


FUNCTIONS = [
    ("preprocess: |\n  def fun(env, data):\n    return (\n", [(8, 12, "function_syntax")]),
    ("preprocess: |\n  import os\n\n  def fun(env, data):\n    x = = 1\n", [(10, 9, "function_syntax")]),
    ("preprocess: 'def fun(env data): pass'\n", [(6, 13, "function_syntax")]),
    ('preprocess: "\\0"\n', [(6, 13, "function_syntax")]),
    ("preprocess: |\n  x = 1\n  def fun(env): pass\n", [(8, 3, "function_signature")]),
    ("preprocess: |\n  def a(x, y): pass\n  def b(x, y): pass\n", [(6, 13, "function_ambiguous")]),
    ("preprocess: |\n  def a(x): pass\n", [(6, 13, "function_missing")]),
    ("preprocess: |\n  def a(x, *, y, z=1): pass\n", [(6, 13, "function_missing")]),
    ("preprocess: [a]\n", [(6, 13, "wrong_type")]),
]


@pytest.mark.parametrize("text, expected", FUNCTIONS, ids=range(len(FUNCTIONS)))
def test_functions(text: str, expected: list[tuple[int, int, str]]):
    assert found(HEAD + SIDES + text) == expected


def test_steps_and_a_function_for_one_stage():
    function = "  def fun(env, data): ...\n"
    text = HEAD + IMAGE + "  - decode\noutputs:\n- type: probability\n  steps: [softmax]\n"
    expected = [(6, 3, "steps_and_function"), (10, 3, "steps_and_function")]
    assert found(f"{text}preprocess: |\n{function}postprocess: |\n{function}") == expected


DATASETS = [
    ("layout: folder_per_clas\npath: a\n", [(3, 9, "wrong_value")]),
    ("layout: folder_per_class\n", [(3, 1, "missing")]),
    ("layout: {path: a}\n", [(3, 9, "missing")]),
    ("layout: {type: csv, path: a}\n", [(3, 1, "missing")]),
    ("layout: {type: synthetic, count: 0, size: [1, 1]}\n", [(3, 34, "wrong_value")]),
    ("layout: {type: synthetic, count: 1, size: [1, a]}\n", [(3, 47, "wrong_type")]),
    ("layout: {type: synthetic, count: 1, size: [1, 1], sed: 1}\n", [(3, 51, "unknown_key")]),
    ("layout: {type: named_files, files: [a, 'xy:z'], pattern: '_(?P<label>.)'}\n", [(3, 40, "location")]),
    ("layout: {type: named_files, files: a, pattern: '('}\n", [(3, 48, "pattern")]),
    ("layout: {type: named_files, files: a, pattern: 'x'}\n", [(3, 48, "pattern")]),
    ("kind: dataset\n", [(1, 1, "missing")]),
    ("layout: {type: folder_per_class, path: {locations: [a], md5: x}}\n", [(3, 57, "unknown_key")]),
]


@pytest.mark.parametrize("text, expected", DATASETS, ids=range(len(DATASETS)))
def test_datasets(text: str, expected: list[tuple[int, int, str]]):
    assert found("name: a\nversion: 1\n" + text) == expected


def test_every_problem_of_a_file_at_once():
    text = "nmae: a\nversion: x.y\ninputs: [{type: image, steps: [crp: {}]}]\noutputs: 3\n"
    assert found(text) == [
        (1, 1, "missing"),
        (1, 1, "missing"),
        (1, 1, "unknown_key"),
        (2, 10, "version"),
        (3, 32, "unknown_step"),
        (4, 10, "wrong_type"),
    ]


def test_nearest_names_are_hinted():
    hints = [one.hint for one in parse_manifest(HEAD + SIDES + "atributes: {}\n", "f").problems]
    assert hints == ["did you mean attributes?"]


def test_a_problem_as_a_line():
    problem = Problem("m.yml", 3, 4, "name", "warning", "unknown_key", "what", "so")
    assert format_problem(problem) == "m.yml:3:4: warning: name: what\n  hint: so"


def test_a_line_is_safe_for_a_terminal():
    (problem,) = parse_manifest(HEAD + SIDES + '? "\\e[0m\\n' + "x" * 5000 + '"\n: 1\n', "f").problems
    line = format_problem(problem).split("\n")[0]
    assert line.startswith("f:6:3: warning: \\x1b[0m\\nxxx")
    assert line.isprintable()
    assert len(line) < 1100


def test_load_raises_all_problems_in_fields():
    with pytest.raises(ManifestError) as caught:
        load_manifest("name: a\nversion: x.y\nhiden: true\nlayout: 3\n", origin="m.yml")
    problems = caught.value.fields["problems"]
    assert [(one["line"], one["level"], one["code"]) for one in problems] == [
        (2, "error", "version"),
        (3, "warning", "unknown_key"),
        (4, "error", "wrong_value"),
    ]
    assert caught.value.message.startswith("m.yml:2:10: error: ")
    assert caught.value.message.endswith("(and 1 more)")


def file_problem(path: Path) -> tuple[int, int, str]:
    reading = read_manifest(path)
    assert reading.value is None
    (problem,) = reading.problems
    assert problem.file == str(path)
    return problem.line, problem.column, problem.code


def test_files_that_cannot_be_read(tmp_path: Path):
    assert file_problem(tmp_path / "missing.yml") == (1, 1, "unreadable")
    assert file_problem(tmp_path) == (1, 1, "unreadable")
    assert file_problem(Path("/dev/null")) == (1, 1, "unreadable")
    assert file_problem(Path("a\0b")) == (1, 1, "unreadable")
    binary = tmp_path / "binary.yml"
    binary.write_bytes(b"name: a\nb: \xff\xfe\n")
    assert file_problem(binary) == (2, 4, "encoding")


def test_large_files_are_refused_before_parsing(tmp_path: Path):
    large = tmp_path / "large.yml"
    large.write_bytes(b"[" * (1024 * 1024 + 1))
    assert file_problem(large) == (1, 1, "too_large")
    assert found("é" * (600 * 1024)) == [(1, 1, "too_large")]


def test_a_byte_order_mark_is_no_problem(tmp_path: Path):
    path = tmp_path / "marked.yml"
    path.write_bytes(b"\xef\xbb\xbf" + (HEAD + SIDES).encode())
    assert read_manifest(path).problems == ()


def test_every_code_is_met_by_a_test():
    tables = [*SYNTAX, *FIELDS, *STEPS, *MORE, *FUNCTIONS, *DATASETS]
    met = {code for _, expected in tables for _, _, code in expected}
    elsewhere = {"encoding", "too_large", "unreadable", "steps_and_function", "integer_arithmetic", "too_many_problems"}
    assert met | elsewhere == set(CODES)
