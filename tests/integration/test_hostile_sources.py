"""Manifests and archives made to do harm, through the command line: refused by their code, soon, and in little room."""

import bz2
import gzip
import io
import json
import os
import re
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlmodelscope.provision.archives import Limits

PROGRAM = Path(__file__).with_name("commands.py")
QUICK = ("--launches", "1", "--duration", "0", "--queries", "2", "--warmup", "1")
MIB = 1 << 20
# what a bomb unpacks to: more than a refusal may cost, and not so much that a failing test harms the machine
BOMB_BYTES = 192 * MIB
MOST_MEMORY_BYTES = 128 * MIB
MOST_DISK_BYTES = 2 * MIB


class Session:
    """Command lines in one process, whose memory is watched."""

    def __init__(self, lab: Any) -> None:
        self.lab = lab
        command = [sys.executable, str(PROGRAM)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=lab.environment(), cwd=lab.root
        )
        # everything that it will import is imported
        self.run("evaluate", lab.function("quiet", "pass"), "-d", lab.noise(), *QUICK)
        self._memory_bytes = self.peak_bytes()

    def run(self, *arguments: str) -> tuple[int, str, str]:
        print(json.dumps(arguments), file=self._process.stdin, flush=True)
        code, out, err = json.loads(self._process.stdout.readline())
        return code, out, err

    def peak_bytes(self) -> int:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self._process.pid}/status").read_text())
        return int(found[1]) * 1024

    def grown_bytes(self) -> int:
        """By how much the memory it needed at most has grown since it started."""
        return self.peak_bytes() - self._memory_bytes

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def session(make_lab, tmp_path_factory) -> Iterator[Session]:
    session = Session(make_lab(tmp_path_factory.mktemp("hostile")))
    yield session
    session.close()
    session.lab.wait_until_all_gone()


def deflated(start: bytes = b"") -> tuple[bytes, int]:
    """`start` and zeros up to the size of the bomb, packed a thousand to one, and their check sum."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    # behind a full flush the same bytes are packed to the same bytes again
    block = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    count, check_sum = BOMB_BYTES // MIB, zlib.crc32(start)
    for _ in range(count):
        check_sum = zlib.crc32(bytes(MIB), check_sum)
    return head + block * count + packer.flush(), check_sum


def make_zip(path: Path, method: int, packed: bytes, check_sum: int, claims: int) -> None:
    """An archive of one file; `claims` is its size as the table of contents gives it."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model.onnx", packed)
    content = bytearray(path.read_bytes())
    for start, at_method, at_sizes in ((0, 8, 14), (content.rindex(b"PK\1\2"), 10, 16)):
        struct.pack_into("<H", content, start + at_method, method)
        struct.pack_into("<III", content, start + at_sizes, check_sum, len(packed), claims)
    path.write_bytes(content)


def zip_bomb(path: Path) -> None:
    make_zip(path, zipfile.ZIP_DEFLATED, *deflated(), BOMB_BYTES)


def lying_zip(path: Path) -> None:
    make_zip(path, zipfile.ZIP_DEFLATED, *deflated(), 1000)


def bzip2_zip(path: Path) -> None:
    """300 bytes that claim to be 1,000 and are the whole bomb."""
    make_zip(path, zipfile.ZIP_BZIP2, bz2.compress(bytes(BOMB_BYTES), 9), 0, 1000)


def tar_header(kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo("model.onnx")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def tar_bomb(path: Path, kind: bytes = tarfile.REGTYPE) -> None:
    """One entry, or one header of an extension, with nothing but zeros behind it."""
    start = tar_header(kind, BOMB_BYTES)
    packed, check_sum = deflated(start)
    size = len(start) + BOMB_BYTES
    path.write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + packed + struct.pack("<II", check_sum, size))


def sparse_tar(path: Path) -> None:
    """A sparse file whose map of holes never ends."""
    header = bytearray(tar_header(tarfile.GNUTYPE_SPARSE, 0))
    header[482] = 1
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + sum(header[156:]) + 8 * 32)
    more = bytearray((b"00000000001\0" * 42).ljust(512, b"\0"))
    more[504] = 1
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(bytes(header) + bytes(more) * 100_000)


