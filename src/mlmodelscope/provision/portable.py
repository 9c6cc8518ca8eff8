"""The files of ours that run beside a framework -> a folder that can be put on any Python's path, or mounted.

Nothing of ours is installed into a framework's environment. The folder is addressed by its content, so that a newer
release of ours never changes the files under a running worker.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path

from mlmodelscope.provision.durable import storage_error, sync

__all__ = ["PORTABLE", "note_use", "portable_folder"]

_SOURCE = Path(__file__).resolve().parents[1]
# of `worker/` and `process/` only what Python 3.6 can read; tests/architecture/test_portable.py holds them to it
PORTABLE = (
    "predictors/*.py",
    "process/portable.py",
    "testing/inside.py",
    "worker/protocol.py",
    "worker/shim.py",
    "worker/tensors.py",
    "worker/values.py",
)


def portable_folder(home: Path) -> Path:
    """The folder below `home` that holds the portable layer of this release; made when first asked for."""
    files = _files()
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    folder = home / "portable" / digest.hexdigest()[:16]
    if folder.is_dir():
        note_use(folder)
        return folder
    made = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        for name, content in files.items():
            target = made / "mlmodelscope" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        # from then on its name stands for its content, which nobody compares again: it must outlive a power cut
        for path in (made, *made.rglob("*")):
            sync(path)
        # another process may have made it meanwhile: then ours is one too many
        if not folder.is_dir():
            made.rename(folder)
            sync(folder.parent)
    except OSError as error:
        if not folder.is_dir():
            raise storage_error(error, folder) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


def note_use(folder: Path) -> None:
    """Its age says how long nobody has used it; a home that cannot be written still serves."""
    with suppress(OSError):
        os.utime(folder)


def _files() -> dict[Path, bytes]:
    """The content of each file by its place. Empty files make packages of the folders: without them, a release of ours
    that is installed beside a framework would be found first."""
    found = {path.relative_to(_SOURCE): path.read_bytes() for pattern in PORTABLE for path in _SOURCE.glob(pattern)}
    return found | {parent / "__init__.py": b"" for path in found for parent in path.parents}
