"""A program that does what it is asked and is killed at a chosen write: requests come and answers go as lines of JSON.

Every system call that changes a file or a folder counts, of this program's own threads and whatever library makes it:
SQLite writes without Python's knowledge. Seccomp stops the process before such a call, and whoever traces it lets the
call happen or kills it there. The worker of an evaluation is recorded once and played back, so that hundreds of runs
cost what the parent does: the worker itself has no part in what is stored.
"""

import ctypes
import gc
import importlib
import json
import os
import platform
import shutil
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

# the numbers on x86_64 and aarch64; None where an architecture has no such call
CALLS = {
    "write": (1, 64),
    "pwrite64": (18, 68),
    "writev": (20, 66),
    "pwritev": (296, 70),
    "sendfile": (40, 71),
    "copy_file_range": (326, 285),
    "fallocate": (285, 47),
    "truncate": (76, 45),
    "ftruncate": (77, 46),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "link": (86, None),
    "linkat": (265, 37),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "utimensat": (280, 88),
}
OPENAT = (257, 56)
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

TRACEME, CONT, SETOPTIONS, GET_SYSCALL_INFO = 0, 7, 0x4200, 0x420E
# fork, vfork, clone and seccomp events; tracees end with the tracer
OPTIONS = 0x2 | 0x4 | 0x8 | 0x80 | 0x100000
SECCOMP_EVENT = signal.SIGTRAP | (7 << 8)
WAIT_ALL = 0x40000000
ALLOW, TRACE = 0x7FFF0000, 0x7FF00000
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> None:
    if libc.ptrace(request, pid, address, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x}")


def _numbers() -> dict[int, str]:
    column = list(ARCHITECTURES).index(platform.machine())
    names = {numbers[column]: name for name, numbers in {**CALLS, "openat": OPENAT}.items()}
    names.pop(None, None)
    return names


