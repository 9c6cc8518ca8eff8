"""`mlmodelscope evaluate`: options in, stored records out."""

from __future__ import annotations

import math
from typing import Any

import click
from click.core import ParameterSource

from mlmodelscope.cli.options import MOST_THREADS, as_json, environment, installs, open_workspace, untrusted
from mlmodelscope.cli.outcomes import tell_forecasts, tell_outcomes
from mlmodelscope.core.errors import UsageError

_SECOND_NS = 1_000_000_000
# the levels are numbers in requests and records; only these three can be recorded
_TRACE_LEVELS = {"none": 0, "model": 2, "framework": 3}


@click.command("evaluate")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--dataset", "-d", help="Data set: a name or the path of a manifest.")
@click.option("--inputs", "-i", multiple=True, help="A file or URL to run instead of a data set; may be repeated.")
@click.option("--framework", "-f", help="Framework and version constraint: 'onnxruntime@>=1.17 <2'.")
@environment
@installs
@click.option("--system", help="Requirements on the machine: 'memory>=8GB, arch=amd64'.")
@click.option("--samples", type=click.IntRange(1), help="Use this many samples, chosen by the seed. Default: all.")
@click.option(
    "--scenario",
    type=click.Choice(["single_stream", "batched", "offline"]),
    help="Default: batched if a batch size is given, else single_stream.",
)
@click.option(
    "--batch-size", "-b", type=click.IntRange(1), help="Samples per query, or per batch of the offline query."
)
@click.option("--batch-sizes", metavar="N,N,...", help="Sweep: one record per batch size, and which size is optimal.")
@click.option(
    "--workers",
    type=click.IntRange(1, MOST_THREADS),
    help="Threads that prepare samples in the offline scenario. Default: the usable processors.",
)
@click.option(
    "--timed",
    type=click.Choice(["pipeline", "inference"]),
    default="pipeline",
    show_default=True,
    help="Time decode to answer, or inference alone over samples prepared beforehand.",
)
@click.option(
    "--measure",
    type=click.Choice(["both", "performance", "accuracy"]),
    default="both",
    show_default=True,
    help="Accuracy runs every sample once, in the first launch.",
)
@click.option(
    "--launches",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Worker launches; intervals are over these.",
)
@click.option(
    "--duration",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    help="Least measured seconds, over all launches.",
)
@click.option(
    "--queries",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Least measured queries, over all launches.",
)
@click.option(
    "--warmup",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Queries before the clock starts, per launch.",
)
@click.option(
    "--performance-set",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Samples prepared for --timed inference.",
)
@click.option(
    "--threads",
    "-t",
    type=click.IntRange(1, MOST_THREADS),
    help="Threads of the framework. Default: the usable processors.",
)
@click.option(
    "--option",
    "-o",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the framework; may be repeated.",
)
@click.option(
    "--trace-level",
    type=click.Choice(list(_TRACE_LEVELS)),
    default="none",
    show_default=True,
    help="Record spans in a launch of their own: of the pipeline and the model, or down to the layers.",
)
@click.option(
    "--trace-queries",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Queries to trace, at each level.",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--sample-time-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds one query may take.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=3600.0,
    show_default=True,
    help="Seconds one launch may take.",
)
@click.option("--memory-limit", metavar="SIZE", help="Resident memory the worker may use: 4GB, 500MiB.")
@click.option("--reuse", is_flag=True, help="Answer from history if an evaluation there is identical in every factor.")
@click.option("--dry-run", is_flag=True, help="Only print the plan, downloads, licenses and the least time.")
@untrusted
@as_json
def command(models: tuple[str, ...], is_json: bool, **given: Any) -> int:
    """Evaluate MODEL on a data set or on inputs, and store the record.

    MODEL is a name of `mlmodelscope models list`, NAME@CONSTRAINT, or the path of a manifest. Launches of several
    models are interleaved, so that their results may be compared.
    """
    from mlmodelscope.library import make_request

    sizes = _batch_sizes(given)
    request = make_request(
        models=models,
        dataset=given["dataset"],
        inputs=given["inputs"],
        framework=given["framework"],
        environment=given["environment"],
        system=given["system"],
        samples=given["samples"],
        scenario=_scenario(given),
        measure=given["measure"],
        threads=given["threads"],
        options=_options(given["options"]),
        trace_level=_TRACE_LEVELS[given["trace_level"]],
        trace_queries=given["trace_queries"],
        seed=given["seed"],
        limits=_limits(given),
        reuse=given["reuse"],
        is_trusted=not given["is_untrusted"],
    )
    with open_workspace(draws=True, is_yes=given["is_yes"]) as workspace:
        plans = workspace.sweep_plans(request, sizes) if sizes else workspace.plans(request)
        if given["dry_run"]:
            tell_forecasts(workspace.forecast(plans), is_json)
            return 0
        outcomes = workspace.carry_out(plans)
    tell_outcomes(outcomes, is_json, is_sweep=bool(sizes))
    for record in (outcome.record for outcome in outcomes):
        if record.failure is not None:
            click.echo(f"failed: {record.model.name}: {record.failure.message} ({record.failure.code})", err=True)
            if record.failure.hint:
                click.echo(f"hint: {record.failure.hint}", err=True)
    return 1 if any(outcome.record.failure for outcome in outcomes) else 0


