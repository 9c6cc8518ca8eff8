"""`mlmodelscope report`: ids in, one page out."""

from __future__ import annotations

from pathlib import Path

import click

from mlmodelscope.cli.options import open_workspace
from mlmodelscope.cli.output import chosen_format, open_output

_ENDINGS = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown", ".csv": "csv"}


@click.command("report")
@click.argument("record_ids", nargs=-1, required=True, metavar="ID...")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True,
    help="The file to write; - is standard output.",
)  # fmt: skip
@click.option(
    "--format", "given", type=click.Choice(["html", "markdown", "csv"]), help="Default: what the ending of FILE says."
)
def command(record_ids: tuple[str, ...], output: Path, given: str | None) -> int:
    """Write a report of the evaluations ID: one HTML page that opens offline, Markdown tables, or CSV.

    With several, every further one is compared with the first, and the page says first whether that is fair.
    """
    chosen = chosen_format(output, given, _ENDINGS, default="html")
    with open_workspace() as workspace:
        data = workspace.report(record_ids)
    if chosen == "html":
        from mlmodelscope.show.report.html import format_html as formatted
    elif chosen == "markdown":
        from mlmodelscope.show.report.markdown import format_markdown as formatted
    else:
        from mlmodelscope.show.report.columns import format_csv as formatted
    content = formatted(data).encode("utf-8", "replace")
    with open_output(output) as file:
        file.write(content)
    if str(output) != "-":
        click.echo(f"wrote {output}", err=True)
    return 0
