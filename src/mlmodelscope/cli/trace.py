"""`mlmodelscope trace`: the spans of a stored evaluation in, a summary or a file for a trace viewer out."""

from __future__ import annotations

from pathlib import Path

import click

from mlmodelscope.cli.options import as_json, echo_json, open_workspace

_ENDINGS = {"chrome": "json", "perfetto": "pftrace"}


@click.group("trace")
def command() -> None:
    """Show and export where the time of an evaluation went (evaluate --trace-level model|framework)."""


@command.command("show")
@click.argument("record_id", metavar="ID")
@click.option("--layers", "most", type=click.IntRange(1), default=15, show_default=True, help="Layers to list.")
@as_json
def show(record_id: str, most: int, is_json: bool) -> int:
    """Show the parts of a query and the slowest layers of evaluation ID."""
    from mlmodelscope.analyse.layers import summarise_trace
    from mlmodelscope.show.layers import format_trace

    with open_workspace() as workspace:
        record = workspace.get(record_id)
        trace = workspace.trace(record.id)
    summary = summarise_trace(trace)
    if is_json:
        echo_json({"record": record.id, "facts": record.trace, "summary": summary})
    elif record.trace is not None:
        click.echo(format_trace(record, record.trace, summary, most))
    return 0


@command.command("export")
@click.argument("record_id", metavar="ID")
@click.option(
    "--format",
    "form",
    type=click.Choice(sorted(_ENDINGS)),
    default="chrome",
    show_default=True,
    help="chrome: JSON for chrome://tracing and Perfetto. perfetto: .pftrace, with wall-clock time.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="File to write; - is standard output. Default: ID.json or ID.pftrace here.",
)
def export(record_id: str, form: str, output: Path | None) -> int:
    """Write the trace of evaluation ID as a file for a trace viewer: open it in ui.perfetto.dev."""
    with open_workspace() as workspace:
        record = workspace.get(record_id)
        content = workspace.export_trace(record.id, form)
    if str(output) == "-":
        click.echo(content, nl=False)
        return 0
    path = output or Path(f"{record.id}.{_ENDINGS[form]}")
    _write(path, content)
    click.echo(f"wrote {path} ({len(content)} bytes)")
    return 0


def _write(path: Path, content: bytes) -> None:
    from mlmodelscope.core.errors import StorageError

    try:
        path.write_bytes(content)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}", hint="give another file with -o") from None
