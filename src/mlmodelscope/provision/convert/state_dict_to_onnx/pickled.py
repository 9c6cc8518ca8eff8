"""A pickle of torch tensors to plain values, by a small reader of its own that can call nothing.

Python's unpickler is not used: even with a restricted `find_class` a hostile file can make it allocate by a declared
index or overflow the C stack while hashing. Here a pickle is a list of instructions over plain containers; the few
allowed globals are tokens, and only three of them may be "called", each by code below.
"""

from __future__ import annotations

import pickletools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, Protocol, cast

from mlmodelscope.core.errors import ConvertError

__all__ = ["STORAGE_ELEMENTS", "ByteSource", "StorageRef", "TensorRef", "read_pickle"]

_INSTRUCTION_LIMIT = 2_000_000
_RANK_LIMIT = 16

# Storage class -> the kind of element, in numpy's words; numpy has no bfloat16.
STORAGE_ELEMENTS = {
    "BFloat16Storage": "bfloat16",
    "BoolStorage": "bool",
    "ByteStorage": "u1",
    "CharStorage": "i1",
    "DoubleStorage": "f8",
    "FloatStorage": "f4",
    "HalfStorage": "f2",
    "IntStorage": "i4",
    "LongStorage": "i8",
    "ShortStorage": "i2",
}


class ByteSource(Protocol):
    """Reads at most what is there, whatever is asked for: a declared length allocates nothing."""

    def read(self, size: int, /) -> bytes: ...
    def readline(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class StorageRef:
    """A run of elements kept outside the pickle."""

    key: str
    elements: str
    count: int


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A strided view of a storage; offsets and strides count elements. Not yet checked against the storage."""

    storage: StorageRef
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Global:
    name: str


@dataclass(frozen=True, slots=True)
class _StorageClass:
    elements: str


class _Mark:
    pass


_ORDERED_DICT = "collections.OrderedDict"
_REBUILD_PARAMETER = "torch._utils._rebuild_parameter"
_REBUILD_TENSORS = ("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2")
_CALLABLE = (_ORDERED_DICT, _REBUILD_PARAMETER, *_REBUILD_TENSORS)


def _resolve(module: str, name: str) -> _Global | _StorageClass:
    full = f"{module}.{name}"
    if module == "torch" and name in STORAGE_ELEMENTS:
        return _StorageClass(STORAGE_ELEMENTS[name])
    if full in _CALLABLE:
        return _Global(full)
    raise ConvertError(
        f"the file asks for {full}, which is not part of a state dict",
        hint="save only the state dict: torch.save(model.state_dict(), path)",
        global_name=full,
    )


def _natural_numbers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple) or len(value) > _RANK_LIMIT:
        raise ConvertError("a tensor's shape or strides are no short tuple")
    if not all(type(item) is int and item >= 0 for item in value):
        raise ConvertError("a tensor's shape or strides are not whole numbers")
    return value


def _call(function: Any, arguments: Any) -> Any:
    if not isinstance(function, _Global) or not isinstance(arguments, tuple):
        raise ConvertError("the pickle calls something that is not a tensor constructor")
    if function.name == _ORDERED_DICT:
        if arguments:
            raise ConvertError("the pickle builds an OrderedDict in an unknown way")
        return {}
    if function.name == _REBUILD_PARAMETER:
        if not arguments or not isinstance(arguments[0], TensorRef):
            raise ConvertError("the pickle builds a parameter from something that is no tensor")
        return arguments[0]
    if len(arguments) < 4 or not isinstance(arguments[0], StorageRef):
        raise ConvertError("the pickle builds a tensor from something that is no storage")
    (offset,) = _natural_numbers((arguments[1],))
    return TensorRef(arguments[0], offset, _natural_numbers(arguments[2]), _natural_numbers(arguments[3]))


def _storage(identity: Any) -> StorageRef:
    """('storage', class, key, device, count), and in legacy files the view of another storage or None."""
    if not isinstance(identity, tuple) or len(identity) not in (5, 6) or identity[0] != "storage":
        raise ConvertError("the pickle refers to something outside it that is no storage")
    _, kind, key, _, count = identity[:5]
    if not isinstance(kind, _StorageClass) or not isinstance(key, str) or type(count) is not int or count < 0:
        raise ConvertError("the pickle describes a storage in an unknown way")
    if len(identity) == 6 and identity[5] is not None:
        raise ConvertError("storages that are views of others (torch before 0.4) are not supported")
    return StorageRef(key, kind.elements, count)


class _Reader:
    """The state of one reading: a stack of values, and the memo by which a pickle refers back to them."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def pop(self) -> Any:
        if not self.stack:
            raise ConvertError("the pickle takes more values than it made")
        return self.stack.pop()

    def pop_marked(self) -> list[Any]:
        for position in range(len(self.stack) - 1, -1, -1):
            if isinstance(self.stack[position], _Mark):
                values = self.stack[position + 1 :]
                del self.stack[position:]
                return values
        raise ConvertError("the pickle ends a group it never began")

    def pop_last(self, count: int) -> tuple[Any, ...]:
        return tuple(reversed([self.pop() for _ in range(count)]))

    def top(self, kind: type[Any]) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise ConvertError(f"the pickle fills something that is no {kind.__name__}")
        return self.stack[-1]

    def set_items(self, values: list[Any]) -> None:
        target = self.top(dict)
        if len(values) % 2:
            raise ConvertError("the pickle sets a key without a value")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, str | int):
                raise ConvertError(f"a key of the state dict is no text: {type(key).__name__}")
            target[key] = value

    def build(self) -> None:
        # Attributes of an OrderedDict, such as torch's `_metadata`: no part of the weights.
        self.pop()
        self.top(dict)

    def extend(self, values: list[Any]) -> None:
        self.top(list).extend(values)

    def remember(self, index: int) -> None:
        self.memo[index] = self.top(object)

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise ConvertError("the pickle refers to a value it never made")
        self.stack.append(self.memo[index])

    def push_global(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise ConvertError("the pickle names a global without text")
        self.stack.append(_resolve(module, name))


def _new_call(reader: _Reader) -> None:
    function, arguments = reader.pop_last(2)
    reader.stack.append(_call(function, arguments))


_Action = Callable[[_Reader, Any], None]


def _push(reader: _Reader, value: Any) -> None:
    reader.stack.append(value)


# pickletools has already decoded the argument of each of these.
_LITERALS = (
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "BINUNICODE8", "SHORT_BINUNICODE"),
    *("BINBYTES", "BINSTRING", "SHORT_BINBYTES", "SHORT_BINSTRING"),
)

