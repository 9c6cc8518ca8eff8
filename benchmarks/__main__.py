"""Every claim about speed, one line each: `python benchmarks [--only NAME] [--quick]`."""

from __future__ import annotations

import sys

import inference
import startup
from harness import run

if __name__ == "__main__":
    sys.exit(run([*startup.claims(), *inference.claims()]))
