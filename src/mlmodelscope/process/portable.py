"""The source text of a manifest's function -> a callable, and what goes wrong in it -> a line number and a sentence.

Python 3.6 syntax and the standard library only, nothing of ours imported: this file also runs in the environment of a
foreign framework, beside the worker's shim.
"""

import sys
from typing import Any

__all__ = ["FunctionFault", "call_function", "load_function"]


class FunctionFault(Exception):  # noqa: N818 - the word for it in the foreign environment too
    """A function of a manifest failed. `line` counts from the first line of its source, None where there is none."""

    def __init__(self, stage: str, reason: str, line: Any = None) -> None:
        place = "" if line is None else f" on line {line}"
        super().__init__(f"the {stage} function failed{place}: {reason}")
        self.stage = stage
        self.reason = reason
        self.line = line


def load_function(stage: str, name: str, source: str) -> Any:
    """Run `source` in a module namespace of its own and take the function `name` out of it."""
    filename = _filename(stage)
    try:
        code = compile(source, filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        reason = "{}: {}".format(type(error).__name__, getattr(error, "msg", None) or error)
        raise FunctionFault(stage, reason, getattr(error, "lineno", None)) from None
    namespace = {"__name__": filename}  # type: dict[str, Any]
    try:
        exec(code, namespace)  # noqa: S102 - running the manifest's own code is the purpose; the worker is the sandbox
    except (Exception, SystemExit) as error:
        raise _fault(stage, error) from None
    function = namespace.get(name)
    if not callable(function):
        raise FunctionFault(stage, f"the source defines no function named {name!r}")
    return function


def call_function(stage: str, function: Any, env: Any, data: Any) -> Any:
    """`function(env, data)`, both by reference; a fault carries the line of the manifest's source."""
    try:
        return function(env, data)
    except (Exception, SystemExit) as error:
        raise _fault(stage, error) from None


def _fault(stage: str, error: BaseException) -> FunctionFault:
    """The last line of the source that the error passed through: where its author has to look."""
    line = None
    frame = sys.exc_info()[2]
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == _filename(stage):
            line = frame.tb_lineno
        frame = frame.tb_next
    text = str(error)
    reason = type(error).__name__ if not text else f"{type(error).__name__}: {text}"
    return FunctionFault(stage, reason, line)


def _filename(stage: str) -> str:
    return f"<manifest {stage}>"
