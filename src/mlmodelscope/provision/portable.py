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

from mlmodelscope.provision.durable import storage_error

__all__ = ["PORTABLE", "portable_folder"]

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
    files = {path.relative_to(_SOURCE): path.read_bytes() for path in _files()}
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    folder = home / "portable" / digest.hexdigest()[:16]
    if folder.is_dir():
        # its age says how long nobody has used it; a home that cannot be written still serves
        with suppress(OSError):
            os.utime(folder)
        return folder
    made = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        for name, content in files.items():
            target = made / "mlmodelscope" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        # another process may have made it meanwhile: then ours is one too many
        if not folder.is_dir():
            made.rename(folder)
    except OSError as error:
        if not folder.is_dir():
            raise storage_error(error, folder) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


def _files() -> list[Path]:
    # without __init__.py the folders are namespace packages, which every Python 3 reads
    found = [path for pattern in PORTABLE for path in _SOURCE.glob(pattern)]
    return sorted(path for path in found if path.name != "__init__.py")
