"""Assets <-> one tar file or folder that holds them by digest, to carry them to a machine without a network.

Both forms hold the same paths (objects.py) and `mlmodelscope-assets.json`, which says for people what is inside. The
folder form is a mirror as it stands. The tar is not compressed, so it cannot unpack to more than its size.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlmodelscope.core.errors import ArchiveError, DigestError, InputError
from mlmodelscope.provision.archives import BoundedHeader
from mlmodelscope.provision.cache import Cache
from mlmodelscope.provision.digests import Digests, combine, hash_file
from mlmodelscope.provision.durable import place, private_folder, storing
from mlmodelscope.provision.objects import FILES, TREES, format_listing, object_path, parse_listing, parse_object_path

__all__ = ["BUNDLE_FORMAT", "AssetContent", "BundledAsset", "import_bundle", "write_bundle"]

BUNDLE_FORMAT = 1

_INDEX = "mlmodelscope-assets.json"
_LARGEST_INDEX_BYTES = 64 << 20
_MOST_OBJECTS = 5_000_000


@dataclass(frozen=True, slots=True)
class AssetContent:
    """The original files of one asset, wherever they lie: relative path -> file; one without a tree has one."""

    sha256: str
    size_bytes: int
    location: str
    is_tree: bool
    files: Mapping[str, Path]


@dataclass(frozen=True, slots=True)
class BundledAsset:
    """One asset as the bundle's index, or the cache after an import, names it. `name` is of a single file."""

    sha256: str
    size_bytes: int
    is_tree: bool
    name: str
    location: str


def write_bundle(contents: Sequence[AssetContent], target: Path) -> list[BundledAsset]:
    """Writes the assets to a tar file, or into a folder where `target` is one (or ends with `/` or has no ending).

    A folder keeps what it holds already. DigestError if a file is no longer what it was when it was hashed.
    """
    by_digest = {content.sha256: content for content in contents}
    assets = [_bundled(content) for _, content in sorted(by_digest.items())]
    if target.is_dir() or not target.suffix:
        _write_folder(list(by_digest.values()), assets, target)
    else:
        _write_tar(list(by_digest.values()), assets, target)
    return assets


def import_bundle(source: Path, cache: Cache) -> list[BundledAsset]:
    """Takes every asset of a bundle (tar or folder) into the cache: all of them, or none if one is not right."""
    if not source.exists():
        raise InputError(f"there is no file or folder {source}", input=str(source))
    with cache.scratch() as scratch:
        objects = _read_folder(source, scratch) if source.is_dir() else _read_tar(source, scratch)
        assets, parts = _assets_of(objects, scratch)
        if not assets:
            raise InputError(
                f"{source} holds no assets",
                hint="give a tar file or folder that `mlmodelscope assets export` wrote",
                input=str(source),
            )
        for asset in assets:
            _add(asset, objects, parts.get(asset.sha256), cache, scratch)
    return assets


def _bundled(content: AssetContent) -> BundledAsset:
    name = "" if content.is_tree else next(iter(content.files))
    return BundledAsset(content.sha256, content.size_bytes, content.is_tree, name, content.location)


def _index_text(assets: Sequence[BundledAsset]) -> bytes:
    listed = [
        {"sha256": a.sha256, "size_bytes": a.size_bytes, "is_tree": a.is_tree, "name": a.name, "location": a.location}
        for a in assets
    ]
    return (json.dumps({"format": BUNDLE_FORMAT, "assets": listed}, indent=1, sort_keys=True) + "\n").encode()


def _objects(contents: Sequence[AssetContent]) -> Iterator[tuple[str, bytes | Path]]:
    """(path in the bundle, content), each object once."""
    seen: set[str] = set()
    for content in contents:
        digests = {name: hash_file(file).sha256 for name, file in content.files.items()}
        listing = format_listing(digests) if content.is_tree else b""
        found = combine({n: Digests(d, "", 0) for n, d in digests.items()}).sha256 if listing else min(digests.values())
        if found != content.sha256:
            raise DigestError(
                f"{content.location} changed while it was packed", expected=content.sha256, actual=found,
                location=content.location,
            )  # fmt: skip
        entries: list[tuple[str, bytes | Path]] = [
            (object_path(FILES, digest), content.files[name]) for name, digest in digests.items()
        ]
        if listing:
            entries.append((object_path(TREES, content.sha256), listing))
        for path, data in entries:
            if path not in seen:
                seen.add(path)
                yield path, data


