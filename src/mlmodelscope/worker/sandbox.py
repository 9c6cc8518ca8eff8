"""A worker's command and the folders it needs -> the command line that runs it behind bubblewrap, or why that fails.

What the worker sees is built from nothing: its interpreter and the system's libraries, the files of its job, all
read-only; a scratch folder and /tmp in memory, of limited size; and of the host's disk only the result files, which
exist before it starts. A file that is a mount point can be written but neither removed nor replaced, so nothing that
the parent reads later can have become a link, a pipe or a folder. Where the framework is in a container, the folder of
memory that the two share is there as well; the parent looks at its size. docs/decisions/0005-sandbox.md gives reasons.
"""

from __future__ import annotations

import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mlmodelscope.core.errors import SandboxError
from mlmodelscope.core.settings import private_folders
from mlmodelscope.worker.job import Job

__all__ = [
    "HINT",
    "MOST_TASKS",
    "SCRATCH_BYTES",
    "View",
    "apply_limits",
    "bwrap_command",
    "can_sandbox",
    "find_bwrap",
    "interpreter_folders",
    "refuse_private",
    "sandboxed",
    "search_path",
    "shared_bytes",
]

# a framework starts a few threads per processor and per library; a fork bomb starts thousands
MOST_TASKS = 512 + 16 * (os.cpu_count() or 1)
# of /tmp, of /dev/shm, of the scratch folder, and of any one file the worker writes
SCRATCH_BYTES = 512 * 1024**2
# what a name costs the kernel, roughly: a million empty files are no small thing
_NAME_BYTES = 4096
_OPEN_FILES = 4096
# what a shared library or a clock may need; nothing that names users, hosts or services
_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "os-release")
_SYSTEM = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
# frameworks size their thread pools and choose kernels by what is written there
_HARDWARE = ("/sys/devices/system/cpu", "/sys/devices/system/node")
# Linux 5.14 counts a user's processes per user namespace; before, those outside the sandbox would count as well
_COUNTS_PER_NAMESPACE = (5, 14)
_PROBE_SECONDS = 30
HINT = "install bubblewrap 0.8 or newer and allow user namespaces (docs/concepts/sandbox.md)"
_NAMESPACES = (
    *("--unshare-all", "--unshare-user", "--disable-userns", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"),
    *("--hostname", "sandbox", "--new-session", "--die-with-parent"),
)


@dataclass(frozen=True, slots=True)
class View:
    """What one worker may see of the host: `readable` files and folders, a `scratch` folder in memory at that path, and
    in it the `results`, which are real files of the host and must exist. `shared` is a folder of the host that it may
    write: what a framework in a container sees of it too."""

    readable: tuple[Path, ...]
    scratch: Path
    results: tuple[Path, ...] = ()
    shared: Path | None = None


def sandboxed(bwrap: str, command: Sequence[str], job: Job, environment: Mapping[str, str]) -> list[str]:
    """The command of the job's worker behind the sandbox; its result files are made. SandboxError: what it needs cannot
    be shown without showing what is private."""
    scratch = Path(job.run_folder)
    results = tuple(scratch / name for name in ("progress", *job.result_names))
    for path in results:
        path.touch()
    private = private_folders(scratch)
    files = {Path(text).absolute() for text in (*job.files.values(), *job.inputs)}
    host = {Path(text) for text in job.host.folders} if job.host else set()
    readable = (*interpreter_folders(search_path(environment["PYTHONPATH"]), private), *files, *host)
    shared = Path(job.host.shared) if job.host and job.host.shared else None
    refuse_private((*readable, *([shared] if shared else [])), private)
    return bwrap_command(bwrap, command, View(readable, scratch, results, shared))


def bwrap_command(bwrap: str, command: Sequence[str], view: View, *, root: Path = Path("/")) -> list[str]:
    """The command line. `root` is where the system's folders are looked at (another one in tests)."""
    size = str(SCRATCH_BYTES)
    return [
        bwrap,
        *_NAMESPACES,
        *_system_folders(root),
        *("--proc", "/proc", "--dev", "/dev"),
        *("--size", size, "--tmpfs", "/dev/shm", "--size", size, "--tmpfs", "/tmp"),  # noqa: S108 - the sandbox's own
        # the scratch folder first: a readable file may lie below it, and would be covered
        *("--size", size, "--tmpfs", str(view.scratch)),
        *_binds("--ro-bind", _outermost(view.readable)),
        *_binds("--bind", (*view.results, *([view.shared] if view.shared else []))),
        # all that bubblewrap itself mounted in memory, so that no place without a limit of size can be written
        *("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/"),
        *("--chdir", str(view.scratch), "--", *command),
    ]


def _system_folders(root: Path) -> list[str]:
    found = list(_binds("--ro-bind", [Path("/usr")]))
    for name in _SYSTEM:
        folder = root / name
        if folder.is_symlink():
            found += ["--symlink", str(folder.readlink()), f"/{name}"]
        elif folder.is_dir():
            found += ["--ro-bind", f"/{name}", f"/{name}"]
    for path in (*(f"/etc/{name}" for name in _ETC), *_HARDWARE):
        if (root / path.lstrip("/")).exists():
            found += ["--ro-bind", path, path]
    return found


def _binds(option: str, paths: Iterable[Path]) -> Iterable[str]:
    for path in paths:
        yield from (option, str(path), str(path))


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """Each once, sorted, without those below another: they are seen already."""
    kept: list[Path] = []
    for path in sorted(set(paths)):
        if not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
    return kept


def interpreter_folders(search_path: Iterable[str], private: Iterable[Path]) -> tuple[Path, ...]:
    """What this interpreter needs to start again: its prefixes, every link on the way to its program, and the folders
    of `search_path`, without those that hold a private folder: a package there is not to be had inside."""
    prefixes = {Path(text) for text in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)}
    # the standard library as a .zip file is on the path whether it is there or not
    packages = {path for path in map(Path, filter(None, search_path)) if path.exists()}
    wanted = prefixes | {path for path in packages if _private_below(path, private) is None}
    wanted |= {path.parent for path in _links(Path(sys.executable))}
    wanted |= {path.resolve() for path in wanted}
    present = ("/usr", *(f"/{name}" for name in _SYSTEM))
    return tuple(path for path in _outermost(wanted) if not any(path.is_relative_to(folder) for folder in present))


