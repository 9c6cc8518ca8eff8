"""Every claim about speed, one line each: `python benchmarks [--only NAME] [--quick]`."""

from __future__ import annotations

import sys

import environments
import frameworks
import history
import inference
import offline
import remote
import report
import startup
import steps
import tracing
from harness import Claim, run, timed

if __name__ == "__main__":
    pipelines = [
        Claim(f"{name} steps / hand-written", 1.05, timed(ours, 5), timed(hand, 5))
        for name, ours, hand in steps.cases()
    ]
    sys.exit(
        run(
            [
                *startup.claims(),
                *inference.claims(),
                *tracing.claims(),
                *pipelines,
                *offline.claims(),
                *report.claims(),
                *history.claims(),
                *environments.claims(),
                *remote.claims(),
                *frameworks.claims(),
            ]
        )
    )
