"""Finds manifests by name or path: the built-in ones of the zoo, those a user added, and files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar, cast

from mlmodelscope.core.errors import UnknownNameError, UnsatisfiableError, UsageError
from mlmodelscope.core.manifest import DatasetManifest, ModelManifest
from mlmodelscope.core.request import PinnedManifest
from mlmodelscope.core.versions import newest, parse_constraint
from mlmodelscope.manifest import load_manifest, read_manifest

__all__ = ["Catalogue", "Entry", "pin"]

M = TypeVar("M", bound=ModelManifest | DatasetManifest)
_SUFFIXES = (".yml", ".yaml")


@dataclass(frozen=True, slots=True)
class Entry(Generic[M]):
    """A manifest and how it was read. `is_builtin` for those of the zoo."""

    manifest: M
    pinned: PinnedManifest
    is_builtin: bool


class Catalogue:
    """Models and data sets by name. Reads files when asked, never writes but for `add` and `remove`.

    A user's own manifests lie in HOME/models and HOME/datasets and win over built-in ones of the same name and version.
    """

    def __init__(self, home: Path) -> None:
        self._home = home

    def models(self) -> list[Entry[ModelManifest]]:
        return [cast("Entry[ModelManifest]", entry) for entry in self._entries("models")]

    def datasets(self) -> list[Entry[DatasetManifest]]:
        return [cast("Entry[DatasetManifest]", entry) for entry in self._entries("datasets")]

    def model(self, text: str) -> Entry[ModelManifest]:
        """By path, name or `name@constraint`; the newest version that fits."""
        if _is_path(text):
            return _read(Path(text), ModelManifest)
        return _choose("model", text, self.models())

    def dataset(self, text: str) -> Entry[DatasetManifest]:
        if _is_path(text):
            return _read(Path(text), DatasetManifest)
        return _choose("data set", text, self.datasets())

    def add(self, path: Path) -> Entry[ModelManifest | DatasetManifest]:
        """Keeps a copy of a valid manifest; relative paths in it become absolute by a recorded base."""
        manifest = load_manifest(path)
        if not isinstance(manifest, ModelManifest | DatasetManifest):
            raise UsageError(f"{path} is a {manifest.kind} manifest; only models and data sets can be added")
        folder = self._home / f"{manifest.kind}s"
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{manifest.name.lower().replace('/', '_')}-{manifest.version}.yml"
        temporary = target.with_suffix(f".tmp{os.getpid()}")
        temporary.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        temporary.with_suffix(".base").write_text(str(path.resolve().parent), encoding="utf-8")
        temporary.with_suffix(".base").replace(target.with_suffix(".base"))
        temporary.replace(target)
        return _entry(target, manifest, is_builtin=False)

    def remove(self, text: str) -> list[str]:
        """Removes a user's own manifest by name or `name@version`; the built-in ones stay."""
        name, _, constraint = text.partition("@")
        wanted = parse_constraint(constraint or "*")
        removed: list[str] = []
        for folder in ("models", "datasets"):
            for path in _files(self._home / folder):
                manifest = read_manifest(path).value
                fits = manifest is not None and manifest.name.lower() == name.lower()
                if manifest is not None and fits and wanted.matches(manifest.version):
                    path.unlink()
                    path.with_suffix(".base").unlink(missing_ok=True)
                    removed.append(f"{manifest.name}@{manifest.version}")
        if not removed:
            own = [
                e.manifest.name for folder in ("models", "datasets") for e in self._entries(folder) if not e.is_builtin
            ]
            raise UnknownNameError("added manifest", text, own)
        return removed

    def _entries(self, folder: str) -> Iterator[Entry[ModelManifest | DatasetManifest]]:
        seen: set[tuple[str, str]] = set()
        for root, is_builtin in ((self._home / folder, False), (Path(__file__).parent / folder, True)):
            for path in _files(root):
                manifest = read_manifest(path).value
                if not isinstance(manifest, ModelManifest | DatasetManifest):
                    continue
                key = (manifest.name.lower(), manifest.version)
                if key not in seen:
                    seen.add(key)
                    yield _entry(path, manifest, is_builtin)


def pin(text: str, origin: str, base: Path, manifest: ModelManifest | DatasetManifest) -> PinnedManifest:
    return PinnedManifest(text=text, origin=origin, base=str(base), digest=manifest.digest)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.suffix in _SUFFIXES) if folder.is_dir() else []


def _is_path(text: str) -> bool:
    return text.endswith(_SUFFIXES) or os.sep in text


def _read(path: Path, kind: type[M]) -> Entry[M]:
    if not path.is_file():
        raise UnknownNameError(
            "manifest file", str(path), [str(p) for p in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        )
    manifest = load_manifest(path)
    if not isinstance(manifest, kind):
        wanted = kind.model_fields["kind"].default
        raise UsageError(f"{path} is a {manifest.kind} manifest, not a {wanted}")
    return _entry(path, manifest, is_builtin=False)


def _entry(path: Path, manifest: M, is_builtin: bool) -> Entry[M]:
    base_note = path.with_suffix(".base")
    base = Path(base_note.read_text(encoding="utf-8")) if base_note.is_file() else path.resolve().parent
    origin = f"zoo:{path.stem}" if is_builtin else str(path)
    return Entry(manifest, pin(path.read_text(encoding="utf-8"), origin, base, manifest), is_builtin)


def _choose(kind: str, text: str, entries: list[Entry[M]]) -> Entry[M]:
    name, _, constraint = text.partition("@")
    named = [entry for entry in entries if entry.manifest.name.lower() == name.lower()]
    if not named:
        hint = None
        if Path(text).exists():
            hint = f"to use the file, write ./{text}"
        raise UnknownNameError(kind, name, {entry.manifest.name for entry in entries}, hint=hint)
    versions = [entry.manifest.version for entry in named]
    best = newest(versions, parse_constraint(constraint or "*"))
    if best is None:
        raise UnsatisfiableError(
            f"no version of {kind} {name} fits {constraint!r}", hint=f"known versions: {', '.join(sorted(versions))}"
        )
    return next(entry for entry in named if entry.manifest.version == best)
