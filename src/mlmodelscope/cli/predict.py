"""`mlmodelscope predict`: files, URLs or standard input in, answers out."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlmodelscope.cli.options import MOST_THREADS, as_json, echo_json, open_workspace, untrusted
from mlmodelscope.core.errors import InputError, StorageError, UsageError

if TYPE_CHECKING:
    from mlmodelscope.core.answer import Prediction
    from mlmodelscope.library import Workspace


@click.command("predict")
@click.argument("model")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--framework", "-f", help="Framework and version constraint.")
@click.option("--threads", "-t", type=click.IntRange(1, MOST_THREADS), help="Threads of the framework.")
@click.option("--draw", type=click.Path(path_type=Path), help="Draw boxes into this file (several inputs: folder).")
@click.option("--min-score", type=float, default=0.3, show_default=True, help="Lowest score of a box that is shown.")
@untrusted
@as_json
def command(
    model: str,
    inputs: tuple[str, ...],
    framework: str | None,
    threads: int | None,
    draw: Path | None,
    min_score: float,
    is_untrusted: bool,
    is_json: bool,
) -> int:
    """Ask MODEL about each INPUT: a file, a URL, or - for standard input. Nothing is stored.

    JSON holds every box; text and pictures those of at least --min-score.
    """
    from mlmodelscope.show.answers import format_predictions

    with tempfile.TemporaryDirectory(prefix="mlmodelscope-") as folder:
        named = [_standard_input(Path(folder)) if text == "-" else text for text in inputs]
        with open_workspace(draws=True) as workspace:
            predictions: list[Prediction] = workspace.predict(
                model, named, framework=framework, threads=threads, is_trusted=not is_untrusted
            )
            if draw is not None:
                _draw(workspace, named, predictions, draw, min_score)
    if is_json:
        echo_json(predictions)
    else:
        click.echo(format_predictions(predictions, min_score=min_score))
    return 0


def _draw(
    workspace: Workspace, inputs: list[str], predictions: list[Prediction], target: Path, min_score: float
) -> None:
    from mlmodelscope.core.answer import Boxes
    from mlmodelscope.show.pictures import draw_boxes

    is_folder = len(inputs) > 1 or target.is_dir()
    for position, (text, prediction) in enumerate(zip(inputs, predictions, strict=True), 1):
        if not isinstance(prediction.answer, Boxes):
            raise UsageError(f"the model answers with {prediction.answer.type}: there are no boxes to draw")
        picture = draw_boxes(workspace.read_input(text), prediction.answer, min_score=min_score)
        file = target / f"{position:03d}-{Path(prediction.sample).stem}.png" if is_folder else target
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            picture.save(file)
        except ValueError:
            raise UsageError(f"{file} has no ending of a picture", hint="draw into a .png or .jpg file") from None
        except OSError as error:
            raise StorageError(f"cannot write {file}: {error.strerror or error}", file=str(file)) from None


def _standard_input(folder: Path) -> str:
    data = sys.stdin.buffer.read()
    if not data:
        raise InputError("standard input is empty", hint="pipe a file into it: mlmodelscope predict MODEL - < FILE")
    path = folder / "stdin"
    path.write_bytes(data)
    return str(path)