def _write_folder(contents: Sequence[AssetContent], assets: Sequence[BundledAsset], target: Path) -> None:
    known = {asset.sha256: asset for asset in _read_index(target / _INDEX)}
    with storing(target), private_folder(target / ".unfinished") as waiting:
        for path, data in _objects(contents):
            if not (target / path).is_file():
                _place_object(data, waiting / Path(path).name, target / path)
        merged = {**known, **{asset.sha256: asset for asset in assets}}
        index = _index_text([merged[digest] for digest in sorted(merged)])
        _place_object(index, waiting / _INDEX, target / _INDEX)
    with storing(target):
        (target / ".unfinished").rmdir()


def _place_object(data: bytes | Path, waiting: Path, target: Path) -> None:
    if isinstance(data, bytes):
        waiting.write_bytes(data)
    else:
        shutil.copyfile(data, waiting)
    waiting.chmod(0o644)
    target.unlink(missing_ok=True)
    place(waiting, target)


def _write_tar(contents: Sequence[AssetContent], assets: Sequence[BundledAsset], target: Path) -> None:
    with storing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    waiting = target.with_name(f".{target.name}.{os.getpid()}.unfinished")
    try:
        with storing(target), tarfile.open(waiting, "w", format=tarfile.PAX_FORMAT) as tar:
            _add_member(tar, _INDEX, _index_text(assets))
            for path, data in _objects(contents):
                _add_member(tar, path, data)
        place(waiting, target)
    finally:
        waiting.unlink(missing_ok=True)


def _add_member(tar: tarfile.TarFile, name: str, data: bytes | Path) -> None:
    # owner, mode and time are the same for everybody: equal assets make equal bundles
    info = tarfile.TarInfo(name)
    info.mode = 0o644
    if isinstance(data, bytes):
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
        return
    info.size = data.stat().st_size
    with data.open("rb") as file:
        tar.addfile(info, file)


def _read_index(path: Path) -> list[BundledAsset]:
    """What the index of a folder says, for people: nothing is decided by it but the names of single files."""
    try:
        if path.stat().st_size > _LARGEST_INDEX_BYTES:
            return []
        return _parse_index(path.read_bytes())
    except FileNotFoundError:
        return []


def _parse_index(text: bytes) -> list[BundledAsset]:
    try:
        values: Any = json.loads(text)
        number = values["format"]
        if not isinstance(number, int) or number > BUNDLE_FORMAT:
            raise InputError(
                f"the bundle has format {number}; this version of mlmodelscope reads up to {BUNDLE_FORMAT}",
                hint="upgrade mlmodelscope",
                format=number,
                readable=BUNDLE_FORMAT,
            )
        return [
            BundledAsset(
                str(v["sha256"]), int(v["size_bytes"]), bool(v["is_tree"]), _plain_name(v["name"]), str(v["location"])
            )
            for v in values["assets"]
        ]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"the bundle's {_INDEX} cannot be read") from None


def _plain_name(value: object) -> str:
    name = str(value)
    is_plain = name.isprintable() and "/" not in name and "\\" not in name and name not in ("", ".", "..")
    return name if is_plain and len(name.encode()) < 200 else "asset"


@dataclass(frozen=True, slots=True)
class _Objects:
    """The objects of a bundle, verified, in a scratch folder."""

    files: dict[str, Digests]
    trees: list[str]
    names: dict[str, str]


def _read_tar(source: Path, scratch: Path) -> _Objects:
    with _reading(source), tarfile.open(source, "r:", tarinfo=BoundedHeader) as tar:
        return _collect(((info.name, info) for info in _members(tar)), lambda info: tar.extractfile(info), scratch)


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for count, info in enumerate(tar, start=1):
        if count > _MOST_OBJECTS:
            raise tarfile.TarError(f"it has more than {_MOST_OBJECTS} entries")
        # a sparse file would unpack to more than the bundle holds
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.issparse():
            raise tarfile.TarError(f"the entry {info.name!r} is no plain file")
        yield info


