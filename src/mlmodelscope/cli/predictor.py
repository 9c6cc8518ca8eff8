"""`mlmodelscope predictor`: a predictor of this environment for programs elsewhere."""

from __future__ import annotations

import os
import signal

import click

from mlmodelscope.cli.options import as_json, echo_json


@click.group("predictor")
def command() -> None:
    """Serve a predictor to other processes and machines."""


@command.command("serve")
@click.argument("name")
@click.option(
    "--address",
    default="127.0.0.1:0",
    metavar="unix:PATH|HOST:PORT",
    help="Where to listen; port 0 takes any that is free.",
)
@click.option("--models", default=8, type=click.IntRange(min=1), help="How many models may be loaded at once.")
@click.option("--no-shared-memory", is_flag=True, help="Tensors travel in messages even on one machine.")
@as_json
def serve(name: str, address: str, models: int, no_shared_memory: bool, is_json: bool) -> int:
    """Serve the framework NAME of this environment until it is stopped with Ctrl-C or SIGTERM.

    The address is printed once it can be used: mlmodelscope evaluate MODEL --framework remote@ADDRESS. Whoever can
    reach the address can load files of this machine: there is no other protection.
    """
    from mlmodelscope.core.errors import EnvironmentMissingError, UsageError
    from mlmodelscope.core.plugins import installed_version, predictors

    predictor = predictors().get(name)
    if getattr(predictor, "takes_address", False):
        raise UsageError(f"{predictor.name} is itself a client", hint="use the address that it would use")
    if predictor.packages and installed_version(predictor) is None:
        raise EnvironmentMissingError(
            f"{predictor.name} is not installed in this environment",
            hint=f"pip install '{predictor.packages[0]}', or run this command where it is",
        )
    try:
        from mlmodelscope.rpc.server import Service, start_server
        from mlmodelscope.rpc.shared import FOLDER
    except ImportError as error:
        raise EnvironmentMissingError(
            f"serving needs gRPC, which is not installed: {error}", hint="pip install 'mlmodelscope[rpc]'"
        ) from error
    # its framework is imported when a model is loaded, and reads them then
    os.environ.update(predictor.environment)
    # a shell that starts us in the background has this signal ignored, and then nobody could end us with it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    server = start_server(Service(predictor, folder=None if no_shared_memory else FOLDER, most_models=models), address)
    try:
        if is_json:
            echo_json({"framework": predictor.name, "address": server.address})
        else:
            click.echo(f"{predictor.name} is ready at {server.address}")
        server.wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()
    return 0
