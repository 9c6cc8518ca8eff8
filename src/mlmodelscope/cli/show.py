"""`mlmodelscope show`: an id in, a record out."""

from __future__ import annotations

import click

from mlmodelscope.cli.options import as_json, echo_json, open_workspace


@click.command("show")
@click.argument("record_id", metavar="ID")
@click.option("--manifest", is_flag=True, help="Print the manifest that was run, as it was read.")
@as_json
def command(record_id: str, manifest: bool, is_json: bool) -> int:
    """Show the evaluation ID; the beginning of an id is enough."""
    from mlmodelscope.show.records import format_record

    with open_workspace() as workspace:
        record = workspace.get(record_id)
    if manifest:
        click.echo(record.model.manifest.text, nl=False)
    elif is_json:
        echo_json(record)
    else:
        click.echo(format_record(record))
    return 0
