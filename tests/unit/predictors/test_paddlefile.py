"""Paddle's two program formats give the same inputs, outputs and parameters."""

import json

import pytest

from mlmodelscope.predictors.paddlefile import read_program


def typed(shape):
    return {"TT": {"#": "0.t_dtensor", "D": [{"#": "0.t_f32"}, shape, "NCHW", [], 0]}}


def named(kind, name, shape):
    return {"#": f"1.{kind}", "A": [{"AT": {"#": "0.a_str", "D": name}, "N": "name"}], "O": [typed(shape)]}


def pir():
    operations = [
        {"#": "p", "A": [0, 1, 1, "w"], "O": typed([3, 4])},
        named("data", "x", [-1, 4]),
        {"#": "1.matmul", "A": [], "O": [typed([-1, 3])]},
        named("fetch", "y", [-1, 3]),
    ]
    blocks = [{"blocks": [{"ops": operations}]}]
    return {"base_code": {"magic": "pir", "version": 4}, "program": {"regions": blocks}}


def field(number, content):
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value):
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def variable(name, shape, is_kept=False):
    tensor = field(1, 5) + b"".join(field(2, size) for size in shape)
    kind = field(1, 7) + field(3, field(1, tensor))
    return field(3, field(1, name) + field(2, kind) + (field(3, 1) if is_kept else b""))


def operator(kind, side, name, column):
    argument = field(side, field(1, b"X") + field(2, name))
    return field(4, argument + field(3, kind) + field(4, field(1, b"col") + field(2, 0) + field(3, column)))


def protobuf():
    variables = variable(b"w", [3, 4], True) + variable(b"x", [-1, 4]) + variable(b"y", [-1, 3])
    return field(1, field(1, 0) + variables + operator(b"feed", 2, b"x", 0) + operator(b"fetch", 1, b"y", 0))


@pytest.mark.parametrize("content", [json.dumps(pir()).encode(), protobuf()], ids=["json", "protobuf"])
def test_both_formats_are_read(tmp_path, content):
    path = tmp_path / "program"
    path.write_bytes(content)
    program = read_program(str(path))
    assert program.inputs == [{"name": "x", "shape": [None, 4], "element_type": "float32"}]
    assert program.outputs == [{"name": "y", "shape": [None, 3], "element_type": "float32"}]
    assert program.parameters == {"float32": 12}


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"base_code": {"magic": "other"}}', b"{" * 100000, b"text", protobuf()[:30]]
)
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "program"
    path.write_bytes(content)
    with pytest.raises(ValueError):
        read_program(str(path))
