"""Turns the check of a record against its baseline into text for people and for the log of a pipeline; pure."""

from __future__ import annotations

from mlmodelscope.analyse.regression import Finding, RegressionCheck

__all__ = ["format_check"]

_WORDS = {"regression": "REGRESSION", "no regression": "ok", "cannot tell": "cannot tell"}


def format_check(check: RegressionCheck) -> str:
    differ = f"; {', '.join(check.groups)} differ, as allowed" if check.groups else "; no factor differs"
    lines = [f"{check.candidate} against the baseline {check.baseline}{differ}"]
    lines += [_line(finding) for finding in check.findings]
    if check.is_regression:
        lines.append("a regression is proven")
    elif any(finding.outcome == "cannot tell" for finding in check.findings):
        lines.append("no regression is proven; more launches or samples would tell more")
    else:
        lines.append("no regression")
    return "\n".join(lines)


def _line(finding: Finding) -> str:
    is_speed = finding.subject == "speed"
    unit, better, worse = ("%", "faster", "slower") if is_speed else ("points", "gained", "lost")
    limit = f"limit {100 * finding.limit:g} {unit} {worse}"
    parts = [f"{finding.subject}: {_WORDS[finding.outcome]}"]
    if finding.change is not None:
        value, interval = 100 * finding.change.value, finding.change.interval
        bounds = f" [{100 * interval.low:+z.1f}, {100 * interval.high:+z.1f}]" if interval else ""
        parts.append(f"{value:+z.1f} {unit}{bounds} (+ is {worse}, - is {better})")
    parts.append(limit)
    if finding.reason:
        parts.append(finding.reason)
    return "; ".join(parts)
