"""Turns Python source in a manifest into a `PythonFunction`: finds the function that is meant, and runs nothing."""

from __future__ import annotations

import ast
import warnings

from mlmodelscope.core.manifest import PythonFunction
from mlmodelscope.manifest.document import ScalarNode
from mlmodelscope.manifest.fields import Field
from mlmodelscope.manifest.problem import Place

__all__ = ["read_function"]

_HINT = "write def fun(env, data): ..."


def read_function(found: Field, stage: str) -> PythonFunction | None:
    """The function named `fun`, else the one named like the stage, else the only one of two parameters."""
    source = found.text()
    if source is None:
        return None
    tree = _parse(found, source)
    if tree is None:
        return None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name in ("fun", stage):
        if name in functions:
            if not _takes_two(functions[name]):
                place = _place_in(found, functions[name].lineno, functions[name].col_offset)
                message = f"{name} must take two parameters, the environment and the data"
                found.report.add("error", "function_signature", place, found.path, message, _HINT)
                return None
            return PythonFunction(name=name, source=source)
    fitting = [name for name, node in functions.items() if _takes_two(node)]
    if len(fitting) == 1:
        return PythonFunction(name=fitting[0], source=source)
    if fitting:
        message = f"several functions of two parameters: {', '.join(fitting)}"
        found.error("function_ambiguous", message, f"name the one that is meant fun or {stage}")
    else:
        found.error("function_missing", "no function of two parameters", _HINT)
    return None


def _parse(found: Field, source: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            # a dubious escape is the author's matter and no problem of the manifest
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        place = _place_in(found, error.lineno or 1, max((error.offset or 1) - 1, 0))
        found.report.add("error", "function_syntax", place, found.path, f"Python: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        found.error("function_syntax", f"Python: {error or 'nested too deeply'}")
    return None


def _place_in(found: Field, line: int, offset: int) -> Place:
    """The place in the manifest of a place in the source; only a `|` block keeps its lines."""
    assert isinstance(found.node, ScalarNode)
    if found.node.block_line is None:
        return found.place
    at = found.node.block_line + line - 1
    written = found.node.text.split("\n")
    inner = written[line - 1] if line <= len(written) else ""
    outer = found.report.lines[at - 1] if at <= len(found.report.lines) else ""
    indent = (len(outer) - len(outer.lstrip(" "))) - (len(inner) - len(inner.lstrip(" ")))
    return Place(at, max(indent, 0) + offset + 1)


def _takes_two(node: ast.FunctionDef) -> bool:
    """Whether it can be called with two positional values."""
    arguments = node.args
    positional = len(arguments.posonlyargs) + len(arguments.args)
    needed = positional - len(arguments.defaults)
    named = [default for default in arguments.kw_defaults if default is None]
    return not named and needed <= 2 <= positional + (2 if arguments.vararg else 0)
