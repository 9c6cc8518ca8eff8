"""Torch files, zip and legacy, to tensors; hostile ones to ConvertError and nothing else."""

import io
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mlmodelscope.core.errors import ConvertError
from mlmodelscope.provision.convert.source import reading
from mlmodelscope.provision.convert.state_dict_to_onnx.pickled import read_pickle
from mlmodelscope.provision.convert.state_dict_to_onnx.torch_file import read_state_dict

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "300"))

_MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, 2)


def _literal(value):
    """The instructions that put a plain value on a pickle's stack."""
    return pickle.dumps(value, 2)[2:-1]


def _global(name):
    module, _, attribute = name.rpartition(".")
    return f"c{module}\n{attribute}\n".encode()


def _tensor(key, shape, strides=None, *, offset=0, count=None, kind="FloatStorage", legacy=False):
    if strides is None:
        strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    count = int(np.prod(shape)) if count is None else count
    identity = b"(" + _literal("storage") + _global(f"torch.{kind}") + _literal(key) + _literal("cpu") + _literal(count)
    identity += (_literal(None) if legacy else b"") + b"t"
    arguments = identity + b"Q" + _literal(offset) + _literal(shape) + _literal(strides)
    return _global("torch._utils._rebuild_tensor_v2") + b"(" + arguments + b"\x89" + _literal(None) + b"tR"


def _mapping(items):
    entries = b"".join(_literal(name) + value for name, value in items.items())
    return _global("collections.OrderedDict") + b")R(" + entries + b"u"


def _pickle(value):
    return b"\x80\x02" + value + b"."


def _zip_file(path, value, storages, *, byteorder=None, compression=zipfile.ZIP_STORED, extra=()):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("m/data.pkl", _pickle(value))
        for key, content in storages.items():
            archive.writestr(f"m/data/{key}", content)
        if byteorder:
            archive.writestr("m/byteorder", byteorder)
        for name in extra:
            archive.writestr(name, b"")
    return path


def _legacy_file(path, value, storages, *, keys=None, magic=_MAGIC, protocol=1001, order="little"):
    system = {"protocol_version": 1001, "little_endian": order == "little", "type_sizes": {"int": 4}}
    content = magic + pickle.dumps(protocol, 2) + pickle.dumps(system, 2) + _pickle(value)
    content += pickle.dumps(list(storages) if keys is None else keys, 2)
    for array in storages.values():
        content += len(array).to_bytes(8, order) + array.tobytes()
    path.write_bytes(content)
    return path


def _read(path):
    with reading(path):
        return read_state_dict(path)


VALUES = np.arange(6, dtype=np.float32)


def test_a_zip_file_gives_its_tensors_in_order(tmp_path):
    items = {"b": _tensor("0", (2, 3)), "a": _tensor("1", (), count=1, kind="LongStorage")}
    path = _zip_file(tmp_path / "m.pt", _mapping(items), {"0": VALUES.tobytes(), "1": struct.pack("<q", 5)})
    found = _read(path)
    assert list(found) == ["b", "a"]
    np.testing.assert_array_equal(found["b"], VALUES.reshape(2, 3))
    assert found["a"].shape == ()
    assert found["a"] == 5


def test_a_legacy_file_gives_the_same(tmp_path):
    items = {"b": _tensor("k", (2, 3), legacy=True), "n": _tensor("l", (2,), kind="LongStorage", legacy=True)}
    path = _legacy_file(tmp_path / "m.pth", _mapping(items), {"k": VALUES, "l": np.array([3, 4], np.int64)})
    found = _read(path)
    np.testing.assert_array_equal(found["b"], VALUES.reshape(2, 3))
    np.testing.assert_array_equal(found["n"], [3, 4])


def test_a_view_has_its_offset_and_strides(tmp_path):
    items = {"t": _tensor("0", (2, 2), (1, 2), offset=1, count=6), "whole": _tensor("0", (6,))}
    found = _read(_zip_file(tmp_path / "m.pt", _mapping(items), {"0": VALUES.tobytes()}))
    np.testing.assert_array_equal(found["t"], [[1, 3], [2, 4]])
    np.testing.assert_array_equal(found["whole"], VALUES)


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        ("HalfStorage", np.array([1.5, -2], np.float16).tobytes(), [1.5, -2]),
        ("DoubleStorage", np.array([1.5, -2], np.float64).tobytes(), [1.5, -2]),
        ("BFloat16Storage", struct.pack("<HH", 0x3FC0, 0xC000), [1.5, -2]),
        ("BoolStorage", b"\x01\x00", [True, False]),
        ("CharStorage", b"\x01\xff", [1, -1]),
        ("IntStorage", struct.pack("<ii", 7, -7), [7, -7]),
    ],
)
def test_element_types(tmp_path, kind, content, expected):
    path = _zip_file(tmp_path / "m.pt", _mapping({"t": _tensor("0", (2,), kind=kind)}), {"0": content})
    assert _read(path)["t"].tolist() == expected


