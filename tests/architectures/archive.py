#!/usr/bin/env python3
"""A folder -> a `newc` archive on standard output, the form in which a kernel takes its first file system."""

import sys
from pathlib import Path


def entry(name: str, mode: int, content: bytes) -> bytes:
    numbers = [0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + name.encode() + b"\0"
    return padded(head) + padded(content)


def padded(text: bytes) -> bytes:
    return text + b"\0" * (-len(text) % 4)


def main() -> None:
    root = Path(sys.argv[1])
    for path in sorted(root.rglob("*")):
        content = b"" if path.is_dir() else path.read_bytes()
        sys.stdout.buffer.write(entry(str(path.relative_to(root)), path.stat().st_mode, content))
    sys.stdout.buffer.write(entry("TRAILER!!!", 0, b""))


if __name__ == "__main__":
    main()
