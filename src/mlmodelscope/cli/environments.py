"""`mlmodelscope environments`: the frameworks' environments on this machine, and fewer of them."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mlmodelscope.cli.options import as_json, echo_json, plain
from mlmodelscope.core import settings
from mlmodelscope.core.errors import EnvironmentMissingError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from mlmodelscope.core.stack import BuiltEnvironment
    from mlmodelscope.provision.containers import ImageFacts
    from mlmodelscope.provision.environments import EnvironmentFacts, Environments

_ID = re.compile(r"[0-9a-f]{0,64}")
_DEFAULT_DAYS = 30.0


@click.group("environments")
def command() -> None:
    """List, show and remove the environments that frameworks run in.

    They are made when an evaluation first needs them, and made again where they are missing.
    """


@command.command("list")
@as_json
def list_(is_json: bool) -> int:
    """List the environments, the last used first."""
    from mlmodelscope.show.units import format_bytes, table

    environments = _environments()
    found, broken, cache = environments.list(), environments.broken(), environments.package_cache()
    if is_json:
        echo_json({"environments": [_values(facts) for facts in found], "broken": broken, "package_cache": cache})
        return 0
    rows = [_row(facts) for facts in found]
    click.echo(table(("id", "framework", "python", "packages", "own", "shared", "last used"), rows, right=(3, 4, 5)))
    unused = format_bytes(cache.unused_bytes)
    count = "1 environment" if len(found) == 1 else f"{len(found)} environments"
    click.echo(f"{count}; the package cache holds {unused} that none of them uses", err=True)
    if broken:
        hint = "mlmodelscope environments prune removes them"
        click.echo(f"not usable any more: {', '.join(broken)}; {hint}", err=True)
    return 0


@command.command("show")
@click.argument("name", metavar="ID|IMAGE")
@as_json
def show(name: str, is_json: bool) -> int:
    """Show an environment: its Python, size, and every package with the digest of the file it came from.

    ID may be shortened. What is no id here is taken as the name of a container image.
    """
    environments = _environments()
    try:
        built = environments.find(name)
    except UnknownNameError as unknown:
        if _ID.fullmatch(name):
            raise
        try:
            return _show_image(name, is_json)
        except EnvironmentMissingError as error:
            # there is no engine that could know an image of this name
            unknown.hint = f"an image of that name cannot be looked for: {error.message}"
            raise unknown from error
    facts = environments.facts(built.digest)
    if is_json:
        echo_json(_values(facts) | {"folder": built.folder, "stack": built.stack})
    else:
        click.echo(_text(built, facts))
    return 0


@command.command("remove")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@as_json
def remove(ids: tuple[str, ...], is_json: bool) -> int:
    """Remove environments. One that a worker uses stays, and that is an error."""
    environments = _environments()
    # all names are known before anything is gone
    chosen = dict.fromkeys(environments.find(prefix).digest for prefix in ids)
    return _say([environments.remove(digest) for digest in chosen], is_json)


@command.command("prune")
@click.option(
    "--unused-for",
    "days",
    type=click.FloatRange(min=0),
    default=_DEFAULT_DAYS,
    show_default=True,
    metavar="DAYS",
    help="Remove those that nobody used for so many days.",
)
@click.option("--packages", is_flag=True, help="Also empty the package cache: what is made anew is fetched anew.")
@click.option("--yes", "is_yes", is_flag=True, help="Do not ask.")
@as_json
def prune(days: float, packages: bool, is_yes: bool, is_json: bool) -> int:
    """Remove environments that were not used for a while, and what killed processes left of others.

    One that a worker uses is never removed.
    """
    if math.isnan(days):
        raise UsageError("--unused-for takes a number of days")
    environments = _environments()
    old = environments.unused(days)
    if old and not is_yes:
        ids = ", ".join(facts.id for facts in old)
        if not sys.stdin.isatty():
            raise UsageError(f"this would remove {len(old)} environments: {ids}", hint="add --yes to remove them")
        click.confirm(f"remove {ids}?", abort=True, err=True)
    removed = environments.prune(days)
    return _say(removed, is_json, environments.clear_packages() if packages else 0)


def _environments() -> Environments:
    from mlmodelscope.provision.environments import Environments

    return Environments(settings.home())


def _values(facts: EnvironmentFacts) -> dict[str, Any]:
    values: dict[str, Any] = plain(facts)
    return values | {"size_bytes": facts.size_bytes}


def _time(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _row(facts: EnvironmentFacts) -> Sequence[str]:
    from mlmodelscope.show.units import format_bytes

    used = "in use" if facts.is_in_use else _time(facts.used_at)
    sizes = (format_bytes(facts.own_bytes), format_bytes(facts.shared_bytes))
    frameworks = ", ".join(facts.frameworks) or "-"
    return (facts.id, frameworks, facts.python, str(facts.package_count), *sizes, used)


def _text(built: BuiltEnvironment, facts: EnvironmentFacts) -> str:
    from mlmodelscope.show.units import format_bytes, table

    stack = built.stack
    sizes = f"{format_bytes(facts.own_bytes)} of its own, {format_bytes(facts.shared_bytes)} shared by hard link"
    lines = [
        f"environment  {facts.id}",
        f"digest       {facts.digest}",
        f"frameworks   {', '.join(facts.frameworks) or '-'}",
        f"python       {stack.python} ({stack.implementation}, {stack.platform})",
        f"folder       {built.folder}",
        f"size         {sizes}",
        f"made         {_time(facts.made_at)}",
        f"last used    {'in use' if facts.is_in_use else _time(facts.used_at)}",
    ]
    rows = [(package.name, package.version, package.sha256 or "unknown") for package in stack.packages]
    return "\n".join(lines) + "\n\n" + table(("package", "version", "sha256 of the file"), rows)


def _show_image(name: str, is_json: bool) -> int:
    from mlmodelscope.provision.containers import find_engine

    with find_engine(settings.home()) as engine:
        facts = engine.inspect(name)
    if is_json:
        echo_json(facts)
    else:
        click.echo(_image_text(facts))
    return 0


def _image_text(facts: ImageFacts) -> str:
    from mlmodelscope.show.units import format_bytes, table

    lines = [
        f"image         {facts.name}",
        f"digest        {facts.digest}",
        f"architecture  {facts.os}/{facts.architecture}",
        f"size          {format_bytes(facts.size_bytes)}",
        *(f"label         {name}={value}" for name, value in sorted(facts.labels.items())),
    ]
    for found in facts.interpreters:
        libraries = ", ".join(f"{name} {version}" for name, version in sorted(found.libraries.items()))
        numpy = f"numpy {found.numpy}" if found.numpy else "without numpy"
        lines += ["", f"python        {found.path}: {found.implementation} {found.version}, {numpy}"]
        lines += [f"libraries     {libraries}"] if libraries else []
        lines.append(table(("package", "version"), sorted(found.packages.items())))
    return "\n".join(lines)


def _say(removed: Sequence[EnvironmentFacts], is_json: bool, cache_bytes: int = 0) -> int:
    from mlmodelscope.show.units import format_bytes

    if is_json:
        echo_json({"removed": [_values(facts) for facts in removed], "cache_bytes": cache_bytes})
        return 0
    for facts in removed:
        click.echo(facts.id)
    freed = format_bytes(sum(facts.own_bytes for facts in removed) + cache_bytes)
    click.echo(f"{len(removed)} removed, at least {freed} freed", err=True)
    return 0
