"""`mlmodelscope history`: constraints in, rows out."""

from __future__ import annotations

import click

from mlmodelscope.cli.options import as_json, echo_json, open_workspace
from mlmodelscope.core.errors import UsageError


@click.command("history")
@click.option("--model", "-m", help="Name, or NAME@CONSTRAINT.")
@click.option("--framework", "-f", help="Name, or NAME@CONSTRAINT: 'onnxruntime@>=1.17 <2'.")
@click.option("--dataset", "-d", help="Name of the data set.")
@click.option("--system", help="Part of the processor's name.")
@click.option("--arch", help="Architecture: amd64, arm64, ppc64le.")
@click.option("--scenario", help="single_stream or batched.")
@click.option("--status", type=click.Choice(["succeeded", "failed"]))
@click.option("--since", help="From this date or time on (UTC): 2026-03-31.")
@click.option("--until", help="Before this date or time (UTC).")
@click.option("--limit", "-n", type=click.IntRange(1, 10_000), default=20, show_default=True)
@click.option("--after", metavar="ID", help="Continue after this record.")
@as_json
def command(is_json: bool, limit: int, after: str | None, **given: str | None) -> int:
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
        page = workspace.history(query, limit=limit, after=after)
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


def _versioned(option: str, text: str | None) -> tuple[str | None, str | None]:
    name, _, constraint = (text or "").partition("@")
    if constraint and not name:
        raise UsageError(f"--{option} takes NAME or NAME@CONSTRAINT, not {text!r}")
    return name or None, constraint or None
