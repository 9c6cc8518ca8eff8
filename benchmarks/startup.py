"""Claims about the start of the command line: `mlmodelscope --help` against a Python that does nothing."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

from harness import Claim, Skipped, run, timed

PROCESSES_PER_BLOCK = 2


def starts(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def claims() -> list[Claim | Skipped]:
    if importlib.util.find_spec("mlmodelscope") is None or importlib.util.find_spec("mlmodelscope.cli.main") is None:
        return [Skipped("help_start", "mlmodelscope is not installed in this interpreter")]
    return [
        Claim(
            "help_start",
            6,
            ours=timed(lambda: starts("-m", "mlmodelscope.cli.main", "--help"), PROCESSES_PER_BLOCK),
            theirs=timed(lambda: starts("-c", "pass"), PROCESSES_PER_BLOCK),
        )
    ]


if __name__ == "__main__":
    sys.exit(run(claims()))
