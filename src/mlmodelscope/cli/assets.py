"""`mlmodelscope assets`: the files of models and data sets, in the cache, in bundles and on mirrors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlmodelscope.cli.options import as_json, echo_json, open_workspace

if TYPE_CHECKING:
    from mlmodelscope.provision.bundles import BundledAsset


@click.group("assets")
def command() -> None:
    """List, pack, take in and mirror the files of models and data sets."""


@command.command("list")
@as_json
def list_assets(is_json: bool) -> int:
    """List what is in the cache, the longest unused last."""
    from mlmodelscope.provision.upkeep import storage_items
    from mlmodelscope.show.units import format_bytes, table

    with open_workspace() as workspace:
        items = sorted(storage_items(workspace.assets.cache), key=lambda item: -item.used_at)
    kept = [item for item in items if item.kind in ("assets", "archives")]
    if is_json:
        echo_json(kept)
        return 0
    rows = [(item.key[:12], item.kind.removesuffix("s"), format_bytes(item.size_bytes), item.name) for item in kept]
    click.echo(table(("sha256", "kind", "size", "from"), rows, right=(2,)))
    return 0


@command.command("export")
@click.argument("names", nargs=-1, required=True, metavar="MODEL|DATASET|ID...")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE|FOLDER",
    help="bundle.tar, or a folder.",
)
@as_json
def export_assets(names: tuple[str, ...], output: Path, is_json: bool) -> int:
    """Pack the original files of models, data sets and stored evaluations, by digest.

    A name that ends with .tar makes one file. A folder keeps what it holds and can serve as a mirror as it stands.
    What is not here yet is fetched first.
    """
    with open_workspace(draws=True) as workspace:
        packed = workspace.export_assets(names, output)
    return _say(packed, f"packed into {output}", is_json)


@command.command("import")
@click.argument("source", type=click.Path(path_type=Path), metavar="FILE|FOLDER")
@as_json
def import_assets(source: Path, is_json: bool) -> int:
    """Verify a bundle and take its files into the cache, all or none."""
    with open_workspace() as workspace:
        taken = workspace.import_assets(source)
    return _say(taken, "in the cache", is_json)


@command.command("mirror")
@click.argument("place", required=False, metavar="[FOLDER|URL]")
@click.option("--remove", is_flag=True, help="Ask this mirror no more.")
@as_json
def mirror(place: str | None, remove: bool, is_json: bool) -> int:
    """Ask FOLDER or URL first for every file whose digest is known; without an argument, list the mirrors.

    A mirror is a folder that `assets export -o FOLDER` filled, or any web server of such a folder. It needs no trust:
    every file is checked. MLMODELSCOPE_MIRRORS names further ones, with commas between them.
    """
    from mlmodelscope.core import settings
    from mlmodelscope.core.asset import public_location
    from mlmodelscope.core.errors import UsageError
    from mlmodelscope.provision.mirrors import add_place, configured_places, remove_place

    if remove and place is None:
        raise UsageError("--remove needs the mirror to remove")
    with open_workspace() as workspace:
        if place is not None:
            (remove_place if remove else add_place)(workspace.home, place)
        kept = [public_location(text) for text in configured_places(workspace.home)]
    given = [public_location(text) for text in settings.mirrors()]
    if is_json:
        echo_json({"environment": given, "configured": kept})
    else:
        for text in given:
            click.echo(f"{text}  (MLMODELSCOPE_MIRRORS)")
        for text in kept:
            click.echo(text)
        if not given and not kept:
            click.echo("no mirror is set", err=True)
    return 0


def _say(assets: Sequence[BundledAsset], what: str, is_json: bool) -> int:
    from mlmodelscope.show.units import format_bytes, table

    if is_json:
        echo_json(list(assets))
        return 0
    rows = [
        (item.sha256[:12], "folder" if item.is_tree else "file", format_bytes(item.size_bytes), item.location)
        for item in assets
    ]
    click.echo(table(("sha256", "kind", "size", "from"), rows, right=(2,)))
    total = sum(item.size_bytes for item in assets)
    click.echo(f"{len(assets)} assets, {format_bytes(total)}, {what}", err=True)
    return 0
