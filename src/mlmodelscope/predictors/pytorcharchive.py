"""Turns a torch.export archive into a verdict: that to read and call it runs PyTorch's operators and nothing else.

Pickles and compiled libraries are only one way in. PyTorch also finds operators by looking up attributes, gives
expressions to sympy's parser, which evaluates them, and writes Python from names and guards. So every text of the file
is held to what PyTorch itself writes at that place.
"""

import hashlib
import io
import json
import os
import zipfile
from collections import Counter
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.predictors.pytorchtexts import is_expression, is_guard, is_operator, is_plain, is_tree

__all__ = ["check_archive"]

# a program of a hundred thousand nodes takes less; a small archive can unpack to anything
_LARGEST_PROGRAM_BYTES = 256 << 20
# how PyTorch 2.7 and older named the parts
_OLD_PROGRAM = "serialized_exported_program.json"
_OLD_PICKLES = ("serialized_constants.json", "serialized_state_dict.json")
# where PyTorch looks for each part
_PROGRAMS = "models/"
_WEIGHTS = "data/weights/"
_CONSTANTS = "data/constants/"
_COMPILED = "data/aotinductor/"
# handed to the caller as text, and never looked at
_EXTRA = "extra/"
# fields that hold names of the file's own beside values, not fields
_MAPS = (
    "as_string_to_argument",
    "config",
    "custom_obj_values",
    "metadata",
    "opset_version",
    "range_constraints",
    "sym_bool_values",
    "sym_float_values",
    "sym_int_values",
    "tensor_values",
    "treespec_namedtuple_fields",
)
# these become names in Python that PyTorch writes
_NAMES = ("as_name", "field_names", "forward_arg_names", "name", "user_input_name")
_HINT = "export the model again: torch.export.save of the plain program, without compiled parts and custom objects"

Fields = Tuple[str, str, str]


class _View(NamedTuple):
    """What one reader finds in the archive. A member's name is PyTorch's, without the folder that all members share."""

    names: List[str]
    size: Callable[[str], int]
    read: Callable[[str], bytes]


def check_archive(torch: Any, path: str) -> None:
    """Raises a fault where the archive holds anything that could run code of its own."""
    seen: Set[bytes] = set()
    with zipfile.ZipFile(path) as archive:
        view = _python_view(archive)
        _check_members(torch, path, view, seen)
    # the reader that loads the file may see another directory in it than Python's does
    native = _native_view(torch, path)
    if native is not None:
        odd = sorted(set(native.names) ^ set(view.names))
        if odd:
            raise _refused(path, f"holds a member that not every reader of archives finds: {odd[0]}", odd)
        _check_members(torch, path, native, seen)


def _python_view(archive: zipfile.ZipFile) -> _View:
    names = archive.namelist()
    root = names[0].partition("/")[0] + "/" if names else ""
    if not all(name.startswith(root) for name in names):  # PyTorch 2.7 and older had no folder round the members
        root = ""
    return _View(
        _without_extra(name[len(root) :] for name in names),
        lambda name: archive.getinfo(root + name).file_size,
        lambda name: archive.read(root + name),
    )


def _native_view(torch: Any, path: str) -> Optional[_View]:
    try:
        reader = torch._C.PyTorchFileReader(path)  # noqa: SLF001 - there is no public one
    except (AttributeError, RuntimeError):  # what it cannot open it cannot load: older files are read with zipfile
        return None
    names = _without_extra(reader.get_all_records())
    return _View(names, getattr(reader, "get_record_size", lambda _: 0), reader.get_record)


