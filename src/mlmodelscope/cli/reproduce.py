"""`mlmodelscope reproduce`: an id in, a new record and a verdict out."""

from __future__ import annotations

import click

from mlmodelscope.cli.options import as_json, echo_json, installs, open_workspace


@click.command("reproduce")
@click.argument("record_id", metavar="ID")
@installs
@as_json
def command(record_id: str, is_yes: bool, is_json: bool) -> int:
    """Run the evaluation ID again from what its record holds, and judge accuracy, speed and what changed."""
    from mlmodelscope.show.comparisons import format_reproduction
    from mlmodelscope.show.records import format_record

    with open_workspace(draws=True, is_yes=is_yes) as workspace:
        record, reproduction = workspace.reproduce(record_id)
    if is_json:
        echo_json({"record": record, "reproduction": reproduction})
    elif reproduction is None:
        click.echo(format_record(record))
        click.echo("no verdict: one of the two evaluations failed", err=True)
    else:
        click.echo(format_reproduction(reproduction))
        click.echo(f"\nstored as {record.id}")
    return 1 if record.failure is not None else 0