def _read_folder(source: Path, scratch: Path) -> _Objects:
    with storing(source):
        paths = sorted(
            path
            for kind in (FILES, TREES)
            for path in (source / kind).glob("*/*")
            if parse_object_path(path.relative_to(source).as_posix())
        )
    index = [source / _INDEX] if (source / _INDEX).is_file() else []
    named = ((path.relative_to(source).as_posix(), path) for path in [*index, *paths])
    with storing(source):
        return _collect(named, lambda path: path.open("rb"), scratch)


def _collect(members: Iterator[tuple[str, Any]], open_member: Any, scratch: Path) -> _Objects:
    found = _Objects({}, [], {})
    for name, member in members:
        with open_member(member) as file:
            if name == _INDEX:
                content = file.read(_LARGEST_INDEX_BYTES + 1)
                found.names.update({asset.sha256: asset.name for asset in _parse_index(content)})
                continue
            parsed = parse_object_path(name)
            if parsed is None:
                raise ArchiveError(f"the entry {name[:100]!r} has no place in a bundle of assets", entry=name[:100])
            kind, digest = parsed
            target = scratch / f"{kind}-{digest}"
            with storing(target), target.open("wb") as copy:
                shutil.copyfileobj(file, copy, 1 << 20)
        digests = hash_file(target)
        if digests.sha256 != digest:
            raise DigestError(
                f"the bundle's entry {digest[:12]} is damaged: its SHA-256 is {digests.sha256}, expected {digest}",
                hint="copy the bundle again",
                expected=digest,
                actual=digests.sha256,
            )
        if kind == FILES:
            found.files[digest] = digests
        else:
            found.trees.append(digest)
    return found


def _assets_of(objects: _Objects, scratch: Path) -> tuple[list[BundledAsset], dict[str, dict[str, str]]]:
    """The assets that the objects make up, and of each tree its files. A file of a tree is no asset of its own,
    unless the index says so."""
    trees = {digest: parse_listing((scratch / f"{TREES}-{digest}").read_bytes(), digest) for digest in objects.trees}
    for digest, files in trees.items():
        missing = sorted(name for name, part in files.items() if part not in objects.files)
        if missing:
            raise InputError(
                f"the bundle lacks {len(missing)} files of the folder {digest[:12]}, such as {missing[0]}",
                hint="pack the bundle again",
                sha256=digest,
            )
    inner = {part for files in trees.values() for part in files.values()}
    singles = [digest for digest in sorted(objects.files) if digest not in inner or digest in objects.names]
    assets = [
        BundledAsset(d, objects.files[d].size_bytes, False, objects.names.get(d, "asset"), f"sha256:{d}")
        for d in singles
    ]
    sizes = {d: sum(objects.files[part].size_bytes for part in files.values()) for d, files in trees.items()}
    assets += [BundledAsset(d, sizes[d], True, "", f"sha256:{d}") for d in sorted(trees)]
    return assets, trees


def _add(asset: BundledAsset, objects: _Objects, tree: dict[str, str] | None, cache: Cache, scratch: Path) -> None:
    files = {asset.name: asset.sha256} if tree is None else tree
    with cache.scratch() as folder:
        with storing(folder):
            for name, digest in files.items():
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                _link(scratch / f"{FILES}-{digest}", target)
        parts = {name: objects.files[digest] for name, digest in files.items()}
        digests = combine(parts) if asset.is_tree else parts[asset.name]
        cache.add(folder, asset.location, is_tree=asset.is_tree, digests=digests)


def _link(source: Path, target: Path) -> None:
    """A second name rather than a move: the same content may belong to several assets."""
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, target)


@contextmanager
def _reading(source: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError, UnicodeError, ValueError) as error:
        raise ArchiveError(
            f"{source.name} is not a bundle of assets: {error or type(error).__name__}",
            hint="give a tar file or folder that `mlmodelscope assets export` wrote",
            archive=str(source),
        ) from error
    except OSError:
        with storing(source):
            raise
