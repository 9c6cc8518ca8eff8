"""`mlmodelscope init`: a model file in, the skeleton of its manifest out."""

from __future__ import annotations

from pathlib import Path

import click

from mlmodelscope.cli.options import as_json, echo_json
from mlmodelscope.core.errors import StorageError, UsageError


@click.command("init")
@click.argument("model_file", metavar="MODELFILE", type=click.Path(path_type=Path))
@click.option(
    "--output", "-o", metavar="FILE", help="Where to write it, - for standard output. Default: NAME.yml here."
)
@click.option("--force", is_flag=True, help="Replace a file that is already there.")
@as_json
def command(model_file: Path, output: str | None, force: bool, is_json: bool) -> int:
    """Write the skeleton of a manifest from the inputs and outputs of an ONNX or TensorFlow Lite file.

    What the file does not say is guessed, and marked so.
    """
    from mlmodelscope.zoo.draft import draft_manifest

    target = None if output == "-" else Path(output or f"{model_file.stem}.yml")
    if target is not None and target.exists() and not force:
        raise UsageError(f"{target} is already there", hint="give another --output, or --force to replace it")
    text = draft_manifest(model_file, target.parent if target is not None else Path.cwd())
    if target is not None:
        try:
            target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise StorageError(f"cannot write {target}: {error.strerror or error}", file=str(target)) from None
    if is_json:
        echo_json({"file": None if target is None else str(target), "manifest": text})
    elif target is None:
        click.echo(text, nl=False)
    else:
        guesses = sum("# guess" in line for line in text.splitlines())
        click.echo(f"wrote {target} with {guesses} guesses: check them, then run mlmodelscope validate {target}")
    return 0
