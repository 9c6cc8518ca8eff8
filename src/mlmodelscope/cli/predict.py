"""`mlmodelscope predict`: files, URLs or standard input in, answers out."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlmodelscope.cli.options import MOST_THREADS, as_json, echo_json, open_workspace
from mlmodelscope.core.errors import InputError

if TYPE_CHECKING:
    from mlmodelscope.core.answer import Prediction


@click.command("predict")
@click.argument("model")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--framework", "-f", help="Framework and version constraint.")
@click.option("--threads", "-t", type=click.IntRange(1, MOST_THREADS), help="Threads of the framework.")
@as_json
def command(model: str, inputs: tuple[str, ...], framework: str | None, threads: int | None, is_json: bool) -> int:
    """Ask MODEL about each INPUT: a file, a URL, or - for standard input. Nothing is stored."""
    from mlmodelscope.show.answers import format_predictions

    with tempfile.TemporaryDirectory(prefix="mlmodelscope-") as folder:
        named = [_standard_input(Path(folder)) if text == "-" else text for text in inputs]
        with open_workspace(draws=True) as workspace:
            predictions: list[Prediction] = workspace.predict(model, named, framework=framework, threads=threads)
    if is_json:
        echo_json(predictions)
    else:
        click.echo(format_predictions(predictions))
    return 0


def _standard_input(folder: Path) -> str:
    data = sys.stdin.buffer.read()
    if not data:
        raise InputError("standard input is empty", hint="pipe a file into it: mlmodelscope predict MODEL - < FILE")
    path = folder / "stdin"
    path.write_bytes(data)
    return str(path)
