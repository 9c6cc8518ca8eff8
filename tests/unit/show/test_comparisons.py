"""Comparisons and reproductions as text, word for word: the verdict stands before any number."""

import re

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.analyse.comparison import Evidence, compare
from mlmodelscope.analyse.reproduction import judge
from mlmodelscope.core.answer import Classes, ClassScore, Prediction
from mlmodelscope.show.comparisons import format_comparison, format_reproduction
from mlmodelscope.testing.records import example_model, example_record, example_software, example_system

LEFT, RIGHT = "01kn2wvs000000000000000001", "01kn2wvs000000000000000002"
PAIR = f"{RIGHT} against {LEFT}"


def answers(text):
    """One prediction per digit, which is the first answer; the truth is 0."""
    return [
        Prediction(
            sample=str(i), label=0, answer=Classes(classes=(ClassScore(index=int(digit), label=None, score=1.0),))
        )
        for i, digit in enumerate(text)
    ]


def left(text="0" * 20, latencies=((100.0,), (101.0,), (99.0,))):
    return Evidence(example_record(id=LEFT), latencies, answers(text))


FLIPS = "\n".join([*(f"  {sample}: 0 (1.0000) -> 1 (1.0000)" for sample in range(3)), "  and 5 more"])


def right(text="0" * 20, latencies=((100.0,), (101.0,), (99.0,)), **changes):
    return Evidence(example_record(id=RIGHT, **changes), latencies, answers(text))


def test_a_repetition():
    assert format_comparison(compare(left(), right())) == (
        f"{PAIR}: a repetition; no factor differs.\n"
        "latency ratio 1.000 [0.978, 1.023]: no difference that these launches can show\n"
        "top-1 +0.0 points [-8.9, +8.9] on 20 samples (McNemar p = 1): no difference\n"
        "first answers that differ: 0 of 20"
    )


def test_a_fair_comparison_is_named_after_its_factor():
    model = example_model(weights_digest="b" * 64)
    comparison = compare(left(), right("1" * 8 + "0" * 12, ((50.0,), (51.0,), (49.0,)), model=model))
    assert format_comparison(comparison) == (
        f"{PAIR}: a fair comparison of one factor: model.\n"
        "  model: weights_digest: 9a129038d9a0 -> bbbbbbbbbbbb\n"
        "latency ratio 0.500 [0.480, 0.521]: faster\n"
        "top-1 -40.0 points [-58.4, -14.4] on 20 samples (McNemar p = 0.0078): a real difference\n"
        "first answers that differ: 8 of 20\n" + FLIPS
    )


def test_an_unfair_comparison_says_so_before_any_number():
    comparison = compare(
        left(),
        right(
            "10" + "0" * 18,
            ((200.0,), (202.0,), (198.0,)),
            seed=7,
            system=example_system(cores=8, kernel="6.2.0"),
            software=example_software(framework_version="1.19.0", mlmodelscope="0.2.0"),
        ),
    )
    lines = format_comparison(comparison).splitlines()
    assert lines[0] == f"{PAIR}: NOT a fair comparison; 3 factors differ: framework, system, scenario."
    assert lines[1:] == [
        "  framework: version: 1.20.1 -> 1.19.0",
        "  system: cores: 4 -> 8",
        "  system: kernel: 6.1.0 -> 6.2.0",
        "  scenario: mlmodelscope: 0.1.0 -> 0.2.0",
        "  scenario: seed: 0 -> 7",
        "latency ratio 2.000 [1.955, 2.046]: slower",
        "top-1 -5.0 points [-17.0, +7.9] on 20 samples (McNemar p = 1): n is too small to call it a difference",
        "first answers that differ: 1 of 20",
        "  0: 0 (1.0000) -> 1 (1.0000)",
    ]


def test_a_group_shows_its_first_differences_and_counts_the_rest():
    packages = {f"package{number}": "1" for number in range(9)}
    comparison = compare(left(), right(software=example_software(packages=example_software().packages | packages)))
    lines = format_comparison(comparison).splitlines()
    assert lines[1:8] == [
        *(f"  framework: package package{number}: absent -> 1" for number in range(6)),
        "  framework: and 3 more",
    ]


def test_of_lists_only_what_differs_is_shown():
    system = example_system(cpu_features=("avx2", "avx512f", "sse4_2"))
    assert "  system: cpu_features: ['fma'] -> ['avx512f']" in format_comparison(compare(left(), right(system=system)))


def test_what_is_not_known_is_called_unknown():
    text = format_comparison(compare(left(), right(system=None)))
    assert "  system: architecture: amd64 -> unknown" in text
    assert "  system: system: unknown -> unknown" not in text


