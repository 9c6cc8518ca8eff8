"""Records, from history or just evaluated -> what `evaluate` prints: text, the tables of a sweep, or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from mlmodelscope.cli.options import echo_json, plain

if TYPE_CHECKING:
    from mlmodelscope.analyse.sweep import Sweep
    from mlmodelscope.conducting import Outcome
    from mlmodelscope.core.forecast import Forecast
    from mlmodelscope.core.record import Record

__all__ = ["tell_forecasts", "tell_outcomes"]


def tell_outcomes(outcomes: Sequence[Outcome], is_json: bool, *, is_sweep: bool) -> None:
    from mlmodelscope.show.records import format_record, format_summary

    records = [outcome.record for outcome in outcomes]
    reused = [outcome.record for outcome in outcomes if outcome.is_reused]
    for record in reused:
        when = record.created_at[:19].replace("T", " ")
        click.echo(f"from history: {record.model.name} is answered by {record.id} of {when} UTC", err=True)
    if is_json:
        # whoever allowed reuse must be able to tell; other records are printed as they are stored
        marks = [{"is_reused": o.is_reused} if o.record.request.reuse or o.is_reused else {} for o in outcomes]
        values = [plain(record) | mark for record, mark in zip(records, marks, strict=True)]
        echo_json({"records": values, "sweeps": _sweeps(records)} if is_sweep else values if values[1:] else values[0])
    elif is_sweep:
        click.echo("\n\n".join(text for _, text in _sweep_texts(records)))
    elif len(records) == 1:
        click.echo(format_record(records[0]))
    else:
        click.echo(format_summary(records))


def _by_model(records: Sequence[Record]) -> Iterator[tuple[str, list[Record]]]:
    for name in dict.fromkeys(record.request.models[0] for record in records):
        yield name, [record for record in records if record.request.models[0] == name]


def _sweep_of(records: Sequence[Record]) -> Sweep:
    from mlmodelscope.analyse.sweep import sweep_of

    return sweep_of((r.scenario.batch_size, r.performance.throughput) for r in records if r.performance)


def _sweeps(records: Sequence[Record]) -> list[dict[str, Any]]:
    return [{"model": name, **plain(_sweep_of(members))} for name, members in _by_model(records)]


def _sweep_texts(records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    from mlmodelscope.show.sweeps import format_sweep

    for name, members in _by_model(records):
        yield name, format_sweep(members, _sweep_of(members))


def tell_forecasts(forecasts: Sequence[Forecast], is_json: bool) -> None:
    from mlmodelscope.show.forecasts import format_forecasts

    if is_json:
        echo_json(forecasts)
    else:
        click.echo(format_forecasts(forecasts))
