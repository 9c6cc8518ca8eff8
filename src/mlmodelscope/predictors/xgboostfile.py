"""Turns an XGBoost model file (JSON or UBJSON) into a checked document, before the library sees it.

The library follows the numbers of a damaged tree out of its memory. Whatever is wrong here is a ValueError.
"""

import json
import struct
from typing import Any, Dict, List, Tuple

__all__ = ["read_model"]

# UBJSON's signs for numbers; all are big-endian
_NUMBERS = {b"i": ">b", b"U": ">B", b"I": ">h", b"l": ">i", b"L": ">q", b"d": ">f", b"D": ">d"}
_CONSTANTS = {b"T": True, b"F": False, b"Z": None}
_DEEPEST = 64


def read_model(path: str) -> Dict[str, Any]:
    """The document, when it is whole, holds an XGBoost model, and its trees lead nowhere but to their own leaves."""
    with open(path, "rb") as file:
        content = file.read()
    try:
        document = json.loads(content.decode("utf-8")) if _is_text(content) else _Reader(content).document()
        learner = document["learner"]
        features = int(learner["learner_model_param"]["num_feature"])
        booster = learner["gradient_booster"]
        # dart keeps its trees one level deeper, gblinear has none
        model = booster.get("gbtree", booster).get("model", {})
        owners = [int(owner) for owner in model.get("tree_info", [])]
        trees = model.get("trees", [])
        classes = max(1, int(learner["learner_model_param"].get("num_class", 0)))
        targets = max(1, int(learner["learner_model_param"].get("num_target", 1)))
        if len(owners) != len(trees) or any(not 0 <= owner < max(classes, targets) for owner in owners):
            raise ValueError("trees that belong to no class")
        for tree in trees:
            _check_tree(tree, features)
    except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, struct.error) as error:
        raise ValueError(f"it holds no XGBoost model: {error!r}") from error
    return dict(document)


def _is_text(content: bytes) -> bool:
    # the key behind the brace has a length in UBJSON, quotes in JSON
    return content[1:].lstrip()[:1] == b'"'


def _check_tree(tree: Dict[str, Any], features: int) -> None:
    left, right, split = tree["left_children"], tree["right_children"], tree["split_indices"]
    parents = tree["parents"]
    count = len(left)
    if not count or int(tree["tree_param"]["num_nodes"]) != count:
        raise ValueError("a tree without nodes, or with others than it says")
    for name in ("right_children", "split_indices", "split_conditions", "default_left", "base_weights", "parents"):
        # trees of several targets hold a weight for each
        if len(tree[name]) != count and name != "base_weights":
            raise ValueError(f"a tree with {len(tree[name])} {name} for {count} nodes")
    vectors = _vectors(tree)
    for place in range(count):
        # a leaf with a value for each of several targets says on the right which of the vectors is its own
        if left[place] == -1 and (right[place] == -1 or 0 <= right[place] < vectors):
            continue
        # children come behind their parents: a walk always ends
        if not (place < left[place] < count and place < right[place] < count and 0 <= split[place] < features):
            raise ValueError(f"node {place} of a tree leads nowhere")
        if parents[left[place]] != place or parents[right[place]] != place:
            raise ValueError(f"the children of node {place} have another parent")
    if any(not -1 <= parent < count for parent in parents[1:]):
        raise ValueError("a node has a parent that is not there")
    if any(kind not in (0, 1) for kind in tree.get("split_type", [])):
        raise ValueError("a split of an unknown kind")


def _vectors(tree: Dict[str, Any]) -> int:
    """How many vectors for leaves a tree of several targets holds; none in any other tree."""
    width = int(tree["tree_param"].get("size_leaf_vector", 1))
    return len(tree.get("leaf_weights", [])) // width if width > 1 else 0


class _Reader(object):
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._place = 0

    def document(self) -> Any:
        value = self._value(self._take(1), 0)
        if self._place != len(self._content):
            raise ValueError("there is more behind the model")
        return value

    def _take(self, size: int) -> bytes:
        if size < 0 or self._place + size > len(self._content):
            raise ValueError("it is cut short")
        self._place += size
        return self._content[self._place - size : self._place]

    def _value(self, sign: bytes, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("it is nested too deep")
        if sign in _NUMBERS:
            form = _NUMBERS[sign]
            return struct.unpack(form, self._take(struct.calcsize(form)))[0]
        if sign == b"S":
            return self._text()
        if sign == b"C":
            return self._take(1).decode("latin-1")
        if sign == b"[":
            return self._array(depth)
        if sign == b"{":
            return self._object(depth)
        if sign in _CONSTANTS:
            return _CONSTANTS[sign]
        raise ValueError(f"{sign!r} stands for nothing")

    def _length(self) -> int:
        sign = self._take(1)
        if sign not in _NUMBERS or sign in b"dD":
            raise ValueError("a length that is no number")
        return int(self._value(sign, 0))

    def _text(self) -> str:
        return self._take(self._length()).decode("utf-8")

    def _typed(self) -> Tuple[bytes, int]:
        """The sign of all elements (b"" for any) and their number (-1 when a bracket ends them)."""
        sign, count = b"", -1
        if self._content[self._place : self._place + 1] == b"$":
            self._take(1)
            sign = self._take(1)
        if self._content[self._place : self._place + 1] == b"#":
            self._take(1)
            count = self._length()
        elif sign:
            raise ValueError("elements of one type without their number")
        return sign, count

    def _array(self, depth: int) -> List[Any]:
        sign, count = self._typed()
        if sign in _NUMBERS and count >= 0:
            form = _NUMBERS[sign]
            data = self._take(struct.calcsize(form) * count)
            return list(struct.unpack(f">{count}{form[1]}", data))
        values: List[Any] = []
        while count < 0 or len(values) < count:
            next_sign = sign or self._take(1)
            if next_sign == b"]" and count < 0:
                break
            values.append(self._value(next_sign, depth + 1))
        return values

    def _object(self, depth: int) -> Dict[str, Any]:
        sign, count = self._typed()
        values: Dict[str, Any] = {}
        while count < 0 or len(values) < count:
            if count < 0 and self._content[self._place : self._place + 1] == b"}":
                self._take(1)
                break
            key = self._text()
            values[key] = self._value(sign or self._take(1), depth + 1)
        return values
