"""Turns comparisons and reproductions into text for people; the verdict stands before any number; pure."""

from __future__ import annotations

from collections.abc import Sequence

from mlmodelscope.analyse.comparison import Comparison
from mlmodelscope.analyse.reproduction import Reproduction
from mlmodelscope.core.estimate import Estimate
from mlmodelscope.core.factors import Difference

__all__ = ["format_comparison", "format_reproduction"]

_SHOWN_PER_GROUP = 6


def format_comparison(comparison: Comparison) -> str:
    return "\n".join([_verdict(comparison), *_differences(comparison.differences), *_numbers(comparison)])


def format_reproduction(reproduction: Reproduction) -> str:
    comparison = reproduction.comparison
    accuracy: str = reproduction.accuracy
    if comparison.flipped:
        accuracy += f" ({comparison.flipped} of {comparison.common_samples} answers flipped)"
    elif comparison.common_samples:
        accuracy += f" ({comparison.common_samples} of {comparison.common_samples} samples)"
    lines = [f"accuracy: {accuracy}", f"speed: {reproduction.speed}"]
    if comparison.groups:
        lines.append(f"what changed: {', '.join(comparison.groups)}")
    else:
        lines.append("what changed: nothing that counts")
    return "\n".join([*lines, *_differences(comparison.differences), *_numbers(comparison)])


def _verdict(comparison: Comparison) -> str:
    pair = f"{comparison.right} against {comparison.left}"
    if comparison.kind == "repetition":
        return f"{pair}: a repetition; no factor differs."
    if comparison.kind == "fair":
        return f"{pair}: a fair comparison of one factor: {comparison.groups[0]}."
    return f"{pair}: NOT a fair comparison; {len(comparison.groups)} factors differ: {', '.join(comparison.groups)}."


def _differences(found: Sequence[Difference]) -> list[str]:
    lines: list[str] = []
    for group in dict.fromkeys(item.group for item in found):
        members = [item for item in found if item.group is group]
        lines += [f"  {group}: {m.fact}: {_short(m.left)} -> {_short(m.right)}" for m in members[:_SHOWN_PER_GROUP]]
        if len(members) > _SHOWN_PER_GROUP:
            lines.append(f"  {group}: and {len(members) - _SHOWN_PER_GROUP} more")
    return lines


def _short(value: object) -> str:
    if value is None:
        return "unknown"
    text = str(value)
    is_digest = len(text) == 64 and all(c in "0123456789abcdef" for c in text)
    return text[:12] if is_digest else text if len(text) <= 60 else text[:57] + "..."


def _numbers(comparison: Comparison) -> list[str]:
    lines = []
    ratio = comparison.latency_ratio
    if ratio is not None:
        lines.append(f"latency ratio {_ratio(ratio)}: {_speed(ratio)}")
    elif comparison.latency_note:
        lines.append(f"latency ratio -: {comparison.latency_note}")
    top1 = comparison.top1
    if top1 is not None and top1.difference.interval is not None:
        interval = top1.difference.interval
        lines.append(
            f"top-1 {100 * top1.difference.value:+.1f} points [{100 * interval.low:+.1f}, {100 * interval.high:+.1f}] "
            f"on {top1.difference.n} samples (McNemar p = {top1.p_value:.2g}): "
            + ("a real difference" if top1.p_value < 0.05 else "n is too small to call it a difference")
        )
    if comparison.flipped is not None:
        lines.append(f"first answers that differ: {comparison.flipped} of {comparison.common_samples}")
    return lines


def _ratio(ratio: Estimate) -> str:
    if ratio.interval is None:
        return f"{ratio.value:.3f}"
    return f"{ratio.value:.3f} [{ratio.interval.low:.3f}, {ratio.interval.high:.3f}]"


def _speed(ratio: Estimate) -> str:
    interval = ratio.interval
    if interval is None or interval.basis != "launches":
        return "one launch gives no verdict"
    if interval.low > 1:
        return "slower"
    if interval.high < 1:
        return "faster"
    return "no difference that these launches can show"
