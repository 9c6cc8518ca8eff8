"""A private container engine (Podman) with images made from this machine's own files; all of it gone at the end."""

import fcntl
import hashlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "test-images"
# what an interpreter needs nothing of to run a model
_LEFT_OUT = {
    "__pycache__",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "tkinter",
}
# without systemd there is neither its journal nor its cgroup manager, and the usual limits exceed what a VM may allow
_CONFIGURATION = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=20000:20000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
# a user without a range of other users' numbers has one number to give to all files
_STORAGE = """
[storage]
driver = "vfs"
[storage.options.vfs]
ignore_chown_errors = "true"
"""
_NOBODY = 65534
_SCHEMA = "4"
# a test run that is killed leaves no service behind
_DIES_WITH_US = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []


@dataclass(frozen=True)
class PrivateEngine:
    """Where it listens, and its images: `full` has Python, numpy and ONNX Runtime; `bare` has Python alone; `shell` has
    no Python; `foreign` claims another architecture."""

    address: str
    full: str = "localhost/onnxruntime:full"
    bare: str = "localhost/python:bare"
    shell: str = "localhost/shell:1"
    foreign: str = "localhost/foreign:1"


class Podman:
    """The command line of Podman with storage of its own in `folder`, which it takes over; as `user`, without root's
    rights, if one is given."""

    def __init__(self, folder: Path, user: int | None = None) -> None:
        self.folder = folder
        configuration = folder / "containers.conf"
        configuration.write_text(_CONFIGURATION)
        self.environment = {**os.environ, "CONTAINERS_CONF": str(configuration), "TMPDIR": str(folder)}
        self._as_user = [] if user is None else self._become(user)
        self.program = [
            *self._as_user,
            *("podman", "--root", str(folder / "storage"), "--runroot", str(folder / "run")),
            *("--tmpdir", str(folder / "tmp"), "--log-level", "error"),
        ]

    def _become(self, user: int) -> list[str]:
        storage = self.folder / "storage.conf"
        storage.write_text(_STORAGE)
        runtime = self.folder / "runtime"
        runtime.mkdir(mode=0o700)
        for path in (self.folder, *self.folder.iterdir()):
            os.chown(path, user, user)
        self.environment |= {
            "CONTAINERS_STORAGE_CONF": str(storage),
            "HOME": str(self.folder),
            "XDG_RUNTIME_DIR": str(runtime),
        }
        return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self.program, *arguments], env=self.environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def add(self, name: str, tarball: Path, *options: str) -> None:
        """Makes an image of the files in the tarball, with settings of which a container of ours may use the first two
        and must not use the third."""
        for change in (
            "ENV PATH=/usr/local/bin:/usr/bin:/bin",
            "ENV LD_LIBRARY_PATH=/usr/local/lib",
            'ENTRYPOINT ["/bin/false"]',
            "LABEL org.example.kind=test",
        ):
            options = (*options, "--change", change)
        self.run("import", *options, str(tarball), name)

    @contextmanager
    def serve(self) -> Iterator[str]:
        socket = self.folder / "engine.sock"
        with (self.folder / "service.log").open("wb") as log:
            service = subprocess.Popen(
                [*_DIES_WITH_US, *self.program, "system", "service", "--time=0", f"unix://{socket}"],
                env=self.environment,
                cwd=self.folder,  # its monitors note there that a container ran out of memory
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            for _ in range(600):
                if socket.exists() or service.poll() is not None:
                    break
                time.sleep(0.05)
            assert socket.exists(), (self.folder / "service.log").read_text()
            yield f"unix://{socket}"
        finally:
            service.terminate()
            service.wait(30)

    def remove(self) -> None:
        """Everything: containers, images, mounts, the folder."""
        subprocess.run([*self.program, "rm", "--all", "--force", "--time=0"], env=self.environment, capture_output=True)
        subprocess.run([*self.program, "rmi", "--all", "--force"], env=self.environment, capture_output=True)
        if self._as_user:
            # a process of it keeps the namespace of the user
            subprocess.run([*self.program, "system", "migrate"], env=self.environment, capture_output=True)
        subprocess.run(["umount", str(self.folder / "storage" / "overlay")], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def private_engine() -> Iterator[PrivateEngine]:
    """The engine with its images, serving. A few seconds, once the tarballs of the images are made."""
    # not below a deep folder: the path of a socket has at most 107 bytes
    podman = Podman(Path(tempfile.mkdtemp(prefix="mlms-engine-")))
    foreign = "arm64" if platform.machine() == "x86_64" else "amd64"
    try:
        names = PrivateEngine("")
        podman.add(names.full, make_image("full", ("numpy", "onnxruntime")))
        podman.add(names.bare, make_image("bare", ()))
        podman.add(names.shell, make_image("shell", None))
        podman.add(names.foreign, make_image("shell", None), "--arch", foreign)
        with podman.serve() as address:
            yield PrivateEngine(address)
    finally:
        podman.remove()


def unprivileged(folder: Path) -> Podman:
    """The command line of a user who has nothing; for root to call."""
    return Podman(folder, _NOBODY)


def starts_containers(network: str = "none", *, is_rootless: bool = False) -> bool:
    """Whether Podman is here and a container with such a network really runs."""
    if not all(map(shutil.which, ("podman", "runc", "ldd"))) or (is_rootless and os.getuid() != 0):
        return False
    folder = Path(tempfile.mkdtemp(prefix="mlms-engine-"))
    podman = unprivileged(folder) if is_rootless else Podman(folder)
    try:
        podman.add("localhost/shell:1", make_image("shell", None))
        podman.run("run", "--rm", f"--network={network}", "--entrypoint=/bin/sh", "localhost/shell:1", "-c", "exit 0")
    except (AssertionError, OSError, subprocess.TimeoutExpired):
        return False
    finally:
        podman.remove()
    return True


def make_image(name: str, distributions: tuple[str, ...] | None) -> Path:
    """The tarball of a root file system: a shell, and with `distributions` this Python and those packages of it."""
    wanted = _with_requirements(distributions or ())
    key = repr((_SCHEMA, sys.version, distributions, sorted((item.name, item.version) for item in wanted)))
    target = CACHE / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.tar"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            for old in CACHE.glob(f"{name}-*.tar"):
                old.unlink()
            unfinished = target.with_suffix(".part")
            with tarfile.open(unfinished, "w") as tar:
                _fill(tar, wanted, has_python=distributions is not None)
            unfinished.rename(target)
    return target


def _fill(tar: tarfile.TarFile, packages: Iterable[importlib.metadata.Distribution], *, has_python: bool) -> None:
    files = {"bin/sh": Path("/bin/sh"), "bin/false": Path("/bin/false"), "bin/sleep": Path("/bin/sleep")}
    if has_python:
        files["usr/local/bin/python3"] = Path(sys.executable).resolve()
        files |= _standard_library()
    for package in packages:
        files |= _package(package)
    for folder in ("tmp", "etc", "dev", "proc", "sys", "run"):
        entry = tarfile.TarInfo(folder)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
        tar.addfile(entry)
    for target, source in sorted((files | _shared_libraries(files.values())).items()):
        tar.add(source.resolve(), target, recursive=False)


def _standard_library() -> dict[str, Path]:
    folder = Path(sysconfig.get_path("stdlib"))
    name = f"usr/local/lib/python{sys.version_info.major}.{sys.version_info.minor}"
    return {
        f"{name}/{path.relative_to(folder)}": path
        for path in folder.rglob("*")
        if path.is_file()
        and not _LEFT_OUT.intersection(path.relative_to(folder).parts)
        and not path.name.endswith(".a")
        and not path.name.startswith("_tkinter")
    }


def _with_requirements(names: Iterable[str]) -> list[importlib.metadata.Distribution]:
    """The distributions and all that they require here; markers that do not hold name nothing that is installed."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        lines = [line for line in found[name].requires or [] if "extra ==" not in line]
        waiting += ["".join(c if c.isalnum() or c in "-_." else " " for c in line).split()[0] for line in lines]
    return list(found.values())


def _package(package: importlib.metadata.Distribution) -> dict[str, Path]:
    name = f"usr/local/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    return {
        f"{name}/{file}": Path(str(package.locate_file(file)))
        for file in package.files or []
        if ".." not in file.parts and not {"__pycache__", "tests"}.intersection(file.parts)
    }


def _shared_libraries(files: Iterable[Path]) -> dict[str, Path]:
    """What the dynamic linker loads for them, under its own path; the interpreter's own library goes to /usr/local."""
    programs = [str(path.resolve()) for path in files if ".so" in path.name or path.parent.name == "bin"]
    told = subprocess.run(["ldd", *programs], capture_output=True, text=True).stdout
    words = (word for line in told.splitlines() for word in line.split() if word.startswith("/") and ":" not in word)
    found = {}
    for text in set(words):
        if "site-packages" in text:
            continue  # a package's own, found beside it
        is_ours = text.startswith(sys.base_prefix) and sys.base_prefix != "/usr"
        found[f"usr/local/lib/{Path(text).name}" if is_ours else text.lstrip("/")] = Path(text)
    return found
