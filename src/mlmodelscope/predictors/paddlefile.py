"""Turns a Paddle program file into its inputs, outputs and parameters, without the framework.

Paddle 3 writes JSON (its PIR), Paddle 2 a protobuf message (ProgramDesc). Whatever is wrong is a ValueError.
"""

import json
import mmap
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from mlmodelscope.predictors.modelfile import message_fields

__all__ = ["Program", "read_program"]

Facts = List[Dict[str, Any]]

_PIR_TYPES = {
    "t_f16": "float16", "t_bf16": "bfloat16", "t_f32": "float32", "t_f64": "float64", "t_bool": "bool",
    "t_i8": "int8", "t_ui8": "uint8", "t_i16": "int16", "t_i32": "int32", "t_i64": "int64", "t_index": "int64",
}  # fmt: skip
# numbers of framework.proto
_PROTO_TYPES = {
    0: "bool", 1: "int16", 2: "int32", 3: "int64", 4: "float16", 5: "float32", 6: "float64", 20: "uint8", 21: "int8",
    22: "bfloat16",
}  # fmt: skip
_LARGEST = 1 << 28


class Program(NamedTuple):
    """`inputs` and `outputs` are facts of layers; `parameters` how many elements there are of each type."""

    inputs: Facts
    outputs: Facts
    parameters: Dict[str, int]


def read_program(path: str) -> Program:
    with open(path, "rb") as file:
        start = file.read(1)
    if not start:
        raise ValueError("it is empty")
    program = _read_pir(path) if start == b"{" else _read_proto(path)
    if not program.outputs:
        raise ValueError("it has no outputs")
    return program


def _read_pir(path: str) -> Program:
    with open(path, encoding="utf-8") as file:
        text = file.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise ValueError("it is larger than any program")
    try:
        document = json.loads(text)
        if document["base_code"]["magic"] != "pir":
            raise ValueError("it is JSON, but no program")
        operations = document["program"]["regions"][0]["blocks"][0]["ops"]
        return _collect_pir(operations)
    except (AttributeError, IndexError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"it is JSON, but no program: {error!r}") from error


def _collect_pir(operations: List[Dict[str, Any]]) -> Program:
    inputs: Facts = []
    outputs: Facts = []
    parameters: Dict[str, int] = {}
    for operation in operations:
        kind = str(operation["#"]).rpartition(".")[2]
        if kind == "p":
            shape, element = _pir_tensor(operation["O"])
            count = 1
            for size in shape:
                count *= size or 1
            parameters[element] = parameters.get(element, 0) + count
        elif kind in ("data", "fetch"):
            shape, element = _pir_tensor(operation["O"][0])
            fact = {"name": _pir_name(operation), "shape": shape, "element_type": element}
            (inputs if kind == "data" else outputs).append(fact)
    return Program(inputs, outputs, parameters)


def _pir_tensor(result: Dict[str, Any]) -> Tuple[List[Any], str]:
    described = result["TT"]["D"]
    element = str(described[0]["#"]).rpartition(".")[2]
    return [int(size) if size > 0 else None for size in described[1]], _PIR_TYPES.get(element, "unknown")


def _pir_name(operation: Dict[str, Any]) -> str:
    return next(str(attribute["AT"]["D"]) for attribute in operation["A"] if attribute["N"] == "name")


def _read_proto(path: str) -> Program:
    """Block 0: variables by name, and the operators `feed` and `fetch` that say which of them are in- and outputs."""
    facts: Dict[str, Dict[str, Any]] = {}
    parameters: Dict[str, int] = {}
    names: Dict[str, List[Tuple[int, str]]] = {"feed": [], "fetch": []}
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        block = next(_parts(data, (0, len(data)), 1), None)
        if block is None:
            raise ValueError("it has no block")
        for span in _parts(data, block, 3):
            name, fact, is_kept = _proto_variable(data, span)
            facts[name] = fact
            if is_kept and fact["shape"]:
                count = 1
                for size in fact["shape"]:
                    count *= size or 1
                parameters[fact["element_type"]] = parameters.get(fact["element_type"], 0) + count
        for span in _parts(data, block, 4):
            kind = "".join(_text(data, part) for part in _parts(data, span, 3))
            if kind in names:
                names[kind].append((_proto_column(data, span), _proto_argument(data, span, 2 if kind == "feed" else 1)))
    unknown = {"shape": None, "element_type": "unknown"}
    inputs, outputs = (
        [dict(facts.get(name, unknown), name=name) for _, name in sorted(names[kind])] for kind in ("feed", "fetch")
    )
    return Program(inputs, outputs, parameters)


def _parts(data: Any, span: Tuple[int, int], wanted: int) -> Iterator[Tuple[int, int]]:
    for number, value in message_fields(data, span[0], span[1]):
        if number == wanted and isinstance(value, tuple):
            yield value


def _text(data: Any, span: Tuple[int, int]) -> str:
    return bytes(data[span[0] : span[1]]).decode("utf-8", "replace")


def _proto_variable(data: Any, span: Tuple[int, int]) -> Tuple[str, Dict[str, Any], bool]:
    name = "".join(_text(data, part) for part in _parts(data, span, 1))
    is_kept = any(number == 3 and value == 1 for number, value in message_fields(data, span[0], span[1]))
    element, shape = "unknown", []  # type: Tuple[str, List[Any]]
    for kind in _parts(data, span, 2):
        for dense in _parts(data, kind, 3):
            for tensor in _parts(data, dense, 1):
                for number, value in message_fields(data, tensor[0], tensor[1]):
                    if number == 1 and isinstance(value, int):
                        element = _PROTO_TYPES.get(value, "unknown")
                    elif number == 2 and isinstance(value, int):
                        # an open size is -1, which a varint says with its top bit
                        shape.append(value if 0 < value < 1 << 31 else None)
    return name, {"name": name, "shape": shape, "element_type": element}, is_kept


def _proto_argument(data: Any, span: Tuple[int, int], side: int) -> str:
    for variable in _parts(data, span, side):
        for argument in _parts(data, variable, 2):
            return _text(data, argument)
    raise ValueError("a feed or fetch without a variable")


def _proto_column(data: Any, span: Tuple[int, int]) -> int:
    for attribute in _parts(data, span, 4):
        if "".join(_text(data, part) for part in _parts(data, attribute, 1)) == "col":
            for number, value in message_fields(data, attribute[0], attribute[1]):
                if number == 3 and isinstance(value, int):
                    return value
    return 0
