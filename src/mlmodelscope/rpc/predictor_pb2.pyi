from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OpenRequest(_message.Message):
    __slots__ = ("graph_path", "weights_path", "graph", "weights", "inputs", "outputs", "threads", "options_json", "shared")
    GRAPH_PATH_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_PATH_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_JSON_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    graph_path: str
    weights_path: str
    graph: bytes
    weights: bytes
    inputs: _containers.RepeatedCompositeFieldContainer[LayerChoice]
    outputs: _containers.RepeatedCompositeFieldContainer[LayerChoice]
    threads: int
    options_json: str
    shared: SharedFile
    def __init__(self, graph_path: _Optional[str] = ..., weights_path: _Optional[str] = ..., graph: _Optional[bytes] = ..., weights: _Optional[bytes] = ..., inputs: _Optional[_Iterable[_Union[LayerChoice, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[LayerChoice, _Mapping]]] = ..., threads: _Optional[int] = ..., options_json: _Optional[str] = ..., shared: _Optional[_Union[SharedFile, _Mapping]] = ...) -> None: ...

class LayerChoice(_message.Message):
    __slots__ = ("name", "index", "element_type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    index: int
    element_type: str
    def __init__(self, name: _Optional[str] = ..., index: _Optional[int] = ..., element_type: _Optional[str] = ...) -> None: ...

class SharedFile(_message.Message):
    __slots__ = ("name", "size", "token", "is_locked")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    IS_LOCKED_FIELD_NUMBER: _ClassVar[int]
    name: str
    size: int
    token: bytes
    is_locked: bool
    def __init__(self, name: _Optional[str] = ..., size: _Optional[int] = ..., token: _Optional[bytes] = ..., is_locked: _Optional[bool] = ...) -> None: ...

class ModelHandle(_message.Message):
    __slots__ = ("id", "fault", "facts", "has_mapped", "is_simulated")
    ID_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    HAS_MAPPED_FIELD_NUMBER: _ClassVar[int]
    IS_SIMULATED_FIELD_NUMBER: _ClassVar[int]
    id: str
    fault: Fault
    facts: Facts
    has_mapped: bool
    is_simulated: bool
    def __init__(self, id: _Optional[str] = ..., fault: _Optional[_Union[Fault, _Mapping]] = ..., facts: _Optional[_Union[Facts, _Mapping]] = ..., has_mapped: _Optional[bool] = ..., is_simulated: _Optional[bool] = ...) -> None: ...

class Facts(_message.Message):
    __slots__ = ("framework", "version", "threads", "provider", "device", "library", "optimization", "precision", "inputs", "outputs")
    FRAMEWORK_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    LIBRARY_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZATION_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    framework: str
    version: str
    threads: int
    provider: str
    device: str
    library: str
    optimization: str
    precision: str
    inputs: _containers.RepeatedCompositeFieldContainer[LayerFact]
    outputs: _containers.RepeatedCompositeFieldContainer[LayerFact]
    def __init__(self, framework: _Optional[str] = ..., version: _Optional[str] = ..., threads: _Optional[int] = ..., provider: _Optional[str] = ..., device: _Optional[str] = ..., library: _Optional[str] = ..., optimization: _Optional[str] = ..., precision: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[LayerFact, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[LayerFact, _Mapping]]] = ...) -> None: ...

class LayerFact(_message.Message):
    __slots__ = ("name", "element_type", "shape", "is_unranked")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    IS_UNRANKED_FIELD_NUMBER: _ClassVar[int]
    name: str
    element_type: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    is_unranked: bool
    def __init__(self, name: _Optional[str] = ..., element_type: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., is_unranked: _Optional[bool] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("element_type", "shape", "data", "region")
    ELEMENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    element_type: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    region: Region
    def __init__(self, element_type: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ..., region: _Optional[_Union[Region, _Mapping]] = ...) -> None: ...

class Region(_message.Message):
    __slots__ = ("offset", "size")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    size: int
    def __init__(self, offset: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...

class PredictRequest(_message.Message):
    __slots__ = ("id", "inputs", "answer")
    ID_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    id: str
    inputs: _containers.RepeatedCompositeFieldContainer[Tensor]
    answer: Region
    def __init__(self, id: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., answer: _Optional[_Union[Region, _Mapping]] = ...) -> None: ...

class PredictionResponse(_message.Message):
    __slots__ = ("outputs", "fault", "simulated_ns")
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    SIMULATED_NS_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.RepeatedCompositeFieldContainer[Tensor]
    fault: Fault
    simulated_ns: int
    def __init__(self, outputs: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., fault: _Optional[_Union[Fault, _Mapping]] = ..., simulated_ns: _Optional[int] = ...) -> None: ...

class CloseResponse(_message.Message):
    __slots__ = ("fault",)
    FAULT_FIELD_NUMBER: _ClassVar[int]
    fault: Fault
    def __init__(self, fault: _Optional[_Union[Fault, _Mapping]] = ...) -> None: ...

class Fault(_message.Message):
    __slots__ = ("code", "message", "hint", "fields_json")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    FIELDS_JSON_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    hint: str
    fields_json: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., hint: _Optional[str] = ..., fields_json: _Optional[str] = ...) -> None: ...
