"""Writes a bitfile for the example device: the strongest colour of a picture of 8 x 8 pixels wins.

    python make_bitfile.py colours.bit

Each output is the mean of one channel, times ten.
"""

import sys
from pathlib import Path

CHANNELS, SIDE = 3, 8


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


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(colours())
