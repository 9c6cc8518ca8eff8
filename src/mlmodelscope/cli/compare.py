"""`mlmodelscope compare`: ids in, what differs and what it costs out."""

from __future__ import annotations

import click

from mlmodelscope.cli.options import as_json, echo_json, open_workspace


@click.command("compare")
@click.argument("record_ids", nargs=-1, required=True, metavar="ID ID...")
@as_json
def command(record_ids: tuple[str, ...], is_json: bool) -> int:
    """Compare every further ID with the first: which factors differ, whether that is fair, and what it costs."""
    from mlmodelscope.show.comparisons import format_comparison
    from mlmodelscope.show.records import format_summary

    with open_workspace() as workspace:
        comparisons = workspace.compare(record_ids)
        records = [workspace.get(record_id) for record_id in record_ids]
    if is_json:
        echo_json(comparisons)
        return 0
    click.echo("\n\n".join(format_comparison(item) for item in comparisons))
    click.echo("\n" + format_summary(records))
    return 0
