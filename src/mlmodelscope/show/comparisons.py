"""Turns comparisons and reproductions into text for people; the verdict stands before any number; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mlmodelscope.analyse.comparison import SIGNIFICANCE, Comparison, Flip
from mlmodelscope.analyse.reproduction import Reproduction
from mlmodelscope.analyse.statistics import PairedDifference
from mlmodelscope.core.estimate import Estimate
from mlmodelscope.core.factors import Difference

__all__ = [
    "format_change",
    "format_comparison",
    "format_ratio",
    "format_reproduction",
    "format_speed",
    "format_top1",
]

_SHOWN_PER_GROUP = 6
_SHOWN_FLIPS = 3


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
        lines += [f"  {group}: {m.fact}: {format_change(m.left, m.right)}" for m in members[:_SHOWN_PER_GROUP]]
        if len(members) > _SHOWN_PER_GROUP:
            lines.append(f"  {group}: and {len(members) - _SHOWN_PER_GROUP} more")
    return lines


def format_change(left: object, right: object) -> str:
    """Of two lists (processor features, say) only what the other does not have: the whole would hide it."""
    if isinstance(left, list) and isinstance(right, list):
        left, right = [item for item in left if item not in right], [item for item in right if item not in left]
    return f"{_short(left)} -> {_short(right)}"


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
        lines.append(f"latency ratio {format_ratio(ratio)}: {format_speed(ratio)}")
        if not comparison.is_side_by_side:
            lines.append("  (not measured side by side: the machine may have drifted; evaluate both in one command)")
    elif comparison.latency_note:
        lines.append(f"latency ratio -: {comparison.latency_note}")
    if comparison.top1 is not None:
        lines.append(format_top1(comparison.top1))
    if comparison.flipped is not None:
        lines.append(f"first answers that differ: {comparison.flipped} of {comparison.common_samples}")
    if comparison.largest_difference:
        lines.append(f"largest difference of a score: {comparison.largest_difference:.2g}")
    lines += [f"  {_flip(flip)}" for flip in comparison.flips[:_SHOWN_FLIPS]]
    if len(comparison.flips) > _SHOWN_FLIPS:
        lines.append(f"  and {len(comparison.flips) - _SHOWN_FLIPS} more")
    return lines


def _flip(flip: Flip) -> str:
    sides = [
        label if score is None else f"{label} ({score:.4f})"
        for label, score in ((flip.left, flip.left_score), (flip.right, flip.right_score))
    ]
    apart = "" if flip.largest is None else f", scores at most {flip.largest:.2g} apart"
    return f"{flip.sample}: {sides[0]} -> {sides[1]}{apart}"


def format_top1(top1: PairedDifference) -> str:
    estimate, interval = top1.difference, top1.difference.interval
    bounds = f" [{100 * interval.low:+z.1f}, {100 * interval.high:+z.1f}]" if interval else ""
    if top1.p_value < SIGNIFICANCE:
        verdict = "a real difference"
    else:
        verdict = "n is too small to call it a difference" if estimate.value else "no difference"
    counted = f"on {estimate.n} samples (McNemar p = {top1.p_value:.2g})"
    return f"top-1 {100 * estimate.value:+z.1f} points{bounds} {counted}: {verdict}"


def format_ratio(ratio: Estimate) -> str:
    interval = ratio.interval
    if interval is None:
        return _factor(ratio.value)
    note = " within one launch" if interval.basis == "single_launch" else ""
    return f"{_factor(ratio.value)} [{_factor(interval.low)}, {_factor(interval.high)}]{note}"


def _factor(value: float) -> str:
    """Three decimals, more where they would all be zeros."""
    decimals = 3 if value >= 0.1 or value <= 0 else 2 - math.floor(math.log10(value))
    return f"{value:.{decimals}f}"


def format_speed(ratio: Estimate) -> str:
    interval = ratio.interval
    if interval is None or interval.basis != "launches":
        return "one launch gives no verdict"
    if interval.low > 1:
        return "slower"
    if interval.high < 1:
        return "faster"
    return "no difference that these launches can show"