@cache
def search_path(python_path: str) -> tuple[str, ...]:
    """Where a worker's interpreter looks for packages, as it says itself: ours may have been started otherwise."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import sys; print(*sys.path, sep=chr(0), end='')"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_PROBE_SECONDS,
        env={"PYTHONPATH": python_path},
        check=True,
    )
    return tuple(os.fsdecode(done.stdout).split("\0"))


def _links(program: Path) -> list[Path]:
    """The program and each file that it is a link to, as written."""
    found = [program]
    while found[-1].is_symlink() and len(found) < 40:
        found.append(Path(os.path.normpath(found[-1].parent / found[-1].readlink())))
    return found


def refuse_private(readable: Iterable[Path], private: Iterable[Path]) -> None:
    """SandboxError where showing a folder would show a private one: it is that folder or one above it."""
    for folder in (Path("/usr"), *readable):
        if _private_below(folder, private) is not None:
            raise SandboxError(
                f"the sandbox would have to show {folder} to untrusted code, and private files with it",
                hint="put the interpreter, the data set or the inputs into a folder of their own",
                folder=str(folder),
            )


def _private_below(folder: Path, private: Iterable[Path]) -> Path | None:
    shown = folder.resolve()
    return next((path for path in private if path.resolve().is_relative_to(shown)), None)


def find_bwrap() -> str:
    """The path of bubblewrap once it has started here; SandboxError says why it cannot."""
    reason = can_sandbox()
    bwrap = shutil.which("bwrap")
    if reason is not None or bwrap is None:
        raise SandboxError(f"untrusted code is not run without a sandbox, and here {reason}", hint=HINT, reason=reason)
    return bwrap


def can_sandbox() -> str | None:
    """None if the sandbox can start here, else the reason, found by starting it once (about 10 ms)."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return "bubblewrap (bwrap) is not installed"
    view = View((), Path("/tmp/scratch"))  # noqa: S108 - inside the sandbox
    try:
        done = subprocess.run(
            bwrap_command(bwrap, ["/usr/bin/env", "true"], view),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            env={},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap cannot be started: {error}"
    if done.returncode == 0:
        return None
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return f"bubblewrap failed: {lines[-1] if lines else f'exit code {done.returncode}'}"


def shared_bytes(folder: Path, most: int) -> int:
    """What the files below hold, as the file system counts, and something for every name. Stops counting beyond `most`,
    and a folder that was closed to us counts as that."""
    found, waiting = 0, [folder]
    try:
        while waiting:
            for path in waiting.pop().iterdir():
                with suppress(FileNotFoundError):
                    facts = path.lstat()
                    found += _NAME_BYTES + 512 * facts.st_blocks
                    waiting += [path] if stat.S_ISDIR(facts.st_mode) else []
                if found > most:
                    return found
    except FileNotFoundError:
        return found
    except OSError:
        return most + 1
    return found


def apply_limits() -> None:
    """Limits that this process and its children cannot raise again; called by the worker before it meets the job."""
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: SCRATCH_BYTES,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if _kernel() >= _COUNTS_PER_NAMESPACE:
        limits[resource.RLIMIT_NPROC] = MOST_TASKS
    for kind, most in limits.items():
        _, hard = resource.getrlimit(kind)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (value, value))


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdecimal())
