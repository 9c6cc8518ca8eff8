"""What several commands share: the `--json` option, printing values, opening the workspace with its display."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from mlmodelscope.library import Workspace

__all__ = [
    "MOST_THREADS",
    "as_json",
    "echo_json",
    "environment",
    "installs",
    "may_install",
    "open_workspace",
    "plain",
    "untrusted",
]

# above every machine there is; frameworks start as many threads as they are told to, and a slip of the finger must not
# fill the process table
MOST_THREADS = 4096

F = TypeVar("F", bound=Callable[..., Any])


def as_json(function: F) -> F:
    return click.option("--json", "is_json", is_flag=True, help="Print JSON instead of text.")(function)


def untrusted(function: F) -> F:
    """`is_untrusted`: the manifest is a stranger's."""
    text = "Run the manifest as a stranger's: its worker in a sandbox without network, or not at all."
    return click.option("--untrusted", "is_untrusted", is_flag=True, help=text)(function)


def environment(function: F) -> F:
    """`environment`: where the framework is to live."""
    text = "Where the framework lives: local, venv, container or container=IMAGE. Default: local if it is there."
    return click.option("--environment", "-e", metavar="KIND", help=text)(function)


def installs(function: F) -> F:
    """`is_yes`: a framework's environment may be as large as it is."""
    text = "Install what a framework needs without asking, however large."
    return click.option("--yes", "is_yes", is_flag=True, help=text)(function)


def may_install(is_yes: bool) -> Callable[[int], bool]:
    """Asks on a terminal before a large install; elsewhere `--yes` decides."""

    def ask(size_bytes: int) -> bool:
        if is_yes or not sys.stdin.isatty():
            return is_yes
        return click.confirm(f"the framework's environment will take {size_bytes / 1e9:.1f} GB: install it?", err=True)

    return ask


def plain(value: Any) -> Any:
    """Frozen values and dataclasses as plain JSON values."""
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def echo_json(value: Any) -> None:
    click.echo(json.dumps(plain(value), ensure_ascii=False, indent=2))


@contextmanager
def open_workspace(*, draws: bool = False, is_yes: bool = False) -> Iterator[Workspace]:
    """The default workspace; with `draws`, progress goes to standard error (bars on a terminal, lines in a pipe)."""
    from mlmodelscope.library import Workspace

    if not draws:
        with Workspace() as workspace:
            yield workspace
        return
    from mlmodelscope.cli.display import open_display

    with (
        open_display(sys.stderr) as display,
        Workspace(on_event=display.on_event, progress=display, may_install=may_install(is_yes)) as workspace,
    ):
        yield workspace
