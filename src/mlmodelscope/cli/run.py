"""`mlmodelscope run`: a suite file in, one table of stored records out."""

from __future__ import annotations

from pathlib import Path

import click

from mlmodelscope.cli.options import as_json, echo_json, installs, open_workspace


@click.command("run")
@click.argument("suite", type=click.Path(path_type=Path), metavar="SUITE")
@click.option("--fresh", "is_fresh", is_flag=True, help="Repeat what an earlier run of the suite finished.")
@click.option("--list", "is_list", is_flag=True, help="Only print the evaluations that the suite asks for.")
@installs
@as_json
def command(suite: Path, is_fresh: bool, is_list: bool, is_yes: bool, is_json: bool) -> int:
    """Run every evaluation of the file SUITE: models x frameworks x batch sizes x threads x data sets x scenarios.

    A run that was interrupted or killed is taken up again by the same command: what is finished is not repeated, what
    failed is tried again. Exit code 1 if any evaluation failed.
    """
    from mlmodelscope.show.suites import format_suite

    with open_workspace(draws=True, is_yes=is_yes) as workspace:
        if is_list:
            return _list(workspace.read_suite(suite).requests, is_json)
        rows = workspace.run_suite(suite, is_fresh=is_fresh)
    if is_json:
        echo_json(rows)
    else:
        click.echo(format_suite(suite.name, rows))
    return 1 if any(row.is_failed for row in rows) else 0


def _list(requests: object, is_json: bool) -> int:
    from mlmodelscope.core.request import EvaluationRequest

    assert isinstance(requests, tuple)
    if is_json:
        echo_json(requests)
        return 0
    for request in requests:
        assert isinstance(request, EvaluationRequest)
        scenario = request.scenario
        parts = (
            request.models[0],
            request.framework,
            request.dataset or "inputs",
            f"{scenario.type} {scenario.timed} b{scenario.batch_size}",
            f"{request.threads} threads" if request.threads else None,
        )
        click.echo(", ".join(part for part in parts if part))
    return 0
