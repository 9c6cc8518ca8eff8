"""Turns a diagnosis of this machine into text for people; pure."""

from __future__ import annotations

from collections.abc import Sequence

from mlmodelscope.core.diagnosis import Diagnosis, Verdict
from mlmodelscope.core.system import Noise, SystemFacts
from mlmodelscope.show.units import format_bytes

__all__ = ["format_diagnosis"]

_MARKS: dict[Verdict, str] = {"good": "ok", "note": "note", "warning": "WARNING", "bad": "BAD"}
# what decides how fast neural networks run; the full list is in the JSON
_FEATURES = (
    "avx",
    "avx2",
    "fma",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "amx_int8",
    "amx_bf16",
    "asimddp",
    "i8mm",
    "sve",
)


def format_diagnosis(diagnosis: Diagnosis) -> str:
    system = diagnosis.system
    facts = [
        ("mlmodelscope", f"{diagnosis.version} with Python {diagnosis.python}"),
        ("system", f"{system.operating_system}, Linux {system.kernel}, {system.libc or 'unknown C library'}"),
        ("processor", _processor(system)),
        ("features", _features(system)),
        ("memory", _memory(system)),
        ("clock rate", _clock_rate(system)),
        ("virtualisation", system.virtualization or "unknown"),
        ("accelerators", ", ".join(system.accelerators) or "none"),
        ("noise", _noise(diagnosis.noise)),
    ]
    checks = [(_MARKS[check.verdict], f"{check.name}: {check.message}", check.hint) for check in diagnosis.checks]
    width = max(len(mark) for mark, _, _ in checks) if checks else 0
    lines = []
    for mark, text, hint in checks:
        lines.append(f"{mark.ljust(width)}  {text}")
        if hint and mark != _MARKS["good"]:
            lines.append(f"{' ' * width}  hint: {hint}")
    return f"{_pairs(facts)}\n\n" + "\n".join(lines)


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in pairs)


def _processor(system: SystemFacts) -> str:
    usable = f"{system.usable_cpus} usable of {system.logical_cpus or 'unknown'}"
    quota = f", quota {system.cpu_quota:g}" if system.cpu_quota is not None else ""
    return f"{system.cpu_model or 'unknown'} ({system.architecture}), {usable}{quota}"


def _features(system: SystemFacts) -> str:
    known = [name for name in _FEATURES if name in system.cpu_features]
    return f"{' '.join(known) or 'none that matter to us'} ({len(system.cpu_features)} in all)"


def _memory(system: SystemFacts) -> str:
    limit = f", limit {format_bytes(system.memory_limit_bytes)}" if system.memory_limit_bytes is not None else ""
    swap = f", swap {format_bytes(system.swap_bytes)}" if system.swap_bytes else ", no swap"
    return f"{format_bytes(system.memory_bytes)}{limit}{swap}"


def _clock_rate(system: SystemFacts) -> str:
    highest = f"up to {system.frequency_max_hz / 1e9:.2f} GHz" if system.frequency_max_hz else "unknown"
    turbo = {True: ", turbo on", False: ", turbo off", None: ""}[system.turbo]
    return f"{highest}, governor {system.governor or 'unknown'}{turbo}"


def _noise(noise: Noise) -> str:
    shares = (
        ("busy", noise.cpu_busy_share),
        ("steal", noise.steal_share),
        ("waiting for processors", noise.pressure_cpu_share),
        ("for memory", noise.pressure_memory_share),
        ("for disks", noise.pressure_io_share),
    )
    known = [f"{name} {share:.1%}" for name, share in shares if share is not None]
    load = [f"load {noise.load_1m:g}"] if noise.load_1m is not None else []
    return ", ".join([*load, *known]) or "unknown"
