"""Installed packages -> their bytecode beside them, compiled once per wheel and shared by hard link.

A worker may not be able to write into its environment, and must not spend its start on compiling. The bytecode is of
the kind that Python does not compare with the source's time stamp: a wheel's content is fixed by its digest.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from mlmodelscope.core.errors import StorageError
from mlmodelscope.provision.durable import storing
from mlmodelscope.provision.environments.caches import bytecode_locked
from mlmodelscope.provision.environments.interpreters import Interpreter
from mlmodelscope.provision.environments.locks import LockedFile

__all__ = ["compile_all", "site_packages"]

_MODE = "unchecked-hash"
# packages bring their own tests along, often half of their files
_UNUSED = r"/tests?/"
_DEPTH = 10
_COMPILABLE = """
import sys, warnings
warnings.simplefilter("ignore")
for path in sys.stdin.read().splitlines():
    try:
        with open(path, "rb") as file:
            compile(file.read(), path, "exec")
    except Exception:
        continue
    print(path)
"""


def site_packages(folder: Path, interpreter: Interpreter) -> Path:
    return folder / "lib" / f"python{interpreter.minor}" / "site-packages"


def compile_all(
    environment: Path,
    interpreter: Interpreter,
    files: Sequence[LockedFile],
    cache: Path,
    kept: Sequence[int] = (),
    *,
    may_share: bool = True,
) -> None:
    """Leaves bytecode for every package in `environment`; sources that are no Python of this version are left alone.

    Without `may_share` nothing is added to the `cache`: a stranger's package can lay its files over another's, and
    their bytecode would be taken for the other's in every environment to come.
    """
    packages = site_packages(environment, interpreter)
    if interpreter.implementation != "CPython" or _is_older(interpreter, (3, 7)):
        _compile(interpreter, [packages], [], kept)
        return
    shared = cache / f"{interpreter.implementation.lower()}-{interpreter.minor}{interpreter.flags}"
    sources = _sources(packages)
    missing: dict[str, Path | None] = {}
    with bytecode_locked(cache):
        for file in files:
            folder = shared / file.sha256 if file.sha256 else None
            if folder is None or not _link(folder, packages):
                # what is built from source may come out differently next time: only a wheel's bytecode is kept
                missing[file.name] = folder if file.is_wheel and may_share else None
    tops = {packages / source.parts[0] for name in missing for source in sources.get(name, [])}
    if not tops:
        return
    _compile(interpreter, sorted(tops), ["--invalidation-mode", _MODE], kept)
    _check_compiled(packages, itertools.chain.from_iterable(sources.get(name, []) for name in missing), interpreter)
    with bytecode_locked(cache):
        for name, target in missing.items():
            # another maker may have kept it meanwhile
            if target is not None and not target.exists():
                _keep(target, packages, sources.get(name, []), interpreter)


def _is_older(interpreter: Interpreter, version: tuple[int, int]) -> bool:
    return tuple(int(part) for part in interpreter.version.split(".")[:2]) < version


def _sources(packages: Path) -> dict[str, list[Path]]:
    """The Python files of each package, by its normal name, as its list of files names them."""
    from packaging.utils import canonicalize_name

    found: dict[str, list[Path]] = {}
    for record in packages.glob("*.dist-info/RECORD"):
        name = canonicalize_name(record.parent.name.split("-")[0])
        with record.open(encoding="utf-8", errors="replace", newline="") as file, suppress(csv.Error):
            # a name over two lines would be two for the compiler, and the second could lead anywhere
            rows = [row[0] for row in csv.reader(file) if row and row[0].endswith(".py") and row[0].isprintable()]
            paths = [Path(row) for row in rows]
            found[name] = [path for path in paths if not path.is_absolute() and ".." not in path.parts]
    return found


def _compile(interpreter: Interpreter, targets: Sequence[Path], options: Sequence[str], kept: Sequence[int]) -> None:
    # not the environment's own Python, and without `site`: that runs what the .pth files of packages say
    program = [interpreter.path, "-I", "-S", "-m", "compileall", "-qq", "-j", "0", "-x", _UNUSED, *options, "-i", "-"]
    process = subprocess.Popen(
        program,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        pass_fds=tuple(kept),
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write("\n".join(str(target) for target in targets))
        # not reaped yet: until the group is ended its number must not become another's
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    finally:
        # its helpers do not end with it, and hold the maker's lock
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    # 1 says that there are sources that nobody imports (templates, examples of bad syntax)
    if process.returncode < 0:
        raise StorageError(
            f"compiling packages was ended by {signal.Signals(-process.returncode).name}",
            hint="run it again; there may have been too little memory",
        )


def _check_compiled(packages: Path, sources: Iterable[Path], interpreter: Interpreter) -> None:
    """StorageError where a source has no bytecode though it is good Python: then it could not be written."""
    missing = [
        packages / source
        for source in sources
        # how deep older compilers look
        if len(source.parts) < _DEPTH
        and not re.search(_UNUSED, f"/{source.as_posix()}")
        and (packages / source).is_file()
        and not (packages / _compiled(source, interpreter)).is_file()
    ]
    if not missing:
        return
    answer = subprocess.run(
        [interpreter.path, "-I", "-S", "-c", _COMPILABLE],
        input="\n".join(map(str, missing)),
        capture_output=True,
        text=True,
        check=False,
    )
    good = answer.stdout.splitlines()
    if good:
        raise StorageError(
            f"the bytecode of {good[0]} could not be written, nor that of {len(good) - 1} others",
            hint="free some space, or set MLMODELSCOPE_HOME to a folder on another disk",
            path=good[0],
        )


def _compiled(source: Path, interpreter: Interpreter) -> Path:
    return source.parent / "__pycache__" / f"{source.stem}.cpython-{interpreter.minor.replace('.', '')}.pyc"


def _link(folder: Path, packages: Path) -> bool:
    """Whether the compiled files were kept before; then they are beside their sources now."""
    if not folder.is_dir():
        return False
    with storing(packages):
        for path in _files(folder):
            target = packages / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            _link_or_copy(path, target)
    return True


def _files(folder: Path) -> Iterator[Path]:
    for root, _, names in os.walk(folder):
        yield from (Path(root, name) for name in names)


def _keep(target: Path, packages: Path, sources: Sequence[Path], interpreter: Interpreter) -> None:
    with storing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=target.parent, prefix=".new-"))
        try:
            for source in sources:
                compiled = _compiled(source, interpreter)
                if (packages / compiled).is_file():
                    (new / compiled).parent.mkdir(parents=True, exist_ok=True)
                    _link_or_copy(packages / compiled, new / compiled)
            new.rename(target)
        finally:
            shutil.rmtree(new, ignore_errors=True)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except FileExistsError:
        pass
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
