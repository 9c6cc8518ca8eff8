"""`mlmodelscope frameworks`: what can run models here."""

from __future__ import annotations

import click

from mlmodelscope.cli.options import as_json, echo_json


@click.group("frameworks")
def command() -> None:
    """List the frameworks that can run models here."""


@command.command("list")
@as_json
def list_frameworks(is_json: bool) -> int:
    """List registered frameworks and the versions installed."""
    from mlmodelscope.facts import frameworks
    from mlmodelscope.show.units import table

    found = frameworks()
    if is_json:
        echo_json(found)
        return 0
    rows = [(f.name, f.version or "-", f.distribution or f"not installed: {f.install_hint}") for f in found]
    click.echo(table(("framework", "version", "package"), rows))
    return 0
