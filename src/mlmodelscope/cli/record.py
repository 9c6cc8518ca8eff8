"""`mlmodelscope record`: stored evaluations to files, and files to stored evaluations."""

from __future__ import annotations

from pathlib import Path

import click

from mlmodelscope.cli.options import as_json, echo_json, open_workspace


@click.group("record")
def command() -> None:
    """Give a stored evaluation to others, or take theirs in."""


@command.command("export")
@click.argument("record_id", metavar="ID")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Default: ID.mlrecord here.")
@as_json
def export_record(record_id: str, output: Path | None, is_json: bool) -> int:
    """Write the evaluation ID to one file: record, manifests, digests, predictions, latencies, trace.

    Home folders, credentials and the names of user and host are not in it.
    """
    from mlmodelscope.show.units import format_bytes

    with open_workspace() as workspace:
        target = output or Path(f"{workspace.get(record_id).id}.mlrecord")
        record = workspace.export_record(record_id, target)
    size = target.stat().st_size
    if is_json:
        echo_json({"id": record.id, "file": str(target), "size_bytes": size})
    else:
        click.echo(f"{record.id} ({record.model.name}, {record.status}) -> {target} ({format_bytes(size)})")
    return 0


@command.command("import")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--trust", is_flag=True, help="The author is trusted: what its manifests contain may run bare.")
@as_json
def import_record(file: Path, trust: bool, is_json: bool) -> int:
    """Verify FILE and store its evaluation.

    Until --trust says otherwise, whatever its manifests contain runs in the sandbox only. Importing again is harmless,
    and adds the trust.
    """
    with open_workspace() as workspace:
        record, is_new = workspace.import_record(file, is_trusted=trust)
    if is_json:
        echo_json({"is_new": is_new, "record": record})
        return 0
    trusted = "trusted" if record.is_trusted else "not trusted (--trust changes that)"
    click.echo(f"{record.id} {'imported' if is_new else 'was here already'}: {record.model.name}, {record.status}")
    click.echo(f"origin: {record.origin}, {trusted}")
    click.echo(f"run it again here: mlmodelscope reproduce {record.id}")
    return 0
