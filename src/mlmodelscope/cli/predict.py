"""`mlmodelscope predict`: files, URLs or standard input in, answers out."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlmodelscope.cli.options import (
    MOST_THREADS,
    as_json,
    echo_json,
    environment as environment_option,
    installs,
    open_workspace,
    untrusted,
)
from mlmodelscope.cli.output import open_output
from mlmodelscope.core.errors import InputError, StorageError, UsageError

if TYPE_CHECKING:
    from mlmodelscope.core.answer import Prediction
    from mlmodelscope.library import Workspace


@click.command("predict")
@click.argument("model")
@click.argument("inputs", nargs=-1, metavar="INPUT...")
@click.option("--framework", "-f", help="Framework and version constraint.")
@environment_option
@installs
@click.option("--threads", "-t", type=click.IntRange(1, MOST_THREADS), help="Threads of the framework.")
@click.option("--draw", type=click.Path(path_type=Path), help="Draw boxes into this file (several inputs: folder).")
@click.option("--min-score", type=float, default=0.3, show_default=True, help="Lowest score of a box that is shown.")
@click.option(
    "--layers",
    metavar="NAME[,NAME...]",
    help="Show what these layers inside the model compute, instead of answers; list: show their names.",
)
@click.option(
    "--save", type=click.Path(path_type=Path, dir_okay=False), help="Write what --layers shows into this .npz file."
)
@untrusted
@as_json
def command(
    model: str,
    inputs: tuple[str, ...],
    framework: str | None,
    environment: str | None,
    is_yes: bool,
    threads: int | None,
    draw: Path | None,
    min_score: float,
    layers: str | None,
    save: Path | None,
    is_untrusted: bool,
    is_json: bool,
) -> int:
    """Ask MODEL about each INPUT: a file, a URL, or - for standard input. Nothing is stored.

    --layers list needs no INPUT. JSON holds every box; text and pictures those of at least --min-score.
    """
    _refuse_together(layers, save, draw)
    if not inputs and layers != "list":
        raise UsageError("predict needs an INPUT", hint="name a file, a URL, or - for standard input")
    where = {"framework": framework, "environment": environment, "threads": threads, "is_trusted": not is_untrusted}
    with tempfile.TemporaryDirectory(prefix="mlmodelscope-") as folder:
        named = [_standard_input(Path(folder)) if text == "-" else text for text in inputs]
        with open_workspace(draws=True, is_yes=is_yes) as workspace:
            if layers is not None:
                shown = _look_inside(workspace, model, named, layers, save, where)
            else:
                shown = _ask(workspace, model, named, draw, min_score, where)
    if is_json:
        echo_json(shown.values)
    else:
        click.echo(shown.text())
    return 0


@dataclass(frozen=True, slots=True)
class _Shown:
    """What was found: as plain values, and, if it is wanted, as text."""

    values: Any
    text: Callable[[], str]


def _refuse_together(layers: str | None, save: Path | None, draw: Path | None) -> None:
    if layers is None:
        if save is not None:
            raise UsageError("--save writes what layers compute", hint="name them with --layers NAME[,NAME...]")
        return
    if draw is not None:
        raise UsageError("--layers shows no answers: there is nothing to draw", hint="leave --draw out")
    if save is not None and not save.parent.is_dir():
        raise UsageError(f"there is no folder {save.parent}", hint="make it, or give --save another path")
    if layers == "list" and save is not None:
        raise UsageError("--layers list shows names: there is nothing to save", hint="leave --save out")


def _ask(
    workspace: Workspace, model: str, inputs: list[str], draw: Path | None, min_score: float, where: dict[str, Any]
) -> _Shown:
    from mlmodelscope.show.answers import format_predictions

    predictions = workspace.predict(model, inputs, **where)
    if draw is not None:
        _draw(workspace, inputs, predictions, draw, min_score)
    return _Shown(predictions, lambda: format_predictions(predictions, min_score=min_score))


def _look_inside(
    workspace: Workspace, model: str, inputs: list[str], layers: str, save: Path | None, where: dict[str, Any]
) -> _Shown:
    from mlmodelscope.show.units import table
    from mlmodelscope.worker.layers import write_arrays

    if layers == "list":
        names = workspace.layer_names(model, **where)
        return _Shown(names, lambda: "\n".join(names))
    arrays = workspace.reveal(model, inputs, [name for name in layers.split(",") if name], **where)
    if save is not None:
        with open_output(save) as file:
            write_arrays(file, arrays.items())
    facts = [
        {"name": name, "shape": list(array.shape), "element_type": str(array.dtype)} for name, array in arrays.items()
    ]
    rows = [[name, " x ".join(map(str, array.shape)), str(array.dtype)] for name, array in arrays.items()]
    return _Shown(facts, lambda: table(["input/layer", "shape", "type"], rows))


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
