import importlib.util
import itertools
import math
import random
import statistics
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

PATH = Path(__file__).parents[3] / "benchmarks" / "harness.py"
spec = importlib.util.spec_from_file_location("benchmark_harness", PATH)
harness = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = harness
spec.loader.exec_module(harness)


class Clock:
    """Moves on by a second whenever a block runs."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def block(self, costs, log=None, name=""):
        numbers = itertools.cycle(costs)

        def run() -> float:
            self.now += 1.0
            if log is not None:
                log.append(name)
            return next(numbers)

        return run


def run(claims, *arguments, clock=None):
    lines = []
    code = harness.run(claims, list(arguments), clock=clock or Clock(), write=lines.append)
    return code, lines


def claim(clock, ours, theirs=(1.0,), limit=2.0, name="claim"):
    return harness.Claim(name, limit, clock.block(ours), clock.block(theirs))


def test_a_claim_that_holds():
    clock = Clock()
    code, lines = run([claim(clock, [1.5])], clock=clock)
    assert code == 0
    assert lines == ["claim 1.5 [1.5, 1.5] 2 ok", "claim (A/A) 1 [1, 1]"]


def test_a_claim_exactly_at_its_limit_holds():
    clock = Clock()
    assert run([claim(clock, [2.0])], clock=clock)[1][0].endswith(" 2 ok")


def test_a_claim_that_falls_short_fails_the_run_but_not_the_claims_after_it():
    clock = Clock()
    code, lines = run([claim(clock, [2.5]), claim(clock, [1.0], name="next")], clock=clock)
    assert code == 1
    assert lines[0] == "claim 2.5 [2.5, 2.5] 2 SHORT"
    assert lines[2] == "next 1 [1, 1] 2 ok"


def test_a_claim_that_cannot_be_decided_is_noisy_after_a_minute_and_fails_nothing():
    clock = Clock()
    code, lines = run([claim(clock, [1.0, 3.0])], clock=clock)
    assert code == 0
    assert lines[0].endswith("[1, 3] 2 NOISY")
    assert 60 <= clock.now <= 60 + 3


def test_more_rounds_are_run_only_while_undecided():
    decided, undecided = Clock(), Clock()
    run([claim(decided, [1.0])], clock=decided)
    run([claim(undecided, [1.0, 3.0])], clock=undecided)
    assert decided.now == 3 * (harness.FIRST_ROUNDS + 1)
    assert undecided.now > decided.now


def test_doubling_the_rounds_can_decide():
    # a third of the rounds are beyond the limit: too many to tell in the first rounds, few enough later
    clock = Clock()
    block = clock.block([1.0, 1.0, 3.0])
    rounds, answer = harness.measure(harness.Absolute("x", 2.0, block), 1000, random.Random(0), clock)
    assert answer == "ok"
    assert len(rounds.values) > harness.FIRST_ROUNDS
    assert len(rounds.values) % harness.FIRST_ROUNDS == 0


def test_quick_gives_up_sooner_but_keeps_enough_rounds_for_an_interval():
    clock = Clock()
    _, lines = run([claim(clock, [1.0, 3.0])], "--quick", clock=clock)
    assert lines[0].endswith("NOISY")
    assert clock.now == 3 * (harness.FIRST_ROUNDS + 1)
    assert "inf" not in lines[0]


def test_an_absolute_claim_has_no_control():
    clock = Clock()
    assert run([harness.Absolute("query_us", 5, clock.block([2.8]))], clock=clock) == (
        0,
        ["query_us 2.8 [2.8, 2.8] 5 ok"],
    )


def test_an_addition_keeps_its_sign_and_has_a_control():
    clock = Clock()
    added = harness.Added("us added", 5, clock.block([3.0]), clock.block([10.0]))
    assert run([added], clock=clock) == (0, ["us added -7 [-7, -7] 5 ok", "us added (A/A) 0 [0, 0]"])
    added = harness.Added("us added", 5, clock.block([16.0]), clock.block([10.0]))
    assert run([added], clock=clock)[1][0] == "us added 6 [6, 6] 5 SHORT"


def test_a_claim_may_give_up_sooner_than_the_others():
    clock = Clock()
    sooner = harness.Claim("claim", 2.0, clock.block([1.0, 3.0]), clock.block([1.0]), seconds=45)
    assert run([sooner], clock=clock)[1][0].endswith("NOISY")
    assert 45 <= clock.now <= 45 + 3


def test_without_a_limit_a_ratio_is_only_shown():
    clock = Clock()
    assert run([claim(clock, [40.0], limit=math.inf)], clock=clock)[1][0] == "claim 40 [40, 40] inf ok"


def test_a_skipped_claim_says_why():
    assert run([harness.Skipped("gpu", "no GPU here")]) == (0, ["gpu - skipped: no GPU here"])


def test_only_chooses_by_name():
    clock = Clock()
    claims = [claim(clock, [9.0], name="a"), claim(clock, [1.0], name="b"), harness.Skipped("c", "why")]
    code, lines = run(claims, "--only", "b", "--only", "c", clock=clock)
    assert (code, [line.split()[0] for line in lines]) == (0, ["b", "b", "c"])


def test_an_unknown_name_is_an_error_that_lists_the_claims():
    assert run([harness.Skipped("a", "")], "--only", "z") == (2, ["no claim is named z; claims: a"])


def test_sides_are_interleaved_in_an_order_that_the_seed_decides():
    def orders(seed):
        clock, log = Clock(), []
        sides = harness.Claim("x", 2, clock.block([1.0], log, "ours"), clock.block([1.0], log, "theirs"))
        run([sides], "--seed", seed, clock=clock)
        return list(zip(*[iter(log)] * 3, strict=True))

    first = orders("0")
    assert all(sorted(order) == ["ours", "theirs", "theirs"] for order in first)
    assert len(set(first)) == 3
    assert first == orders("0") != orders("1")


def test_the_control_compares_theirs_with_itself():
    clock = Clock()
    _, lines = run([claim(clock, [0.1], theirs=[1.0, 4.0], limit=1)], clock=clock)
    assert lines[1].endswith("[0.25, 4]")
    assert lines[0].endswith("ok")


@pytest.mark.parametrize("cost", [0.0, -1.0, math.nan, math.inf])
def test_a_cost_that_is_no_cost_is_a_bug_of_the_script(cost):
    with pytest.raises(ValueError, match="positive"):
        run([harness.Absolute("x", 1, lambda: cost)])


def test_a_timed_block_returns_the_seconds_of_one_call():
    calls = []
    assert harness.timed(lambda: calls.append(1), 5)() > 0
    assert len(calls) == 5


def coverage(count, rank):
    return 1 - 2 * sum(math.comb(count, k) for k in range(rank + 1)) / 2**count


@given(st.integers(8, 400), st.sampled_from([0.9, 0.95, 0.99]))
def test_the_interval_is_the_narrowest_with_the_confidence(count, confidence):
    found = harness.median_interval([float(n) for n in range(count)], confidence)
    rank = int(found.low)
    assert found.high == count - 1 - rank
    assert coverage(count, rank) >= confidence - 1e-12
    assert coverage(count, rank + 1) < confidence


@pytest.mark.parametrize(("count", "confidence"), [(7, 0.99), (5, 0.95), (1, 0.5)])
def test_too_few_rounds_have_no_interval(count, confidence):
    found = harness.median_interval([1.0] * count, confidence)
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert harness.verdict(found, 2.0) is None


def test_large_counts_agree_with_the_exact_rank():
    exact = harness.median_interval([float(n) for n in range(1000)])
    normal = harness.median_interval([float(n) for n in range(1001)])
    assert abs(exact.low - normal.low) <= 1
    many = harness.median_interval([float(n) for n in range(50_001)])
    assert (many.value, many.low + many.high) == (25_000, 50_000)
    some = harness.median_interval([float(n) for n in range(1200)])
    assert coverage(1200, int(some.low)) >= 0.99 - 1e-3


@given(st.lists(st.floats(0.001, 1000), min_size=8, max_size=60))
def test_the_median_lies_in_its_interval(values):
    found = harness.median_interval(values)
    assert min(values) <= found.low <= found.value <= found.high <= max(values)
    assert found.value == statistics.median(values)


def test_the_interval_holds_the_true_median_as_often_as_it_says():
    draw = random.Random(7)
    hits = 0
    for _ in range(2000):
        found = harness.median_interval([draw.lognormvariate(0, 1) for _ in range(12)], 0.95)
        hits += found.low <= 1.0 <= found.high
    assert hits / 2000 >= 0.95
