"""`mlmodelscope models`: the models that can be named."""

from __future__ import annotations

from typing import Any

import click

from mlmodelscope.cli.catalogue import add_commands
from mlmodelscope.cli.options import as_json, echo_json, open_workspace


@click.group("models")
def command() -> None:
    """List, show, add and remove models."""


add_commands(command, "model")


@command.command("list")
@as_json
def list_models(is_json: bool) -> int:
    """List models with task, framework, size, license and measured accuracy."""
    from mlmodelscope.show.units import table

    with open_workspace() as workspace:
        manifests = [entry.manifest for entry in workspace.catalogue.models() if not entry.manifest.is_hidden]
    if is_json:
        echo_json([{"digest": manifest.digest, **manifest.model_dump(mode="json")} for manifest in manifests])
        return 0
    header = ("model", "version", "task", "framework", "size", "license", "accuracy")
    rows = [
        (
            m.name,
            m.version,
            m.task,
            f"{m.framework.name} {m.framework.version}",
            _size(m.attributes),
            m.license or "-",
            _accuracy(m.attributes),
        )
        for m in sorted(manifests, key=lambda m: m.name.lower())
    ]
    click.echo(table(header, rows))
    return 0


def _size(attributes: dict[str, Any]) -> str:
    from mlmodelscope.show.units import format_bytes

    size = attributes.get("size_bytes")
    return format_bytes(size) if isinstance(size, int) else "-"


def _accuracy(attributes: dict[str, Any]) -> str:
    """`attributes.measured`: what we measured ourselves, with how many samples."""
    measured = attributes.get("measured")
    if not isinstance(measured, dict):
        return "-"
    if "map" in measured:
        return f"mAP {measured['map']} on {measured.get('dataset')}, n={measured.get('n')}"
    top5 = f"/{measured['top5']}" if "top5" in measured else ""
    return f"{measured.get('top1')}{top5} % on {measured.get('dataset')}, n={measured.get('n')}"
