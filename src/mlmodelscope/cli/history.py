"""`mlmodelscope history`: constraints in, rows out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlmodelscope.cli.options import as_json, echo_json, open_workspace
from mlmodelscope.cli.output import chosen_format, open_output
from mlmodelscope.core.errors import UsageError

if TYPE_CHECKING:
    from mlmodelscope.core.store import HistoryPage, HistoryQuery
    from mlmodelscope.library import Workspace

_LISTED = 20
# the largest page that every store gives
_ROWS_PER_PAGE = 1000
_EXPORTS = {".csv": "csv", ".parquet": "parquet"}


@click.command("history")
@click.option("--model", "-m", help="Name, or NAME@CONSTRAINT.")
@click.option("--framework", "-f", help="Name, or NAME@CONSTRAINT: 'onnxruntime@>=1.17 <2'.")
@click.option("--dataset", "-d", help="Name of the data set.")
@click.option("--system", help="Part of the processor's name.")
@click.option("--arch", help="Architecture: amd64, arm64, ppc64le.")
@click.option("--scenario", help="single_stream, batched or offline.")
@click.option("--status", type=click.Choice(["succeeded", "failed"]))
@click.option("--since", help="From this date or time on (UTC): 2026-03-31.")
@click.option("--until", help="Before this date or time (UTC).")
@click.option("--limit", "-n", type=click.IntRange(1), help=f"Default: {_LISTED}; all with --export.")
@click.option("--after", metavar="ID", help="Continue after this record.")
@click.option(
    "--export",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write all that fits to a .csv or .parquet file; - is CSV on standard output.",
)
@as_json
def command(is_json: bool, limit: int | None, after: str | None, export: Path | None, **given: str | None) -> int:
    """List stored evaluations, newest first. All constraints must hold."""
    from mlmodelscope.core.store import HistoryQuery, parse_moment
    from mlmodelscope.show.records import format_history

    model, model_version = _versioned("model", given["model"])
    framework, framework_version = _versioned("framework", given["framework"])
    query = HistoryQuery.model_validate(
        {
            "model": model,
            "model_version": model_version,
            "framework": framework,
            "framework_version": framework_version,
            "dataset": given["dataset"],
            "cpu": given["system"],
            "architecture": given["arch"],
            "scenario": given["scenario"],
            "status": given["status"],
            "since": parse_moment(given["since"]) if given["since"] else None,
            "until": parse_moment(given["until"]) if given["until"] else None,
        }
    )
    with open_workspace() as workspace:
        if export is not None:
            return _export(workspace, query, export, limit, after)
        page = workspace.history(query, limit=limit or _LISTED, after=after)
    if is_json:
        echo_json(page)
        return 0
    if not page.rows:
        click.echo("nothing is stored that fits", err=True)
        return 0
    click.echo(format_history(page.rows))
    if page.after:
        click.echo(f"more: --after {page.after}", err=True)
    return 0


def _export(workspace: Workspace, query: HistoryQuery, file: Path, limit: int | None, after: str | None) -> int:
    from mlmodelscope.show.export import write_csv, write_parquet

    chosen = chosen_format(file, None, _EXPORTS, default="csv")
    write = write_csv if chosen == "csv" else write_parquet
    with open_output(file) as stream:
        count = write(_pages(workspace, query, limit, after), stream)
    click.echo(f"{count} {'record' if count == 1 else 'records'} written to {file}", err=True)
    return 0


def _pages(workspace: Workspace, query: HistoryQuery, limit: int | None, after: str | None) -> Iterator[HistoryPage]:
    """One page after the other, `limit` rows in all."""
    left = limit
    while left is None or left > 0:
        size = _ROWS_PER_PAGE if left is None else min(left, _ROWS_PER_PAGE)
        page = workspace.history(query, limit=size, after=after)
        yield page
        after = page.after
        left = None if left is None else left - len(page.rows)
        if after is None:
            return


def _versioned(option: str, text: str | None) -> tuple[str | None, str | None]:
    name, _, constraint = (text or "").partition("@")
    if constraint and not name:
        raise UsageError(f"--{option} takes NAME or NAME@CONSTRAINT, not {text!r}")
    return name or None, constraint or None