def test_long_values_are_cut():
    comparison = compare(left(), right(system=example_system(cpu_model="x" * 100)))
    assert f"  system: cpu_model: Example CPU 2000 @ 2.50GHz -> {'x' * 57}..." in format_comparison(comparison)


def test_without_predictions_and_latencies_there_are_no_numbers():
    comparison = compare(left("", ()), right("", ()))
    assert format_comparison(comparison) == (
        f"{PAIR}: a repetition; no factor differs.\nlatency ratio -: one of the two has no latencies"
    )


def test_single_launches_are_labelled_and_give_no_verdict():
    one = (tuple(float(value) for value in range(100, 120)),)
    text = format_comparison(compare(left(latencies=one), right(latencies=one)))
    assert "latency ratio 1.000 [0.921, 1.086] within one launch: one launch gives no verdict" in text
    against_several = format_comparison(compare(left(), right(latencies=one)))
    assert "latency ratio 1.095: one launch gives no verdict" in against_several


@pytest.mark.parametrize(
    ("factor", "text"),
    [(0.5, "0.500"), (0.1, "0.100"), (0.0123456, "0.0123"), (0.0000123456, "0.0000123"), (1234.5, "1234.500")],
)
def test_a_ratio_keeps_its_digits(factor, text):
    comparison = compare(left(latencies=((1e6,), (1e6,))), right(latencies=((1e6 * factor,), (1e6 * factor,))))
    assert f"latency ratio {text} [{text}, {text}]" in format_comparison(comparison)


def test_a_reproduction_that_agrees():
    assert format_reproduction(judge(left(), right())) == (
        "accuracy: same answers (20 of 20 samples)\n"
        "speed: agrees\n"
        "what changed: nothing that counts\n"
        "latency ratio 1.000 [0.978, 1.023]: no difference that these launches can show\n"
        "top-1 +0.0 points [-8.9, +8.9] on 20 samples (McNemar p = 1): no difference\n"
        "first answers that differ: 0 of 20"
    )


def test_a_reproduction_that_differs():
    repeated = right("1" * 8 + "0" * 12, ((50.0,), (51.0,), (49.0,)), system=example_system(kernel="6.2.0"), seed=1)
    assert format_reproduction(judge(left(), repeated)) == (
        "accuracy: differs (8 of 20 answers flipped)\n"
        "speed: differs\n"
        "what changed: system, scenario\n"
        "  system: kernel: 6.1.0 -> 6.2.0\n"
        "  scenario: seed: 0 -> 1\n"
        "latency ratio 0.500 [0.480, 0.521]: faster\n"
        "top-1 -40.0 points [-58.4, -14.4] on 20 samples (McNemar p = 0.0078): a real difference\n"
        "first answers that differ: 8 of 20\n" + FLIPS
    )


def test_a_reproduction_without_anything_to_compare():
    text = format_reproduction(judge(left("", ()), right("", ())))
    assert text.splitlines()[:2] == ["accuracy: cannot tell", "speed: cannot tell"]


launches = st.lists(st.lists(st.integers(0, 10**9).map(float), min_size=1, max_size=30), min_size=0, max_size=3)


@given(launches, launches, st.text("01", max_size=20), st.text("01", max_size=20))
def test_whatever_was_measured_nothing_is_nan_and_no_single_launch_is_unlabelled(a, b, first, second):
    reproduction = judge(left(first, a), right(second, b))
    for text in (format_comparison(reproduction.comparison), format_reproduction(reproduction)):
        assert not re.search(r"\b(nan|inf)\b", text)
        if len(a) == len(b) == 1:
            assert all("]" not in line or "within one launch" in line for line in text.splitlines() if "ratio" in line)


def test_samples_that_differ_come_with_both_scores_and_how_far_apart_they_are():
    def scored(sample, **scores):
        classes = [ClassScore(index=i, label=name, score=score) for i, (name, score) in enumerate(scores.items())]
        ranked = tuple(sorted(classes, key=lambda item: -item.score))
        return Prediction(sample=sample, label=0, answer=Classes(classes=ranked))

    same = scored("b", cat=0.9, dog=0.1)
    ours = Evidence(example_record(id=LEFT), ((1.0,),), [scored("a", cat=0.6, dog=0.4), same])
    theirs = Evidence(example_record(id=RIGHT), ((1.0,),), [scored("a", cat=0.45, dog=0.55), same])
    comparison = compare(ours, theirs)
    assert comparison.largest_difference == pytest.approx(0.15)
    lines = format_comparison(comparison).splitlines()
    assert lines[-2:] == [
        "largest difference of a score: 0.15",
        "  a: cat (0.6000) -> dog (0.5500), scores at most 0.15 apart",
    ]
