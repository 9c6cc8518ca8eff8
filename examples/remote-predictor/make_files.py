"""Writes what the example is run on: `colours.bit`, a bitfile for the device, and `photos`, pictures to classify.

    python make_files.py FOLDER

Each output is the mean of one channel of a picture of 8 x 8 pixels, times ten: the strongest colour wins.
"""

import struct
import sys
import zlib
from pathlib import Path

CHANNELS, SIDE = 3, 8
# the folder is the class; the misplaced one is answered with red, so that 5 of 6 answers are right
PHOTOS = {
    "0-red/bright.png": (250, 10, 10),
    "0-red/dark.png": (90, 20, 10),
    "1-green/bright.png": (10, 250, 10),
    "1-green/misplaced.png": (200, 30, 20),
    "2-blue/bright.png": (10, 10, 250),
    "2-blue/dark.png": (20, 10, 90),
}


def colours() -> str:
    pixels = SIDE * SIDE
    rows = [
        " ".join(str(10 / pixels) if output == channel else "0" for output in range(CHANNELS))
        for channel in range(CHANNELS)
        for _ in range(pixels)
    ]
    lines = [
        "TOYFPGA 1",
        "clock_mhz 100",
        "lanes 8",
        f"input image {CHANNELS} {SIDE} {SIDE}",
        f"output scores positive {CHANNELS}",
        "weights " + " ".join(rows),
        "bias " + " ".join("0" for _ in range(CHANNELS)),
    ]
    return "\n".join(lines) + "\n"


def picture(colour: tuple[int, int, int], width: int = 12, height: int = 10) -> bytes:
    """A PNG file of one colour."""
    row = b"\0" + bytes(colour) * width
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0),
        b"IDAT": zlib.compress(row * height, 9),
        b"IEND": b"",
    }
    chunks = [
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in parts.items()
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "colours.bit").write_text(colours())
    for name, colour in PHOTOS.items():
        path = folder / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(colour))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
