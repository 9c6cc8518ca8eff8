"""`mlmodelscope storage`: what takes up space in the home, and less of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mlmodelscope.cli.options import as_json, echo_json, open_workspace
from mlmodelscope.core.storage import HISTORY, PRUNED, STORAGE_KINDS, parse_age, parse_bytes

if TYPE_CHECKING:
    from mlmodelscope.core.storage import StorageItem, StorageKind

_MEANINGS = {
    "database": "the history",
    "artifacts": "files that records name",
    "orphans": "files of records that were never finished",
    "assets": "files of models and data sets",
    "archives": "packages that assets were taken from",
    "converted": "made from assets by converters; made again where missing",
    "prepared": "samples and our own files made ready; made again where missing",
    "environments": "what frameworks run in; made again where missing",
    "packages": "what environments are made of, and share; fetched again where missing",
    "unfinished": "downloads and files that broke off",
    "runs": "folders of evaluations, under way or abandoned",
}


@click.group("storage")
def command() -> None:
    """Show what takes up space, and free what nobody needs."""


@command.command("show")
@as_json
def show(is_json: bool) -> int:
    """Show how much of what is in the home (MLMODELSCOPE_HOME)."""
    from mlmodelscope.show.units import format_bytes, table

    with open_workspace() as workspace:
        items, home = workspace.storage(), str(workspace.home)
    counts = {kind: [item.size_bytes for item in items if item.kind == kind] for kind in STORAGE_KINDS}
    if is_json:
        sums = [{"kind": kind, "count": len(sizes), "size_bytes": sum(sizes)} for kind, sizes in counts.items()]
        echo_json({"home": home, "kinds": sums})
        return 0
    rows = [(str(kind), str(len(s)), format_bytes(sum(s)), _MEANINGS[kind]) for kind, s in counts.items()]
    rows.append(("total", str(len(items)), format_bytes(sum(item.size_bytes for item in items)), home))
    click.echo(table(("kind", "count", "size", ""), rows, right=(1, 2)))
    return 0


@command.command("prune")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([kind for kind in STORAGE_KINDS if kind not in HISTORY]),
    help=f"What to free; may be repeated. Default: {', '.join(PRUNED)}.",
)
@click.option("--older-than", default="1d", show_default=True, metavar="AGE", help="Not used for: 30d, 12h, 2w.")
@click.option("--max-size", metavar="SIZE", help="Only until these kinds take this much together: 5GB.")
@click.option("--needed", is_flag=True, help="Also assets that stored records name: to repeat those, fetch them again.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@as_json
def prune(
    kinds: tuple[StorageKind, ...], older_than: str, max_size: str | None, needed: bool, dry_run: bool, is_json: bool
) -> int:
    """Remove what no stored evaluation needs, the longest unused first.

    The history itself is never touched, nor what was used within the last hour. --kind assets removes only files that
    no record names, unless --needed.
    """
    with open_workspace() as workspace:
        removed = workspace.prune(
            kinds or PRUNED,
            older_than_seconds=parse_age(older_than),
            max_bytes=None if max_size is None else parse_bytes(max_size),
            also_needed=needed,
            is_dry=dry_run,
        )
    return _say(removed, dry_run, is_json)


def _say(removed: list[StorageItem], is_dry: bool, is_json: bool) -> int:
    from mlmodelscope.show.units import format_bytes, table

    if is_json:
        echo_json({"is_dry": is_dry, "removed": removed})
        return 0
    if removed:
        rows = [(item.kind, format_bytes(item.size_bytes), item.name) for item in removed]
        click.echo(table(("kind", "size", "what"), rows, right=(1,)))
    total = format_bytes(sum(item.size_bytes for item in removed))
    click.echo(f"{len(removed)} {'would be removed' if is_dry else 'removed'}, {total}", err=True)
    return 0