def endless_names(path: Path) -> None:
    """One long name behind the other, and never a file."""
    one = tar_header(tarfile.GNUTYPE_LONGNAME, MIB) + bytes(MIB)
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(BOMB_BYTES // MIB):
            file.write(one)


def escaping(name: str, link: str | None = None) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with tarfile.open(path, "w:gz") as archive:
            info = tarfile.TarInfo(name)
            if link is not None:
                info.type, info.linkname = tarfile.SYMTYPE, link
            archive.addfile(info)
            archive.addfile(tarfile.TarInfo("model.onnx"), io.BytesIO())

    return make


ARCHIVES: dict[str, Callable[[Path], None]] = {
    "bomb.zip": zip_bomb,
    "lying.zip": lying_zip,
    "bzip2.zip": bzip2_zip,
    "bomb.tar.gz": tar_bomb,
    "pax.tar.gz": lambda path: tar_bomb(path, tarfile.XHDTYPE),
    "names.tar.gz": endless_names,
    "sparse.tar.gz": sparse_tar,
    "device.tar.gz": lambda path: tar_bomb(path, tarfile.CHRTYPE),
    "up.tar.gz": escaping("../up"),
    "absolute.tar.gz": escaping("/tmp/absolute"),
    "link.tar.gz": escaping("link", "../../../../etc/passwd"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_made_to_do_harm_is_a_failed_record(session, name):
    lab = session.lab
    ARCHIVES[name](lab.root / name)
    assert (lab.root / name).stat().st_size < 4 * MIB
    model = lab.model("hostile", source={"graph_path": f"{name}!model.onnx"})
    code, out, _ = session.run("evaluate", model, "-d", lab.noise(), *QUICK, "--json")
    failure = json.loads(out)["failure"]
    assert (code, failure["stage"], failure["code"]) == (1, "provision", "archive_unsafe"), failure
    assert name in failure["message"]
    assert session.grown_bytes() < MOST_MEMORY_BYTES
    assert used_bytes(lab.home) < MOST_DISK_BYTES
    assert list(lab.home.glob("runs/*")) == list(lab.home.glob("assets/tmp/*")) == []
    assert not (lab.root / "up").exists()


def used_bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def test_the_limits_are_those_of_the_tests():
    limits = Limits()
    assert limits.ratio_from_bytes < BOMB_BYTES
    assert limits.total_bytes > MOST_DISK_BYTES


def alias_bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 40)]
    return "\n".join(lines)


MANIFESTS: dict[str, bytes] = {
    "aliases": alias_bomb().encode(),
    "itself": b"name: &name [*name, *name]\n",
    "lists": b"name: " + b"[" * 200_000,
    "mappings": b"name: " + b"{a: " * 100_000,
    "indents": b"\n".join(b" " * depth + b"a:" for depth in range(1300)),
    "keys": b"? " * 100_000,
    "nodes": b"name: [" + b"1," * 400_000 + b"1]\n",
    "binary": os.urandom(4096) + b"\0\xff",
    "nulls": bytes(500_000),
    "large": b"name: " + b"x" * (2 * MIB),
    "python": b"name: !!python/object/apply:os.system ['touch harmed']\n",
    "tag": b"name: !!binary aGFybQ==\nversion: !!timestamp 2001-12-14\n",
    "number": b"version: " + b"9" * 900_000 + b"\n",
    "quotes": b'name: "' + b"\\x" * 200_000,
    "directives": b"%TAG ! tag:x:\n" * 40_000 + b"---\nname: a\n",
    "documents": b"---\nname: a\n" * 50_000,
    "blanks": b"name:" + b" " * 900_000 + b"\n",
    "anchors": b"\n".join(b"a%d: &a%d x" % (i, i) for i in range(10_000)),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_made_to_do_harm_is_refused(session, name):
    lab = session.lab
    path = lab.write(f"{name}.yml", MANIFESTS[name])
    code, out, err = session.run("evaluate", str(path), "-d", lab.noise(), "--json")
    assert code == 2, (out, err)
    assert json.loads(out)["error"]["code"] == "manifest_invalid"
    assert len(out) + len(err) < MIB
    assert session.grown_bytes() < 2 * MOST_MEMORY_BYTES
    assert not (lab.root / "harmed").exists()


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "huge"])
def test_a_manifest_that_is_no_file_of_text_is_refused_without_reading_it(session, kind, tmp_path):
    path = tmp_path / "strange.yml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.touch()
        os.truncate(path, 1 << 40)
    code, out, err = session.run("evaluate", str(path), "-d", session.lab.noise(), "--json")
    assert code == 2, err
    assert json.loads(out)["error"]["code"] == "manifest_invalid"
