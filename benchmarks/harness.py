"""Turns claims about speed into verdicts: interleaved rounds, a median with its interval, ok, SHORT or NOISY.

A script makes claims and calls `run`; one line is printed for each:

    name value [low, high] limit ok|SHORT|NOISY
    name (A/A) value [low, high]
    name - skipped: reason

The value of a ratio is the median over rounds of ours / theirs, that of an addition the median of ours - theirs. In
every round the two sides, and theirs a second time for the A/A line, run in an order drawn anew: a machine that slows
down slows all of them, and the A/A line shows what "equal" looks like here today. Lower is better, always. The interval
is of the median, from the order of the rounds alone, with no bell curve assumed. `ok`: all of it is within the limit.
`SHORT`: all of it is beyond; exit code 1. Otherwise the rounds are doubled until a minute is over, or the seconds that
the claim allows itself; then the answer is `NOISY`, which blames the machine.
"""

from __future__ import annotations

import argparse
import math
import operator
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

__all__ = [
    "Absolute",
    "Added",
    "Block",
    "Claim",
    "Median",
    "Skipped",
    "measure",
    "median_interval",
    "run",
    "timed",
    "verdict",
]

Block = Callable[[], float]

# Every doubling is a further look at growing data, each with its own chance of a wrong verdict: hence 99 % and not 95.
CONFIDENCE = 0.99
FIRST_ROUNDS = 12
SECONDS = 60.0
QUICK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Claim:
    """ours / theirs <= limit. Each block runs one side and returns its cost per operation, both in the same unit.

    With an infinite limit the ratio is only shown. `seconds` is the time after which the claim is given up as NOISY.
    """

    name: str
    limit: float
    ours: Block
    theirs: Block
    seconds: float = SECONDS


@dataclass(frozen=True, slots=True)
class Added:
    """ours - theirs <= limit, in the unit of the blocks, which belongs into the name; below zero ours costs less."""

    name: str
    limit: float
    ours: Block
    theirs: Block
    seconds: float = SECONDS


@dataclass(frozen=True, slots=True)
class Absolute:
    """A cost per operation that stays within a limit of the same unit; the unit belongs into the name."""

    name: str
    limit: float
    measure: Block
    seconds: float = SECONDS


@dataclass(frozen=True, slots=True)
class Skipped:
    """A claim that cannot be tried here."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Median:
    """The median of some rounds and the interval it lies in."""

    value: float
    low: float
    high: float


@dataclass(slots=True)
class _Rounds:
    values: list[float] = field(default_factory=list)
    control: list[float] = field(default_factory=list)


def timed(operation: Callable[[], object], times: int = 1) -> Block:
    """A block that calls `operation` `times` times and returns the seconds of one call."""

    def block() -> float:
        start = time.perf_counter_ns()
        for _ in range(times):
            operation()
        return (time.perf_counter_ns() - start) / times / 1e9

    return block


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Median:
    """The median, between the two order statistics that enclose it with at least `confidence`.

    The number of rounds below the true median is binomial with one half, whatever the distribution. With too few rounds
    for the confidence (fewer than 8 for 99 %) the interval is without end.
    """
    ordered = sorted(values)
    middle = statistics.median(ordered)
    rank = _rank(len(ordered), confidence)
    if rank < 0:
        return Median(middle, -math.inf, math.inf)
    return Median(middle, ordered[rank], ordered[-1 - rank])


def _rank(count: int, confidence: float) -> int:
    """The largest k with P(Binomial(count, 1/2) <= k) <= (1 - confidence) / 2; -1 where there is none."""
    tail = (1 - confidence) / 2
    if count > 1000:  # where two to the count leaves the floats behind, the normal form is off by less than one rank
        return math.floor(count / 2 + statistics.NormalDist().inv_cdf(tail) * math.sqrt(count) / 2) - 1
    rank, ways = -1, 0
    while (ways := ways + math.comb(count, rank + 1)) <= tail * 2.0**count:
        rank += 1
    return rank


def verdict(median: Median, limit: float) -> str | None:
    """`ok` or `SHORT` where the whole interval says so, None where it does not."""
    if median.high <= limit:
        return "ok"
    return "SHORT" if median.low > limit else None


def _write(line: str) -> None:
    # whoever reads it through a pipe, or from the file of a run that was cut off, wants every line that was measured
    print(line, flush=True)


def run(
    claims: Iterable[Claim | Added | Absolute | Skipped],
    arguments: Sequence[str] | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    write: Callable[[str], object] = _write,
) -> int:
    """Tries the claims in turn, writes a line or two for each, and returns the exit code: 1 if one fell short."""
    options = _parser().parse_args(arguments)
    known = list(claims)
    chosen = [claim for claim in known if not options.only or claim.name in options.only]
    if unknown := set(options.only) - {claim.name for claim in known}:
        write(f"no claim is named {', '.join(sorted(unknown))}; claims: {', '.join(claim.name for claim in known)}")
        return 2
    verdicts = []
    for claim in chosen:
        if isinstance(claim, Skipped):
            write(f"{claim.name} - skipped: {claim.reason}")
            continue
        seconds = QUICK_SECONDS if options.quick else claim.seconds
        rounds, answer = measure(claim, seconds, random.Random(f"{options.seed} {claim.name}"), clock)
        verdicts.append(answer)
        write(f"{claim.name} {_shown(median_interval(rounds.values))} {claim.limit:g} {answer}")
        if rounds.control:
            write(f"{claim.name} (A/A) {_shown(median_interval(rounds.control))}")
    return 1 if "SHORT" in verdicts else 0


def measure(
    claim: Claim | Added | Absolute, seconds: float, order: random.Random, clock: Callable[[], float]
) -> tuple[_Rounds, str]:
    """Rounds until the interval decides or the time is over. One round before them is thrown away: caches and files."""
    rounds = _Rounds()
    deadline = clock() + seconds
    _round(claim, _Rounds(), order)
    wanted = FIRST_ROUNDS
    while True:
        while len(rounds.values) < wanted and (len(rounds.values) < FIRST_ROUNDS or clock() < deadline):
            _round(claim, rounds, order)
        if answer := verdict(median_interval(rounds.values), claim.limit):
            return rounds, answer
        if clock() >= deadline:
            return rounds, "NOISY"
        wanted *= 2


def _round(claim: Claim | Added | Absolute, rounds: _Rounds, order: random.Random) -> None:
    if isinstance(claim, Absolute):
        rounds.values.append(_positive(claim.name, claim.measure()))
        return
    blocks = {"ours": claim.ours, "theirs": claim.theirs, "again": claim.theirs}
    cost = {side: _positive(claim.name, blocks[side]()) for side in order.sample(sorted(blocks), len(blocks))}
    compared = operator.sub if isinstance(claim, Added) else operator.truediv
    rounds.values.append(compared(cost["ours"], cost["theirs"]))
    rounds.control.append(compared(cost["again"], cost["theirs"]))


def _positive(name: str, cost: float) -> float:
    if not 0 < cost < math.inf:
        raise ValueError(f"{name}: a block returned {cost!r}; the cost of an operation is a positive number")
    return cost


def _shown(median: Median) -> str:
    return f"{median.value:.4g} [{median.low:.4g}, {median.high:.4g}]"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure claims about speed; exit code 1 if one falls short.")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this claim only; may be repeated")
    parser.add_argument("--quick", action="store_true", help=f"give up after {QUICK_SECONDS:g} s, not {SECONDS:g} s")
    parser.add_argument("--seed", default="0", help="draws the order within each round")
    return parser


if __name__ == "__main__":
    sys.exit("this is the machinery; run one of the scripts beside it")
