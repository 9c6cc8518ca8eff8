"""Finds manifests by name or path: the built-in ones of the zoo, those a user added, and files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

from mlmodelscope.core.errors import UnknownNameError, UnsatisfiableError, UsageError
from mlmodelscope.core.manifest import DatasetManifest, ModelManifest
from mlmodelscope.core.request import PinnedManifest
from mlmodelscope.core.versions import newest, parse_constraint
from mlmodelscope.manifest import load_manifest, read_manifest

__all__ = ["Catalogue", "Entry", "pin"]

M = TypeVar("M", bound=ModelManifest | DatasetManifest)
Kind = Literal["model", "dataset"]

_SUFFIXES = (".yml", ".yaml")
_CLASSES: dict[Kind, type[ModelManifest | DatasetManifest]] = {"model": ModelManifest, "dataset": DatasetManifest}
_WORDS: dict[Kind, str] = {"model": "model", "dataset": "data set"}


@dataclass(frozen=True, slots=True)
class Entry(Generic[M]):
    """A manifest and how it was read. `is_builtin` for those of the zoo."""

    manifest: M
    pinned: PinnedManifest
    is_builtin: bool


class Catalogue:
    """Models and data sets by name. Reads files when asked, never writes but for `add` and `remove`.

    A user's own manifests lie in HOME/models and HOME/datasets and win over built-in ones of the same name and version.
    A file there that is no such manifest is passed over.
    """

    def __init__(self, home: Path) -> None:
        self._home = home

    def models(self) -> list[Entry[ModelManifest]]:
        return self._entries(ModelManifest)

    def datasets(self) -> list[Entry[DatasetManifest]]:
        return self._entries(DatasetManifest)

    def model(self, text: str) -> Entry[ModelManifest]:
        """By path, name or `name@constraint`; the newest version that fits."""
        if _is_path(text):
            return _read(Path(text), ModelManifest)
        return _choose("model", text, self.models())

    def dataset(self, text: str) -> Entry[DatasetManifest]:
        if _is_path(text):
            return _read(Path(text), DatasetManifest)
        return _choose("data set", text, self.datasets())

    def add(self, path: Path, kind: Kind) -> Entry[ModelManifest | DatasetManifest]:
        """Keeps a copy of a valid manifest, and beside it a note of the folder that its relative paths start from."""
        from mlmodelscope.provision.durable import write_text

        entry: Entry[ModelManifest | DatasetManifest] = _read(path, _CLASSES[kind])
        manifest = entry.manifest
        target = self._folder(kind) / f"{manifest.name.lower().replace('/', '_')}-{manifest.version}.yml"
        # the note first: a manifest that can be seen always has its base
        write_text(_base_note(target), entry.pinned.base)
        write_text(target, entry.pinned.text)
        return _entry(target, manifest, is_builtin=False)

    def remove(self, text: str, kind: Kind) -> list[str]:
        """Removes a user's own manifests by name or `name@constraint`, every version that fits; the zoo's stay."""
        from mlmodelscope.provision.durable import remove

        name, _, constraint = text.partition("@")
        wanted = parse_constraint(constraint or "*")
        own = dict(_manifests(self._folder(kind), _CLASSES[kind]))
        fitting = {p: m for p, m in own.items() if m.name.lower() == name.lower() and wanted.matches(m.version)}
        if not fitting:
            raise UnknownNameError(f"added {_WORDS[kind]}", text, {manifest.name for manifest in own.values()})
        for path in fitting:
            remove(path)
            remove(_base_note(path))
        return [f"{manifest.name}@{manifest.version}" for manifest in fitting.values()]

    def _folder(self, kind: Kind) -> Path:
        return self._home / f"{kind}s"

    def _entries(self, cls: type[M]) -> list[Entry[M]]:
        folder = f"{cls.model_fields['kind'].default}s"
        found: dict[tuple[str, str], Entry[M]] = {}
        for root, is_builtin in ((self._home / folder, False), (Path(__file__).parent / folder, True)):
            for path, manifest in _manifests(root, cls):
                key = (manifest.name.lower(), manifest.version)
                if key not in found:
                    found[key] = _entry(path, manifest, is_builtin)
        return list(found.values())


def pin(text: str, origin: str, base: Path, manifest: ModelManifest | DatasetManifest) -> PinnedManifest:
    return PinnedManifest(text=text, origin=origin, base=str(base), digest=manifest.digest)


def _manifests(folder: Path, cls: type[M]) -> Iterator[tuple[Path, M]]:
    for path in sorted(path for path in folder.glob("*") if path.suffix in _SUFFIXES):
        manifest = read_manifest(path).value
        if isinstance(manifest, cls):
            yield path, manifest


def _is_path(text: str) -> bool:
    """What looks like a file, or is one; a name may hold a slash too (`google/mobilenet`)."""
    looks_so = text.endswith(_SUFFIXES) or text.startswith((".", "~", os.sep))
    return looks_so or (os.sep in text and _is_there(Path(text)))


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long, say
        return False


def _base_note(path: Path) -> Path:
    return path.with_suffix(".base")


def _read(path: Path, kind: type[M]) -> Entry[M]:
    if not _is_there(path):
        raise UnknownNameError(
            "manifest file", str(path), [str(p) for p in path.parent.glob("*") if p.suffix in _SUFFIXES]
        )
    manifest = load_manifest(path)
    if not isinstance(manifest, kind):
        wanted = kind.model_fields["kind"].default
        raise UsageError(f"{path} is a {manifest.kind} manifest, not a {wanted}")
    return _entry(path, manifest, is_builtin=False)


def _entry(path: Path, manifest: M, is_builtin: bool) -> Entry[M]:
    base_note = _base_note(path)
    base = Path(base_note.read_text(encoding="utf-8")) if base_note.is_file() else path.resolve().parent
    origin = f"zoo:{path.stem}" if is_builtin else str(path)
    return Entry(manifest, pin(path.read_text(encoding="utf-8"), origin, base, manifest), is_builtin)


def _choose(kind: str, text: str, entries: list[Entry[M]]) -> Entry[M]:
    name, _, constraint = text.partition("@")
    named = [entry for entry in entries if entry.manifest.name.lower() == name.lower()]
    if not named:
        hint = f"to use the file, write ./{text}" if _is_there(Path(text)) else None
        raise UnknownNameError(kind, name, {entry.manifest.name for entry in entries}, hint=hint)
    versions = [entry.manifest.version for entry in named]
    best = newest(versions, parse_constraint(constraint or "*"))
    if best is None:
        raise UnsatisfiableError(
            f"no version of {kind} {name} fits {constraint!r}", hint=f"known versions: {', '.join(sorted(versions))}"
        )
    return next(entry for entry in named if entry.manifest.version == best)
