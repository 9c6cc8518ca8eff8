"""What `models` and `datasets` share: show, add and remove manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from mlmodelscope.cli.options import as_json, echo_json, open_workspace

__all__ = ["add_commands"]


def add_commands(group: click.Group, kind: Literal["model", "dataset"]) -> None:
    """Gives `group` the subcommands show, add and remove for manifests of `kind` ("model" or "dataset")."""

    @group.command("show", help=f"Print the canonical manifest of a {kind}: a name, NAME@CONSTRAINT or a path.")
    @click.argument("name")
    @as_json
    def show(name: str, is_json: bool) -> int:
        from mlmodelscope.manifest import format_manifest

        with open_workspace() as workspace:
            entry: Any = getattr(workspace.catalogue, kind)(name)
        if is_json:
            echo_json({"digest": entry.manifest.digest, "manifest": entry.manifest})
        else:
            click.echo(format_manifest(entry.manifest), nl=False)
        return 0

    @group.command("add", help=f"Keep a {kind} manifest, so that its name can be used.")
    @click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
    @as_json
    def add(file: Path, is_json: bool) -> int:
        with open_workspace() as workspace:
            entry = workspace.catalogue.add(file, kind)
        text = f"{entry.manifest.name}@{entry.manifest.version}"
        if is_json:
            echo_json({"added": text})
        else:
            click.echo(f"added {text}")
        return 0

    @group.command("remove", help=f"Remove a {kind} that was added; the built-in ones stay.")
    @click.argument("name")
    @as_json
    def remove(name: str, is_json: bool) -> int:
        with open_workspace() as workspace:
            removed = workspace.catalogue.remove(name, kind)
        if is_json:
            echo_json({"removed": removed})
        else:
            click.echo(f"removed {', '.join(removed)}")
        return 0