def _check_members(torch: Any, path: str, view: _View, seen: Set[bytes]) -> None:
    """`seen` are digests of what was found harmless."""
    # PyTorch's reader finds a member in any case
    lowered = Counter(name.lower() for name in view.names)
    pickles = [name for name in view.names if name.lower().endswith(".pt") or name in _OLD_PICKLES]
    opaque = [name for name in view.names if lowered[name.lower()] > 1 or "opaque_obj" in name.lower()]
    for name in view.names:
        if name.startswith(_COMPILED):
            raise _refused(path, f"holds a compiled library, which could run any code: {name}", [name])
        if name.startswith(_PROGRAMS) and "/" in name[len(_PROGRAMS) :]:
            raise _refused(path, f"holds a program in a folder of its own: {name}", [name])
        if name.endswith("_config.json"):
            pickles += _pickled(name, _read_document(path, view, name, seen))
        elif name.startswith(_PROGRAMS) or name == _OLD_PROGRAM:
            _read_document(path, view, name, seen)
    for name in pickles:
        content = view.read(name)
        if not content or not _is_new(content, seen):
            continue
        try:
            held = torch.load(io.BytesIO(content), weights_only=True)
        except Exception:  # whatever it is, it is more than tensors
            opaque.append(name)
            continue
        _check_texts(path, name, ((("", "", "key"), text) for text in _texts_of(held)))
    if opaque:
        raise _refused(path, f"holds pickled Python objects, which could run any code: {opaque[0]}", opaque)


def _without_extra(names: Iterable[str]) -> List[str]:
    return [name for name in names if not name.startswith(_EXTRA)]


def _is_new(content: bytes, seen: Set[bytes]) -> bool:
    digest = hashlib.sha256(content).digest()
    is_new = digest not in seen
    seen.add(digest)
    return is_new


def _read_document(path: str, view: _View, name: str, seen: Set[bytes]) -> Any:
    """A member of JSON, once none of its texts is odd."""
    if view.size(name) > _LARGEST_PROGRAM_BYTES:
        raise _refused(path, f"holds a program too large to be looked through: {name}", [name])
    content = view.read(name)
    document = json.loads(content.decode("utf-8"))
    if _is_new(content, seen):
        _check_texts(path, name, _texts(document))
    return document


def _pickled(config: str, document: Dict[str, Any]) -> List[str]:
    """The members that a list of weights or constants says to unpickle."""
    folder = _CONSTANTS if config.startswith(_CONSTANTS) else _WEIGHTS
    entries = document.get("config", {}).values()
    return [
        os.path.join(folder, entry["path_name"])
        for entry in entries
        if entry.get("use_pickle") or entry["path_name"].startswith(("custom_obj", "opaque_obj"))
    ]


def _check_texts(path: str, member: str, texts: Iterator[Tuple[Fields, str]]) -> None:
    for fields, text in texts:
        if not _is_harmless(fields, text):
            short = text if len(text) <= 80 else text[:77] + "..."
            raise PredictorFault(
                "model_format",
                f"{path} could run code of its own: {fields[2]} in {member} is {short!r}",
                hint=_HINT,
                path=path,
                members=[member],
                field=fields[2],
                got=text[:1000],
            )


def _texts(document: Any) -> Iterator[Tuple[Fields, str]]:
    """Every text and the last three fields that lead to it; names in a map are texts too."""
    waiting: List[Tuple[Any, Fields]] = [(document, ("", "", ""))]
    while waiting:
        value, fields = waiting.pop()
        if isinstance(value, str):
            yield fields, value
        elif isinstance(value, list):
            waiting.extend((item, fields) for item in value)
        elif isinstance(value, dict):
            is_map = fields[2] in _MAPS
            for key, item in value.items():
                if is_map:
                    yield (fields[1], fields[2], "key"), key
                waiting.append((item, (fields[1], fields[2], fields[2] + "[]" if is_map else key)))


def _texts_of(held: Any) -> Iterator[str]:
    """Every text in what a pickle of tensors holds beside them."""
    waiting = [held]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple, set)):
            waiting += list(value)


def _is_harmless(fields: Fields, text: str) -> bool:
    field = fields[2]
    if field == "metadata[]" or (fields[:2] == ("inputs", "arg") and field in ("as_string", "as_strings")):
        # notes, and what operators are given: never read as code
        return True
    if fields[1:] == ("range_constraints", "key"):
        return is_expression(text)
    if field in _NAMES:
        return text == "" or text.isidentifier()
    if field in ("in_spec", "out_spec"):
        return is_tree(text, field == "in_spec")
    check = {"as_operator": is_operator, "expr_str": is_expression, "guards_code": is_guard, "target": is_operator}
    return check.get(field, is_plain)(text)


def _refused(path: str, what: str, members: List[str]) -> PredictorFault:
    return PredictorFault("model_format", f"{path} {what}", hint=_HINT, path=path, members=members)
