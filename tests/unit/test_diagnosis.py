"""What the facts of a machine mean for whoever measures on it."""

import pytest

from mlmodelscope.core.diagnosis import Check, ClockFacts, Diagnosis, Steadiness
from mlmodelscope.core.system import Noise, SystemFacts
from mlmodelscope.diagnosis import judge_clock, judge_noise, judge_space, judge_steadiness, judge_system
from mlmodelscope.show.diagnosis import format_diagnosis

GIB = 1024**3


def system(**changes):
    values = {
        "hostname_digest": "0" * 16,
        "architecture": "amd64",
        "usable_cpus": 4,
        "memory_bytes": 16 * GIB,
        "kernel": "6.1",
        "operating_system": "Debian",
        "virtualization": "none",
        "governor": "performance",
        **changes,
    }
    return SystemFacts(**values)


def verdicts(checks):
    return {check.name: check.verdict for check in checks}


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({}, {"governor": "good", "memory": "good"}),
        ({"governor": "powersave"}, {"governor": "warning", "memory": "good"}),
        ({"governor": "ondemand,performance"}, {"governor": "warning", "memory": "good"}),
        ({"governor": None}, {"governor": "note", "memory": "good"}),
        ({"turbo": True}, {"governor": "good", "memory": "good", "turbo": "note"}),
        ({"turbo": False}, {"governor": "good", "memory": "good"}),
        ({"memory_limit_bytes": GIB}, {"governor": "good", "memory": "warning"}),
        ({"virtualization": None}, {"governor": "good", "memory": "good"}),
        ({"virtualization": "none/docker"}, {"governor": "good", "memory": "good", "container": "note"}),
        (
            {"virtualization": "kvm/podman"},
            {"governor": "good", "memory": "good", "virtualisation": "note", "container": "note"},
        ),
    ],
)
def test_the_machine(changes, expected):
    assert verdicts(judge_system(system(**changes))) == expected


@pytest.mark.parametrize(
    "shares, expected",
    [
        ({}, {"noise": "good"}),
        ({"cpu_busy_share": 0.04, "steal_share": 0.0, "pressure_cpu_share": 0.01}, {"noise": "good"}),
        ({"cpu_busy_share": 0.5}, {"load": "warning"}),
        ({"steal_share": 0.02}, {"steal": "warning"}),
        ({"pressure_cpu_share": 0.2, "cpu_busy_share": 1.0}, {"pressure": "warning", "load": "warning"}),
    ],
)
def test_noise(shares, expected):
    assert verdicts(judge_noise(Noise(duration_ns=1, **shares), 4)) == expected


def test_clock_steadiness_and_space():
    assert judge_clock(ClockFacts(step_ns=20, reading_ns=40)).verdict == "good"
    assert judge_clock(ClockFacts(step_ns=4_000_000, reading_ns=40)).verdict == "warning"
    assert judge_clock(ClockFacts(step_ns=1, reading_ns=2500)).verdict == "warning"
    assert judge_steadiness(Steadiness(pieces=9, median_ns=100, spread_share=0.05)).verdict == "good"
    assert judge_steadiness(Steadiness(pieces=9, median_ns=100, spread_share=0.06)).verdict == "warning"
    assert [judge_space(size).verdict for size in (3 * GIB, GIB, 1000)] == ["good", "warning", "bad"]


def diagnosis(*checks, **changes):
    return Diagnosis(
        version="1.0",
        python="3.11.1",
        home="/home",
        system=system(**changes),
        noise=Noise(duration_ns=1, load_1m=0.5, cpu_busy_share=0.25),
        clock=ClockFacts(step_ns=20, reading_ns=40),
        steadiness=Steadiness(pieces=9, median_ns=100, spread_share=0.05),
        checks=checks,
    )


def test_as_text():
    checks = (
        Check(name="home", verdict="good", message="fine", hint="unused"),
        Check(name="npm", verdict="warning", message="slow", hint="hurry"),
    )
    text = format_diagnosis(
        diagnosis(
            *checks, cpu_model="Fast", logical_cpus=8, cpu_features=("avx2", "sse"), frequency_max_hz=3_500_000_000
        )
    )
    lines = text.splitlines()
    assert "processor       Fast (amd64), 4 usable of 8" in lines
    assert "features        avx2 (2 in all)" in lines
    assert "clock rate      up to 3.50 GHz, governor performance" in lines
    assert "noise           load 0.5, busy 25.0%" in lines
    assert lines[-3:] == ["ok       home: fine", "WARNING  npm: slow", "         hint: hurry"]


def test_only_what_is_bad_makes_a_machine_unusable():
    assert diagnosis(Check(name="npm", verdict="warning", message="")).is_usable
    assert not diagnosis(Check(name="home", verdict="bad", message="")).is_usable