def _filter() -> bytes:
    """The program by which the kernel chooses the calls to stop at."""
    column = list(ARCHITECTURES).index(platform.machine())
    opening, others = OPENAT[column], [n for n, name in _numbers().items() if name != "openat"]
    lines: list[tuple[int, int, int, int]] = [
        (LOAD, 0, 0, 4),
        (EQUAL, 1, 0, ARCHITECTURES[platform.machine()]),
        (RETURN, 0, 0, ALLOW),
        (LOAD, 0, 0, 0),
    ]
    # from each comparison to the last line, which says "stop"
    lines += [(EQUAL, len(others) - i + 3, 0, number) for i, number in enumerate(others)]
    lines += [(EQUAL, 0, 2, opening), (LOAD, 0, 0, 32), (ANY_BIT, 1, 0, WRITING), (RETURN, 0, 0, ALLOW)]
    lines.append((RETURN, 0, 0, TRACE))
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def _install(program: bytes) -> None:
    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    no_new_privileges, set_seccomp, with_filter = 38, 22, 2
    value = Program(len(program) // 8, program)
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(set_seccomp, with_filter, ctypes.byref(value), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def run(action: Callable[[], object], out: Path, at: int | None = None) -> dict[str, Any]:
    """Does `action` in a child whose standard output is the file `out`, and kills it before its write number `at`."""
    pid = os.fork()
    if pid == 0:
        _become(action, out)
    os.waitpid(pid, 0)
    _ptrace(SETOPTIONS, pid, 0, OPTIONS)
    _ptrace(CONT, pid)
    names, code = _watch(pid, at)
    return {"calls": names, "code": code, "out": out.read_text()}


def _become(action: Callable[[], object], out: Path) -> None:
    try:
        handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        program = _filter()
        _ptrace(TRACEME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        _install(program)
        action()
        sys.stdout.flush()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _watch(pid: int, at: int | None) -> tuple[list[str], int]:
    known, names, code = _numbers(), [], 0
    info = ctypes.create_string_buffer(88)
    while True:
        try:
            stopped, status = os.waitpid(-1, WAIT_ALL)
        except ChildProcessError:
            return names, code
        if not os.WIFSTOPPED(status):
            code = os.waitstatus_to_exitcode(status) if stopped == pid else code
            continue
        number = os.WSTOPSIG(status)
        if status >> 8 == SECCOMP_EVENT and _process_of(stopped) == pid:
            _ptrace(GET_SYSCALL_INFO, stopped, 88, ctypes.addressof(info))
            names.append(known[struct.unpack_from("Q", info.raw, 24)[0]])
            if len(names) == at:
                os.kill(pid, signal.SIGKILL)
                continue
        passed = 0 if number in (signal.SIGTRAP, signal.SIGSTOP) else number
        try:
            _ptrace(CONT, stopped, 0, passed)
        except ProcessLookupError:  # it was killed meanwhile
            continue


def _process_of(thread: int) -> int:
    for line in Path(f"/proc/{thread}/status").read_text().splitlines():
        if line.startswith("Tgid:"):
            return int(line.split()[1])
    return thread


class Tape:
    """Stands in for `worker.launch.launch`: the first call is real and recorded, later ones are played back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._real = importlib.import_module("mlmodelscope.worker.launch").launch
        self._result: dict[str, Any] | None = None

    def __call__(self, job: Any, *rest: Any) -> dict[str, Any]:
        if self._result is None:
            self._result = self._real(job, *rest)
            shutil.copytree(job.run_folder, self._folder)
        for file in self._folder.iterdir():
            (Path(job.run_folder) / file.name).write_bytes(file.read_bytes())
        return self._result


class Shouts:
    """A converter: every byte of the original, in capitals."""

    name, extension, options = "shouts", ".txt", ()

    def digest(self) -> str:
        return "1"

    def companions(self, original: Path) -> list[str]:
        return []

    def convert(self, original: Path, target: Path, options: object) -> None:
        target.write_bytes(original.read_bytes().upper())


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def evaluate(home: Path, models: list[str], dataset: str) -> None:
    from mlmodelscope.library import Workspace, make_request

    scenario = {"type": "single_stream", "launches": 1, "min_duration_ns": 0, "min_queries": 2, "warmup_queries": 1}
    with Workspace(home) as workspace:
        for record in workspace.evaluate(make_request(models=models, dataset=dataset, scenario=scenario)):
            _say(f"{record.id} {record.status}")


def fetch(home: Path, location: str) -> None:
    from mlmodelscope.core.asset import Asset, Conversion
    from mlmodelscope.provision import Assets

    asset = Asset(locations=(location,), conversion=Conversion(name="shouts"))
    fetched = Assets(home, mirrors=()).fetch(asset)
    _say(f"{fetched.path} {fetched.converted_sha256}")


def add(home: Path, manifest: str) -> None:
    from mlmodelscope.zoo.catalogue import Catalogue

    _say(Catalogue(home).add(Path(manifest), "model").manifest.name)


ACTIONS: dict[str, Callable[..., None]] = {"add": add, "evaluate": evaluate, "fetch": fetch}


def main(folder: Path) -> None:
    from mlmodelscope import evaluation
    from mlmodelscope.provision import assets

    evaluation.launch = Tape(folder / "tape")
    assets.converter = lambda name: Shouts()
    gc.disable()
    for line in sys.stdin:
        asked = json.loads(line)
        action, home, arguments = ACTIONS[asked["do"]], Path(asked["home"]), asked["arguments"]

        def act(action: Callable[..., None] = action, home: Path = home, rest: list[Any] = arguments) -> None:
            action(home, *rest)

        if asked.get("is_first"):
            # in this very process: the children have all modules, and the tape, from it
            act()
            continue
        _say(json.dumps(run(act, folder / "out", asked["at"])))


def probe() -> None:
    """Whether a process can be stopped and counted here."""
    out = Path(os.devnull)
    assert run(lambda: Path("/dev/null/folder").mkdir(), out, at=1)["code"] == -signal.SIGKILL


if __name__ == "__main__":
    if sys.argv[1:] == ["--probe"]:
        probe()
    else:
        main(Path(sys.argv[1]))
