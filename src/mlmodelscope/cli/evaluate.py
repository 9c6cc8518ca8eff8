"""`mlmodelscope evaluate`: options in, stored records out."""

from __future__ import annotations

import math
from typing import Any

import click

from mlmodelscope.cli.options import MOST_THREADS, as_json, echo_json, open_workspace
from mlmodelscope.core.errors import UsageError

_SECOND_NS = 1_000_000_000


@click.command("evaluate")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--dataset", "-d", help="Data set: a name or the path of a manifest.")
@click.option("--inputs", "-i", multiple=True, help="A file or URL to run instead of a data set; may be repeated.")
@click.option("--framework", "-f", help="Framework and version constraint: 'onnxruntime@>=1.17 <2'.")
@click.option("--system", help="Requirements on the machine: 'memory>=8GB, arch=amd64'.")
@click.option("--samples", type=click.IntRange(1), help="Use this many samples, chosen by the seed. Default: all.")
@click.option(
    "--scenario", type=click.Choice(["single_stream", "batched"]), help="Default: batched if --batch-size is given."
)
@click.option("--batch-size", "-b", type=click.IntRange(1), help="Samples per query of the batched scenario.")
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
@as_json
def command(models: tuple[str, ...], is_json: bool, **given: Any) -> int:
    """Evaluate MODEL on a data set or on inputs, and store the record.

    MODEL is a name of `mlmodelscope models list`, NAME@CONSTRAINT, or the path of a manifest. Launches of several
    models are interleaved, so that their results may be compared.
    """
    from mlmodelscope.library import make_request
    from mlmodelscope.show.records import format_record, format_summary

    request = make_request(
        models=models,
        dataset=given["dataset"],
        inputs=given["inputs"],
        framework=given["framework"],
        system=given["system"],
        samples=given["samples"],
        scenario=_scenario(given),
        measure=given["measure"],
        threads=given["threads"],
        options=_options(given["options"]),
        seed=given["seed"],
        limits=_limits(given),
    )
    with open_workspace(draws=True) as workspace:
        records = workspace.evaluate(request)
    if is_json:
        echo_json(records if len(records) > 1 else records[0])
    elif len(records) == 1:
        click.echo(format_record(records[0]))
    else:
        click.echo(format_summary(records))
    for record in records:
        if record.failure is not None:
            click.echo(f"failed: {record.model.name}: {record.failure.message} ({record.failure.code})", err=True)
            if record.failure.hint:
                click.echo(f"hint: {record.failure.hint}", err=True)
    return 1 if any(record.failure for record in records) else 0


def _scenario(given: dict[str, Any]) -> dict[str, Any]:
    if not math.isfinite(given["duration"]):
        raise UsageError("--duration takes a number of seconds")
    name = given["scenario"] or ("batched" if given["batch_size"] else "single_stream")
    if name == "batched" and not given["batch_size"]:
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
    return values | ({"batch_size": given["batch_size"]} if name == "batched" else {})


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