def _batch_sizes(given: dict[str, Any]) -> list[int]:
    text = given["batch_sizes"]
    if text is None:
        return []
    if given["batch_size"] is not None or given["scenario"] == "single_stream":
        raise UsageError("--batch-sizes goes with neither --batch-size nor single_stream")
    if given["measure"] == "accuracy":
        raise UsageError("a sweep over batch sizes measures performance", hint="use --measure performance or both")
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if len(sizes) < 2 or min(sizes) < 1 or max(sizes) >= 2**31 or len(set(sizes)) < len(sizes):
        raise UsageError(
            f"--batch-sizes does not take {text!r}", hint="write two or more different sizes: --batch-sizes 1,2,4,8"
        )
    return sizes


def _scenario(given: dict[str, Any]) -> dict[str, Any]:
    if not math.isfinite(given["duration"]):
        raise UsageError("--duration takes a number of seconds")
    name = given["scenario"] or ("batched" if given["batch_size"] or given["batch_sizes"] else "single_stream")
    if name == "offline":
        return _offline(given)
    if given["workers"] is not None:
        raise UsageError("--workers goes with the offline scenario", hint="--threads sets those of the framework")
    if name == "batched" and not given["batch_size"] and not given["batch_sizes"]:
        raise UsageError("the batched scenario needs --batch-size")
    if name == "single_stream" and given["batch_size"] not in (None, 1):
        raise UsageError("single_stream always has one sample per query", hint="use --scenario batched")
    values = {
        "type": name,
        "timed": given["timed"],
        "min_duration_ns": round(given["duration"] * _SECOND_NS),
        "min_queries": given["queries"],
        "warmup_queries": given["warmup"],
        "launches": given["launches"],
        "performance_set": given["performance_set"],
    }
    # a sweep puts in its own sizes
    return values | ({"batch_size": given["batch_size"] or 1} if name == "batched" else {})


def _offline(given: dict[str, Any]) -> dict[str, Any]:
    context = click.get_current_context()
    for name in ("timed", "duration", "queries", "performance_set"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and given[name] != "pipeline":
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} does not go with the offline scenario",
                hint="it runs every sample once per launch, pre-processing included",
            )
    return {
        "type": "offline",
        "warmup_queries": given["warmup"],
        "launches": given["launches"],
        "batch_size": given["batch_size"] or 1,
        "workers": given["workers"],
    }


def _limits(given: dict[str, Any]) -> dict[str, Any]:
    from mlmodelscope.resolve.system import parse_size

    memory = given["memory_limit"]
    return {
        "sample_seconds": given["sample_time_limit"],
        "run_seconds": given["time_limit"],
        "memory_bytes": parse_size(memory) if memory else None,
    }


def _options(texts: tuple[str, ...]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"--option takes NAME=VALUE, not {text!r}")
        options[name] = value
    return options
