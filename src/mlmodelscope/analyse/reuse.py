"""Turns what is known before a run and a stored record into whether that record already is the answer; pure.

The same facts decide as in a comparison. Some of them only a run can tell (precision, provider, which samples): those
follow from facts that are known beforehand (the file, the framework, its options, the data set and the seed), so they
are left out here, by name. A fact that is not in this list and not known counts as different.
"""

from __future__ import annotations

from mlmodelscope.analyse.comparison import factors
from mlmodelscope.core.factors import Difference, FactorGroup
from mlmodelscope.core.record import Record

__all__ = ["TOLD_BY_THE_RUN", "obstacles"]

TOLD_BY_THE_RUN: dict[FactorGroup, frozenset[str]] = {
    FactorGroup.DATA: frozenset({"samples", "sample_ids"}),
    FactorGroup.PIPELINE: frozenset({"library *"}),
    FactorGroup.FRAMEWORK: frozenset({"file", "input layers", "library", "output layers"}),
    FactorGroup.PRECISION: frozenset({"precision"}),
    FactorGroup.EXECUTION: frozenset({"device", "optimization", "provider", "threads"}),
}


def obstacles(expected: Record, stored: Record) -> list[Difference]:
    """Why `stored` does not answer what `expected` would be; empty if it does.

    `expected` is a record as far as it can be written before the run. Only a succeeded evaluation of this machine's own
    may answer. The data group also compares the number of samples asked for.
    """
    found: list[Difference] = []
    ours, theirs = factors(expected), factors(stored)
    for group in FactorGroup:
        for fact in sorted(ours[group].keys() | theirs[group].keys()):
            if _is_told(group, fact):
                continue
            a, b = ours[group].get(fact), theirs[group].get(fact)
            if a is None or b is None or a != b:
                found.append(Difference(group, fact, a, b))
    if expected.request.samples != stored.request.samples:
        found.append(
            Difference(FactorGroup.DATA, "samples asked for", expected.request.samples, stored.request.samples)
        )
    if stored.status != "succeeded" or stored.origin != "local" or not stored.is_trusted:
        found.append(Difference(FactorGroup.SYSTEM, "origin", "this machine, succeeded", _origin(stored)))
    return found


def _is_told(group: FactorGroup, fact: str) -> bool:
    told = TOLD_BY_THE_RUN.get(group, frozenset())
    return fact in told or f"{fact.partition(' ')[0]} *" in told


def _origin(record: Record) -> str:
    trust = "" if record.is_trusted else ", untrusted"
    return f"{record.origin}, {record.status}{trust}"
