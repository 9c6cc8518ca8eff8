"""`mlmodelscope validate`: manifests in, every problem with its position out."""

from __future__ import annotations

from pathlib import Path

import click

from mlmodelscope.cli.options import as_json, echo_json


@click.command("validate")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--canonical", is_flag=True, help="Print the canonical form, with the implicit steps made visible.")
@as_json
def command(files: tuple[Path, ...], canonical: bool, is_json: bool) -> int:
    """Check model, framework and data set manifests. Exit code 2 if one has errors; warnings do not count."""
    from mlmodelscope.manifest import format_manifest, format_problem, read_manifest

    readings = [(path, read_manifest(path)) for path in files]
    problems = [problem for _, reading in readings for problem in reading.problems]
    if is_json:
        values = [
            {"file": str(path), "valid": reading.value is not None, "digest": reading.value and reading.value.digest,
             "problems": reading.problems}
            for path, reading in readings
        ]  # fmt: skip
        echo_json(values)
    else:
        for path, reading in readings:
            for problem in reading.problems:
                click.echo(format_problem(problem))
            if reading.value is not None and canonical:
                click.echo(format_manifest(reading.value), nl=False)
            elif reading.value is not None:
                click.echo(f"{path}: {reading.value.kind} {reading.value.name} {reading.value.version} is valid")
    return 2 if any(problem.level == "error" for problem in problems) else 0
