"""`mlmodelscope check`: a record and its baseline in, a verdict and an exit code for pipelines out."""

from __future__ import annotations

import math
import re

import click

from mlmodelscope.cli.options import as_json, echo_json, open_workspace
from mlmodelscope.core.errors import UsageError
from mlmodelscope.core.factors import FactorGroup


@click.command("check")
@click.argument("record_id", metavar="ID")
@click.option("--baseline", required=True, metavar="ID", help="The record to check against.")
@click.option(
    "--max-slowdown",
    default="5%",
    show_default=True,
    metavar="SHARE%|none",
    help="How much longer a sample may take.",
)
@click.option(
    "--max-accuracy-loss",
    default="0.5",
    show_default=True,
    metavar="POINTS|none",
    help="How many percentage points of top-1 may be lost.",
)
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    type=click.Choice([str(group) for group in FactorGroup]),
    help="A group of factors that may differ, because it is what you study; may be repeated.",
)
@as_json
def command(
    record_id: str, baseline: str, max_slowdown: str, max_accuracy_loss: str, allowed: tuple[str, ...], is_json: bool
) -> int:
    """Check the evaluation ID against a baseline.

    Exit code 1 only if a regression is proven: the whole interval lies beyond a limit. 0 otherwise, and the output says
    where the interval leaves both possible. 2 if the two are not comparable.
    """
    from mlmodelscope.show.regressions import format_check

    slowdown = _parse("--max-slowdown", max_slowdown, r"(\d+(?:\.\d+)?|\.\d+)\s*%", "5%")
    loss = _parse("--max-accuracy-loss", max_accuracy_loss, r"(\d+(?:\.\d+)?|\.\d+)", "0.5")
    with open_workspace() as workspace:
        result = workspace.check(
            record_id,
            baseline,
            max_slowdown=slowdown,
            max_accuracy_loss=loss,
            allowed=[FactorGroup(group) for group in allowed],
        )
    if is_json:
        echo_json(result)
    else:
        click.echo(format_check(result))
    return 1 if result.is_regression else 0


def _parse(option: str, text: str, form: str, example: str) -> float | None:
    """Hundredths as a share; `none` switches the check off."""
    if text.strip().lower() == "none":
        return None
    found = re.fullmatch(form, text.strip())
    if found is None or not math.isfinite(float(found[1])):
        raise UsageError(f"{option} does not take {text!r}", hint=f"write it like {example}, or none")
    return float(found[1]) / 100
