"""An image -> the interpreters inside it, found by running each of them once in a container without network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mlmodelscope.core.errors import EnvironmentMissingError
from mlmodelscope.provision.containers import probe
from mlmodelscope.provision.containers.image import Interpreter, parse_probe

if TYPE_CHECKING:
    from mlmodelscope.provision.containers.engine import Engine

__all__ = ["search_image"]

_SECONDS = 120
_MOST_TASKS = 256
# Several times what numpy takes. Not the limit of an evaluation: what is found is kept for all that follow, and must
# not be less because the first was short of memory.
_MOST_BYTES = 1024**3
# What an image's PATH names first, then where images keep a Python of their own. Names of one program in one folder are
# one interpreter; a program that is linked from another folder may be that of a virtual environment.
_SEARCH = """
for p in python3 python /usr/local/bin/python3 /opt/*/bin/python3 /opt/*/bin/python \\
  /usr/local/bin/python3.[0-9] /usr/local/bin/python3.[0-9][0-9] \\
  /usr/bin/python3 /usr/bin/python3.[0-9] /usr/bin/python3.[0-9][0-9]
do
  q=$(command -v "$p" 2>/dev/null) || continue
  key=${q%/*}=$(readlink -f "$q" 2>/dev/null || echo "$q")
  case " $seen " in *" $key "*) continue;; esac
  seen="$seen $key"
  "$q" -c "$1"
done
exit 0
"""
# for images without a shell
_LIKELY = ("python3", "/usr/local/bin/python3", "/usr/bin/python3", "python")


def search_image(engine: Engine, digest: str) -> tuple[Interpreter, ...]:
    """Every Python of the image that can be started, each once, the one on its PATH first; none is an answer too."""
    source = Path(probe.__file__).read_text(encoding="utf-8")
    told = _run(engine, digest, ["/bin/sh", "-c", _SEARCH, "sh", source])
    if told is not None:
        return parse_probe(told)
    for python in _LIKELY:
        told = _run(engine, digest, [python, "-c", source])
        if told is not None:
            return parse_probe(told)
    return ()


def _run(engine: Engine, digest: str, command: list[str]) -> str | None:
    """What the command wrote; None where the image has no such program. A probe that hangs is a TimeLimitError."""
    try:
        container = engine.start(
            digest,
            command,
            memory_bytes=_MOST_BYTES if engine.can_limit("memory") else None,
            pids=_MOST_TASKS if engine.can_limit("pids") else None,
        )
    except EnvironmentMissingError as error:
        if _says_no_program(str(error.fields.get("reason", ""))):
            return None
        raise
    with container:
        container.wait(_SECONDS)
        return container.output()


def _says_no_program(reason: str) -> bool:
    """Whether the engine's words mean that the program is not in the image; their wording differs by runtime."""
    words = reason.lower()
    return "not found" in words or "no such file" in words
