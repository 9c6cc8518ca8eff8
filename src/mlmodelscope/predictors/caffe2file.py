"""Turns a Caffe2 file into a net, and refuses one with operators that do more than compute.

A net's operators can run pickled Python, load libraries, open connections and touch any file: those are not run, at
whatever depth of nets inside operators they are.
"""

import warnings
from typing import Any, Iterator, List

from mlmodelscope.predictors.modelfile import describe_file
from mlmodelscope.predictors.port import PredictorFault, import_framework

__all__ = ["check_operators", "read_net"]

_CPU = 0
_DEPTH = 20
_ENGINE = "_ENGINE_"

_REACHING = {
    "Python": "runs Python code",
    "PythonGradient": "runs Python code",
    "PythonDLPack": "runs Python code",
    "PythonDLPackGradient": "runs Python code",
    "Onnxifi": "loads a library",
    "Checkpoint": "touches files",
    "CreateDB": "touches files",
    "CreateTextFileReader": "touches files",
    "DBExists": "touches files",
    "FileStoreHandlerCreate": "touches files",
    "ImageInput": "touches files",
    "Load": "touches files",
    "Save": "touches files",
    "Snapshot": "touches files",
    "TensorProtosDBInput": "touches files",
    "VideoInput": "touches files",
    "CloneCommonWorld": "opens connections",
    "CreateCommonWorld": "opens connections",
    "ReceiveTensor": "opens connections",
    "RedisStoreHandlerCreate": "opens connections",
    "SendTensor": "opens connections",
}
# the one argument with which operators that are harmless otherwise write a file, named by their input
_TO_FILE = "to_file"
# an operator of recurrent nets may hold its net as text
_TEXT_NETS = ("step_net", "backward_step_net")


def read_net(path: str) -> Any:
    messages = import_framework("caffe2", ["google.protobuf.message"])
    net = import_framework("caffe2", ["caffe2.proto.caffe2_pb2"]).NetDef()
    try:
        with open(path, "rb") as file, warnings.catch_warnings(record=True) as left_over:
            # bytes that are left over are only worth a warning to the parser
            warnings.simplefilter("always")
            net.ParseFromString(file.read())
    except (OSError, messages.DecodeError) as error:
        raise _no_net(path) from error
    if left_over or not net.op or any(not operator.type for operator in net.op):
        raise _no_net(path)
    return net


def _no_net(path: str) -> PredictorFault:
    looks = describe_file(path)
    return PredictorFault(
        "model_format",
        f"{path} is no Caffe2 net: it is {looks}",
        hint="graph_path is a predict net (predict_net.pb), weights_path its init net (init_net.pb)",
        path=path,
        expected="a Caffe2 net",
        got=looks,
    )


def check_operators(framework: Any, net: Any, path: str) -> None:
    known = set(framework.RegisteredOperators())
    nets = list(_nets_in(net, path, 0))
    operators = [operator for one in nets for operator in one.op]
    unknown = sorted({operator.type for operator in operators} - known)
    if unknown:
        raise PredictorFault(
            "model_format",
            f"{path} uses operators that this version of caffe2 does not have: {', '.join(unknown[:8])}",
            path=path,
            unknown=unknown,
        )
    for operator in operators:
        _check_reach(operator, path)
    devices = [one.device_option.device_type for one in operators + nets]
    if any(device != _CPU for device in devices):
        raise PredictorFault(
            "environment_missing",
            f"{path} asks for another device than the CPU",
            hint="remove the device option from the net",
            path=path,
        )


def _check_reach(operator: Any, path: str) -> None:
    what = _REACHING.get(operator.type.partition(_ENGINE)[0])
    if what is None and any(argument.name == _TO_FILE and argument.i for argument in operator.arg):
        what = "touches files"
    if what is not None:
        raise PredictorFault(
            "model_format",
            f"{path} has an operator {operator.type}, which {what} and is not run",
            hint="save a net that only computes: without operators for training, reading and writing",
            path=path,
            operator=operator.type,
        )


def _nets_in(net: Any, path: str, depth: int) -> Iterator[Any]:
    """The net, and those that its operators hold."""
    if depth > _DEPTH:
        raise PredictorFault("model_format", f"{path} has nets inside nets without end", path=path)
    yield net
    for operator in net.op:
        for argument in operator.arg:
            inner: List[Any] = [argument.n] if argument.HasField("n") else []
            if argument.name in _TEXT_NETS and argument.s:
                inner.append(_text_net(argument.s, path))
            for one in inner + list(argument.nets):
                yield from _nets_in(one, path, depth + 1)


def _text_net(text: bytes, path: str) -> Any:
    text_format = import_framework("caffe2", ["google.protobuf.text_format"])
    net = import_framework("caffe2", ["caffe2.proto.caffe2_pb2"]).NetDef()
    try:
        text_format.Merge(text.decode("utf-8"), net)
    except (UnicodeDecodeError, text_format.ParseError) as error:
        raise PredictorFault(
            "model_format", f"{path} holds a net as text that cannot be read: {error}", path=path, error=str(error)
        ) from error
    return net
