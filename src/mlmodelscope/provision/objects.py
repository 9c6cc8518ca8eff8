"""Digests <-> the paths and listings by which a bundle, a mirror folder or a plain file server holds assets.

sha256/ab/abcd...   the bytes of a file, under their own digest
trees/ab/abcd...    the listing of a folder, or of a file with companions: the text whose digest is the tree digest

A listing has one line `<sha256>  <relative path>` for each file, sorted by path. It is its own proof: whoever knows the
tree digest can check the listing, and with it every file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from mlmodelscope.core.errors import ArchiveError

__all__ = ["FILES", "TREES", "format_listing", "is_digest", "object_path", "parse_listing", "parse_object_path"]

FILES, TREES = "sha256", "trees"

_DIGEST = re.compile(r"[0-9a-f]{64}")
_OBJECT = re.compile(r"(?P<kind>sha256|trees)/(?P<head>[0-9a-f]{2})/(?P<digest>(?P=head)[0-9a-f]{62})")
_LINE = re.compile(r"(?P<digest>[0-9a-f]{64})  (?P<path>[^\x00-\x1f\\]+)")
_MOST_FILES = 1_000_000


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def object_path(kind: str, digest: str) -> str:
    """Where an object lies, with `/` between the parts: on a disk, in a bundle and in a URL alike."""
    assert is_digest(digest), digest
    return f"{kind}/{digest[:2]}/{digest}"


def parse_object_path(path: str) -> tuple[str, str] | None:
    """(kind, digest) of an object's path; None for any other path."""
    found = _OBJECT.fullmatch(path)
    return (found["kind"], found["digest"]) if found else None


def format_listing(files: Mapping[str, str]) -> bytes:
    """`files`: relative path -> SHA-256. The SHA-256 of the result is the tree digest."""
    ordered = sorted((name.encode("utf-8", "surrogateescape"), digest) for name, digest in files.items())
    return b"".join(digest.encode() + b"  " + name + b"\n" for name, digest in ordered)


def parse_listing(content: bytes, tree: str) -> dict[str, str]:
    """Relative path -> SHA-256. ArchiveError if this is no listing, or names a file outside its folder."""
    files: dict[str, str] = {}
    for line in content.decode("utf-8", "surrogateescape").split("\n")[:-1]:
        found = _LINE.fullmatch(line)
        if found is None or not _is_inside(found["path"]):
            raise _refused(tree, f"the line {line[:100]!r} names no file inside the folder")
        files[found["path"]] = found["digest"]
    if len(files) > _MOST_FILES:
        raise _refused(tree, f"it names more than {_MOST_FILES} files")
    folders = {str(folder) for name in files for folder in PurePosixPath(name).parents}
    if clash := folders.intersection(files):
        raise _refused(tree, f"{min(clash)!r} is both a file and a folder")
    if not files or format_listing(files) != content:
        raise _refused(tree, "it is no listing of files, sorted by path")
    return files


def _is_inside(path: str) -> bool:
    parts = path.split("/")
    return not ({"", ".", ".."} & set(parts)) and re.match(r"^[A-Za-z]:", path) is None


def _refused(tree: str, reason: str) -> ArchiveError:
    return ArchiveError(f"the listing of the folder {tree[:12]} is refused: {reason}", sha256=tree, reason=reason)
