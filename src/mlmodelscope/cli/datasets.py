"""`mlmodelscope datasets`: the data sets that can be named."""

from __future__ import annotations

import click

from mlmodelscope.cli.catalogue import add_commands
from mlmodelscope.cli.options import as_json, echo_json, open_workspace


@click.group("datasets")
def command() -> None:
    """List, show, add and remove data sets."""


add_commands(command, "dataset")


@command.command("list")
@as_json
def list_datasets(is_json: bool) -> int:
    """List data sets with task, layout and license."""
    from mlmodelscope.show.units import table

    with open_workspace() as workspace:
        manifests = [entry.manifest for entry in workspace.catalogue.datasets()]
    if is_json:
        echo_json([{"digest": manifest.digest, **manifest.model_dump(mode="json")} for manifest in manifests])
        return 0
    rows = [(m.name, m.version, m.task, m.layout.type, m.license or "-", m.description.strip()) for m in manifests]
    click.echo(table(("data set", "version", "task", "layout", "license", "description"), rows))
    return 0