def test_big_endian_files_are_read_as_such(tmp_path):
    content = VALUES.astype(">f4")
    zipped = _zip_file(
        tmp_path / "m.pt", _mapping({"t": _tensor("0", (6,))}), {"0": content.tobytes()}, byteorder="big"
    )
    value = _mapping({"t": _tensor("0", (6,), legacy=True)})
    legacy = _legacy_file(tmp_path / "m.pth", value, {"0": content}, order="big")
    for path in (zipped, legacy):
        np.testing.assert_array_equal(_read(path)["t"], VALUES)


@pytest.mark.parametrize("key", ["state_dict", "model"])
def test_a_checkpoint_is_unwrapped_and_the_parallel_prefix_taken_off(tmp_path, key):
    inner = _mapping({"module.a": _tensor("0", (6,))})
    value = (
        b"}(" + _literal("epoch") + _literal(3) + _literal(key) + inner + _literal("lr") + _literal([0.1, {}]) + b"u"
    )
    found = _read(_zip_file(tmp_path / "m.pt", value, {"0": VALUES.tobytes()}))
    np.testing.assert_array_equal(found["a"], VALUES)


def test_parameters_metadata_and_the_memo_are_understood(tmp_path):
    parameter = _global("torch._utils._rebuild_parameter") + b"(" + _tensor("0", (6,)) + b"\x88"
    parameter += _global("collections.OrderedDict") + b")RtR"
    value = _mapping({"a": parameter + b"q\x05", "b": b"h\x05"})
    value += b"}" + _literal("_metadata") + _mapping({}) + b"sb"
    found = _read(_zip_file(tmp_path / "m.pt", value, {"0": VALUES.tobytes()}))
    np.testing.assert_array_equal(found["a"], found["b"])


@pytest.mark.parametrize(
    "name", ["os.system", "builtins.eval", "torch.load", "collections.Counter", "torch._utils._rebuild_sparse_tensor"]
)
def test_any_other_global_is_refused_by_name_and_nothing_runs(tmp_path, name):
    value = _global(name) + b"(" + _literal(f"touch {tmp_path}/ran") + b"tR"
    with pytest.raises(ConvertError, match=name) as caught:
        _read(_zip_file(tmp_path / "m.pt", value, {}))
    assert caught.value.fields["global_name"] == name
    assert not (tmp_path / "ran").exists()


def test_a_pickle_of_a_real_object_with_reduce_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    for protocol in (2, 3, 4, 5):
        with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
            archive.writestr("m/data.pkl", pickle.dumps({"a": Evil()}, protocol))
        with pytest.raises(ConvertError, match="mkdir"):
            _read(tmp_path / "m.pt")
    assert not (tmp_path / "made").exists()


HUGE = 2**40
HOSTILE_VALUES = {
    "huge shape over a small storage": _mapping({"t": _tensor("0", (HUGE,), (0,), count=6)}),
    "huge declared storage": _mapping({"t": _tensor("0", (6,), count=HUGE)}),
    "offset beyond the storage": _mapping({"t": _tensor("0", (6,), offset=1, count=6)}),
    "strides beyond the storage": _mapping({"t": _tensor("0", (2, 3), (100, 1), count=6)}),
    "negative stride": _mapping({"t": _tensor("0", (6,), (-1,))}),
    "strides of another rank": _mapping({"t": _tensor("0", (6,), (1, 1))}),
    "storage key that climbs": _mapping({"t": _tensor("../../etc/passwd", (6,))}),
    "absent storage": _mapping({"t": _tensor("9", (6,))}),
    "huge memo index": _literal("a") + b"r\xff\xff\xff\xff" + b"h\x00",
    "huge declared text": b"\x8d" + struct.pack("<Q", 2**62) + b"abc",
    "nothing on the stack": b"R",
    "a mark never set": b"t",
    "deep nesting": b")" + b"\x85" * 200_000,
    "deep nesting as a key": b"}" + b")" + b"\x85" * 200_000 + b"Ns",
    "a dict that holds itself": b"}q\x00" + _literal("state_dict") + b"h\x00s",
    "not a dict": _literal([1, 2]),
    "empty": b"}",
    "texts instead of tensors": b"}" + _literal("a") + _literal("b") + b"s",
    "an instruction for objects": b"(" + b"icollections\nOrderedDict\n",
    "two values": _literal(1) + _literal(2),
    "tensor from no storage": _global("torch._utils._rebuild_tensor_v2") + _literal((1, 2, (3,), (4,))) + b"R",
    "persistent id that is no storage": _literal(("module", 1)) + b"Q",
}


