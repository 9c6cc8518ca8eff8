"""Tells for a text of a torch.export file whether it is of the kind that PyTorch writes there, and so cannot run code.

What is not known here is refused: a list of what is dangerous would never be complete.
"""

import json
import re
from typing import Any, List

__all__ = ["is_expression", "is_guard", "is_operator", "is_plain", "is_tree"]

_PLAIN = re.compile(r"[\w.\-+/:@, ]*")
_SYMBOL = re.compile(r"[a-z]{1,4}\d+")
_TOKEN = re.compile(
    r" *(?:(?P<keyword>[a-z]\w*=(?!=))"
    r"|(?P<word>[A-Za-z_]\w*(?:\.\w+)*)"
    r"|(?P<number>\d+(?:\.\d*)?(?:e[+-]?\d+)?(?!\w))"
    r"|(?P<string>'(?:[A-Za-z]\w*|[+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?)')"
    r"|(?P<operator>\*\*|//|<<|>>|[<>=!]=|[-+*/%<>&|^~(),])) *"
)
# beside sympy's own, what torch.utils._sympy.functions defines
_FUNCTIONS = set(
    "Abs Add And CeilDiv CeilToInt CleanDiv Dummy Eq Equality ExprCondPair Float FloatPow FloatTrueDiv FloorDiv"
    " FloorToInt Ge GreaterThan Gt ITE Identity Implies IntTrueDiv Integer IsNonOverlappingAndDenseIndicator LShift Le"
    " LessThan Lt Max Min Mod ModularIndexing Mul Ne Not Or Piecewise Pow PowByNatural PythonMod RShift Rational"
    " RoundDecimal RoundToInt StrictGreaterThan StrictLessThan Symbol ToFloat TruncToFloat TruncToInt Tuple Unequality"
    " Where Xor acos asin atan ceiling cos cosh exp floor log sign sin sinh sqrt tan tanh".split()
)
_OPAQUE_FUNCTION = re.compile(r"(?:OpaqueUnaryFn|BitwiseFn)_[a-z_0-9]+")
_VALUES = {"E", "False", "None", "True", "false", "int_oo", "nan", "oo", "pi", "true", "zoo"}

# L stands for the inputs, by name and by place
_SOURCE = re.compile(
    r"\bL(?:\['[\w.\- ]+'\]|\[\d+\])+(?:\.(?:size|stride)\(\)\[\d+\]|\.(?:storage_offset|dim|item)\(\))?"
)
_GUARD_WORDS = {"abs", "and", "float", "inf", "int", "max", "min", "not", "or", "round"}
_GUARD_FUNCTION = re.compile(r"math\.[a-z]\w*|torch\.sym_\w+|torch\._sym_[a-z]\w*")

_NAMESPACES = "_quantized aten higher_order mkl mkldnn onednn prims quantized quantized_decomposed torchvision".split()
_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(_?[A-Za-z]\w*|__i?(?:and|or|xor|lshift|rshift)__)(?:\.([A-Za-z]\w*))?")
# they open files by a name that the model gives
_FILES = ("from_file", "save")
# those whose parts are graphs of the file; others call what they are given, or what was compiled before
_HIGHER_ORDER = set(
    "associative_scan auto_functionalized auto_functionalized_v2 cond flex_attention hints_wrapper invoke_subgraph map"
    " map_impl out_dtype run_const_graph scan strict_mode tag_activation_checkpoint while_loop with_effects wrap"
    " wrap_activation_checkpoint wrap_with_autocast wrap_with_set_grad_enabled".split()
)
_BUILTINS = set(
    "abs add and_ eq floordiv ge getitem gt le lshift lt mod mul ne neg not_ or_ pos pow rshift sub truediv".split()
)
_FUNCTION = re.compile(
    r"math\.(?:ceil|floor|trunc|sqrt)|torch\.sym_[a-z]+|torch\._sym_[a-z]\w*|torch\._C\._set_grad_enabled"
    r"|torch\.amp\.autocast_mode\._(?:enter|exit)_autocast"
    r"|torch\.fx\.experimental\.symbolic_shapes\.cast_symbool_to_symint_guardless"
    r"|torch\._functorch\.predispatch\.[a-z_]+"
)


def is_plain(text: str) -> bool:
    """Words, dotted names, numbers: nothing that could end a string or begin a call."""
    return _PLAIN.fullmatch(text) is not None


def is_expression(text: str) -> bool:
    """Numbers, symbols, operators and calls of functions that compute."""
    return _consists(text, is_guard=False)


def is_guard(text: str) -> bool:
    """A condition on sizes of inputs, in Python."""
    return _consists(_SOURCE.sub(" s0 ", text), is_guard=True)


def _consists(text: str, is_guard: bool) -> bool:
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None or not (found.lastgroup != "word" or _is_known(found.group("word"), is_guard)):
            return False
        place = found.end()
    return True


def _is_known(word: str, is_guard: bool) -> bool:
    if word in _FUNCTIONS or word in _VALUES or _SYMBOL.fullmatch(word) or _OPAQUE_FUNCTION.fullmatch(word):
        return True
    return is_guard and (word in _GUARD_WORDS or _GUARD_FUNCTION.fullmatch(word) is not None)


def is_operator(text: str) -> bool:
    found = _OPERATOR.fullmatch(text)
    if found is not None:
        space, name, _ = found.groups()
        if space == "higher_order":
            return name in _HIGHER_ORDER
        return space in _NAMESPACES and name not in _FILES
    module, _, name = text.partition(".")
    return (module == "_operator" and name in _BUILTINS) or _FUNCTION.fullmatch(text) is not None


def is_tree(text: str, names_arguments: bool) -> bool:
    """How values are nested in what goes in or comes out. PyTorch imports what some of its kinds name; keys of what
    goes in become names in Python."""
    waiting: List[Any] = [json.loads(text)[1]]
    while waiting:
        tree = waiting.pop()
        context = tree.get("context")
        if isinstance(context, str) and tree.get("type") != "collections.namedtuple":
            context = json.loads(context)
        if tree.get("type") == "collections.defaultdict" or _holds_objects(context):
            return False
        keys = context if isinstance(context, list) else []
        if names_arguments and not all(isinstance(key, str) and key.isidentifier() for key in keys):
            return False
        waiting += tree.get("children_spec") or []
    return True


def _holds_objects(context: Any) -> bool:
    """Whether there is anything but values and lists of them."""
    waiting = [context]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            return True
        if isinstance(value, list):
            waiting += value
    return False
