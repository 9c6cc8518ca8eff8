"""pip's own configuration -> where and how Python packages are looked for."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from mlmodelscope.core import settings

__all__ = ["PipSettings", "load_pip_settings", "parse_pip_config"]

# later sections win, as in `pip download`
_SECTIONS = ("global", "download", ":env:")
_NO = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class PipSettings:
    """`indexes` in pip's order, None standing for the public index; `find_links` are folders, files or pages."""

    indexes: tuple[str | None, ...] = (None,)
    find_links: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    timeout_seconds: float = 60.0


def load_pip_settings() -> PipSettings:
    """What `pip config list` of this interpreter says, with the `PIP_*` variables over it."""
    variables = settings.pip_variables()
    # what pip prints holds its variables too, and which files it reads depends on them
    return parse_pip_config(_configured(tuple(sorted(variables.items()))), variables)


@cache
def _configured(variables: tuple[tuple[str, str], ...]) -> str:  # noqa: ARG001 - they are the key of the cache
    programs = [[sys.executable, "-m", "pip"]]
    if (found := shutil.which("pip")) is not None:
        programs.append([found])
    for program in programs:
        try:
            answer = subprocess.run(
                [*program, "--disable-pip-version-check", "config", "list"],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if answer.returncode == 0:
            return answer.stdout
    return ""


def parse_pip_config(text: str, variables: Mapping[str, str]) -> PipSettings:
    """The settings that `pip config list` printed as `text`, with `variables` (by option name) over them."""
    values: dict[str, str] = {}
    for section in _SECTIONS:
        values |= {option: value for found, option, value in _lines(text) if found == section}
    values |= {option: value for option, value in variables.items() if value.strip()}
    has_index = values.get("no-index", "").strip().lower() in _NO
    main: tuple[str | None, ...] = (values.get("index-url", "").strip() or None,)
    timeout = values.get("timeout") or values.get("default-timeout") or ""
    return PipSettings(
        indexes=main + tuple(values.get("extra-index-url", "").split()) if has_index else (),
        find_links=tuple(values.get("find-links", "").split()),
        cert=values.get("cert") or None,
        client_cert=values.get("client-cert") or None,
        proxy=values.get("proxy") or None,
        timeout_seconds=_seconds(timeout),
    )


def _seconds(text: str) -> float:
    try:
        return max(1.0, float(text))
    except ValueError:
        return PipSettings().timeout_seconds


def _lines(text: str) -> Iterator[tuple[str, str, str]]:
    for line in text.splitlines():
        key, mark, value = line.partition("=")
        section, dot, option = key.strip().rpartition(".")
        if not mark or not dot:
            continue
        try:
            plain = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            continue
        yield section, option.lower(), str(plain)