@pytest.mark.parametrize("name", sorted(HOSTILE_VALUES))
def test_hostile_values_are_convert_errors_in_both_formats(tmp_path, name):
    value = HOSTILE_VALUES[name]
    with pytest.raises(ConvertError):
        _read(_zip_file(tmp_path / "m.pt", value, {"0": VALUES.tobytes()}))
    with pytest.raises(ConvertError):
        _read(_legacy_file(tmp_path / "m.pth", value, {"0": VALUES}))


def test_many_tensors_over_one_storage_are_refused(tmp_path):
    items = {f"t{index}": _tensor("0", (1000,), kind="BFloat16Storage") for index in range(3000)}
    with pytest.raises(ConvertError, match="larger than the file"):
        _read(_zip_file(tmp_path / "m.pt", _mapping(items), {"0": bytes(2000)}))


def test_a_compressed_archive_is_refused(tmp_path):
    value = _mapping({"t": _tensor("0", (10_000_000,))})
    path = _zip_file(tmp_path / "m.pt", value, {"0": bytes(40_000_000)}, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ConvertError, match="compressed"):
        _read(path)


def test_a_script_is_named_as_such(tmp_path):
    with pytest.raises(ConvertError, match="TorchScript"):
        _read(_zip_file(tmp_path / "m.pt", b"}", {}, extra=["m/constants.pkl"]))


@pytest.mark.parametrize(
    "change",
    [
        {"magic": pickle.dumps(1, 2)},
        {"protocol": 7},
        {"keys": ["0", "other"]},
        {"keys": []},
        {"keys": "0"},
        {"keys": [1]},
    ],
)
def test_a_legacy_file_that_contradicts_itself_is_refused(tmp_path, change):
    value = _mapping({"t": _tensor("0", (6,), legacy=True)})
    with pytest.raises(ConvertError):
        _read(_legacy_file(tmp_path / "m.pth", value, {"0": VALUES}, **change))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80", b"hello", b"\x80\x02" + b"\x8a\xff", bytes(100)])
def test_a_file_of_another_kind_is_refused(tmp_path, content):
    (tmp_path / "m.pt").write_bytes(content)
    with pytest.raises(ConvertError):
        _read(tmp_path / "m.pt")


@pytest.fixture(scope="module")
def good_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    value = {"a": _tensor("0", (2, 3)), "b": _tensor("1", (6,))}
    zipped = _zip_file(folder / "m.pt", _mapping(value), {"0": VALUES.tobytes(), "1": VALUES.tobytes()})
    legacy = _legacy_file(folder / "m.pth", _mapping(value), {"0": VALUES, "1": VALUES})
    return [zipped.read_bytes(), legacy.read_bytes()]


@pytest.mark.fuzz
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_a_damaged_file_gives_tensors_or_a_convert_error(good_files, tmp_path_factory, data):
    content = bytearray(data.draw(st.sampled_from(good_files)))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(1, len(content)))] if data.draw(st.booleans()) else content
    path = tmp_path_factory.getbasetemp() / "damaged.pt"
    path.write_bytes(content)
    try:
        found = _read(path)
    except ConvertError:
        return
    assert all(isinstance(values, np.ndarray) for values in found.values())


@pytest.mark.fuzz
@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=60))
def test_random_instructions_never_escape(content):
    try:
        read_pickle(io.BytesIO(content))
    except (ConvertError, ValueError):
        return


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner),
        max_leaves=10,
    ),
    st.sampled_from([2, 3, 4, 5]),
)
def test_plain_values_read_as_python_reads_them(value, protocol):
    assert read_pickle(io.BytesIO(pickle.dumps(value, protocol))) == value
