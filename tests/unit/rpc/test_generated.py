import pytest

pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed: pip install 'mlmodelscope[dev]'")

from mlmodelscope.rpc.descriptors import HERE
from mlmodelscope.rpc.generate import generated

FILES = generated()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_generated_file_is_current(path):
    assert path.read_bytes() == FILES[path], "run `python -m mlmodelscope.rpc.generate`"


def test_every_proto_file_is_generated_from():
    assert {path.stem for path in HERE.glob("*.binpb")} == {path.stem for path in HERE.glob("*.proto")}