_ACTIONS: dict[str, _Action] = {
    **dict.fromkeys(_LITERALS, _push),
    "APPEND": lambda r, _: r.extend([r.pop()]),
    "APPENDS": lambda r, _: r.extend(r.pop_marked()),
    "BINGET": lambda r, index: r.recall(index),
    "BINPERSID": lambda r, _: _push(r, _storage(r.pop())),
    "BINPUT": lambda r, index: r.remember(index),
    "BUILD": lambda r, _: r.build(),
    "EMPTY_DICT": lambda r, _: _push(r, {}),
    "EMPTY_LIST": lambda r, _: _push(r, []),
    "EMPTY_TUPLE": lambda r, _: _push(r, ()),
    "FRAME": lambda *_: None,
    "GLOBAL": lambda r, name: r.push_global(*name.split(" ", 1)),
    "LONG_BINGET": lambda r, index: r.recall(index),
    "LONG_BINPUT": lambda r, index: r.remember(index),
    "MARK": lambda r, _: _push(r, _Mark()),
    "MEMOIZE": lambda r, _: r.remember(len(r.memo)),
    "NEWFALSE": lambda r, _: _push(r, False),
    "NEWTRUE": lambda r, _: _push(r, True),
    "NONE": lambda r, _: _push(r, None),
    "PROTO": lambda *_: None,
    "REDUCE": lambda r, _: _new_call(r),
    "SETITEM": lambda r, _: r.set_items(list(r.pop_last(2))),
    "SETITEMS": lambda r, _: r.set_items(r.pop_marked()),
    "STACK_GLOBAL": lambda r, _: r.push_global(*r.pop_last(2)),
    "TUPLE": lambda r, _: _push(r, tuple(r.pop_marked())),
    "TUPLE1": lambda r, _: _push(r, r.pop_last(1)),
    "TUPLE2": lambda r, _: _push(r, r.pop_last(2)),
    "TUPLE3": lambda r, _: _push(r, r.pop_last(3)),
}


def read_pickle(source: ByteSource) -> Any:
    """The value of the next pickle in `source`, which is left just behind it.

    Raises ConvertError for an instruction, global or structure that a state dict does not need, and ValueError
    (from pickletools) where the bytes are no pickle.
    """
    reader = _Reader()
    with warnings.catch_warnings():
        # pickletools warns about odd escapes in text that is refused anyway
        warnings.simplefilter("ignore", DeprecationWarning)
        for count, (instruction, argument, _) in enumerate(pickletools.genops(cast(IO[bytes], source))):
            if instruction.name == "STOP":
                break
            action = _ACTIONS.get(instruction.name)
            if action is None:
                raise ConvertError(f"the pickle uses {instruction.name}, which a state dict does not need")
            if count >= _INSTRUCTION_LIMIT:
                raise ConvertError("the pickle is far longer than that of a state dict")
            action(reader, argument)
    value = reader.pop()
    if reader.stack:
        raise ConvertError("the pickle leaves values behind")
    return value
