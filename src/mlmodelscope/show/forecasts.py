"""Turns what is known before evaluations run into text: plans, downloads, licenses, least time; pure."""

from __future__ import annotations

from collections.abc import Sequence

from mlmodelscope.core.forecast import ExpectedAsset, Forecast
from mlmodelscope.show.units import format_bytes, table

__all__ = ["format_forecasts"]


def format_forecasts(forecasts: Sequence[Forecast]) -> str:
    plans = table(
        ("model", "framework", "data set", "scenario", "threads", "launches", "measured at least"),
        [
            (one.model, one.framework, one.dataset, _scenario(one), str(one.threads), str(one.launches), _seconds(one))
            for one in forecasts
        ],
    )
    assets = list(dict.fromkeys(asset for one in forecasts for asset in one.assets))
    files = table(
        ("file of", "role", "license", "size", "here", "location"),
        [
            (
                asset.owner,
                asset.role,
                asset.license or "not stated",
                format_bytes(asset.size_bytes) if asset.size_bytes is not None else "unknown",
                "yes" if asset.is_present else "no, download" if asset.needs_download else "no",
                asset.location,
            )
            for asset in assets
        ],
    )
    return "\n\n".join([plans, files, _totals(forecasts, assets)])


def _scenario(forecast: Forecast) -> str:
    scenario = forecast.scenario
    return f"{scenario['type']} {scenario['timed']} b{scenario.get('batch_size', 1)}"


def _seconds(forecast: Forecast) -> str:
    return f"{forecast.least_seconds:g} s" if forecast.least_seconds else "-"


def _totals(forecasts: Sequence[Forecast], assets: Sequence[ExpectedAsset]) -> str:
    # one file may serve several owners
    downloads = list({asset.location: asset for asset in assets if asset.needs_download}.values())
    unknown = sum(asset.size_bytes is None for asset in downloads)
    size = format_bytes(sum(asset.size_bytes or 0 for asset in downloads))
    text = f"to download: {len(downloads)} files, {size}"
    if unknown:
        text += f" and {unknown} of unknown size"
    launches = sum(one.launches for one in forecasts)
    seconds = sum(one.least_seconds for one in forecasts)
    return (
        f"{text}\n{launches} worker launches, at least {seconds:g} s of measuring; loading, warm-up and the pass over "
        "every sample for accuracy come on top\nnothing was downloaded, started or stored"
    )
