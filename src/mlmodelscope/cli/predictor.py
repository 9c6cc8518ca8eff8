"""`mlmodelscope predictor`: a predictor of this machine for programs elsewhere."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import click

from mlmodelscope.cli.options import as_json, echo_json, installs, may_install

if TYPE_CHECKING:
    from mlmodelscope.rpc.server import RunningServer
    from mlmodelscope.serving import Supply


@click.group("predictor")
def command() -> None:
    """Serve a predictor to other processes and machines."""


@command.command("serve")
@click.argument("name", metavar="NAME[@VERSION]")
@click.option(
    "--address",
    default="127.0.0.1:0",
    metavar="unix:PATH|HOST:PORT",
    help="Where to listen; port 0 takes any that is free.",
)
@click.option("--environment", "-e", metavar="KIND", help="local or venv. Default: local if the framework is there.")
@installs
@click.option("--models", default=8, type=click.IntRange(min=1), help="How many models may be loaded at once.")
@click.option("--no-shared-memory", is_flag=True, help="Tensors travel in messages even on one machine.")
@as_json
def serve(
    name: str,
    address: str,
    environment: str | None,
    is_yes: bool,
    models: int,
    no_shared_memory: bool,
    is_json: bool,
) -> int:
    """Serve the framework NAME until it is stopped with Ctrl-C or SIGTERM.

    It comes from this environment, or from one of its own, which is made where it is missing: caffe2,
    'onnxruntime@1.17.x'. The address is printed once it can be used: mlmodelscope evaluate MODEL --framework
    remote@ADDRESS. Whoever can reach the address can load files of this machine: there is no other protection.
    """
    from mlmodelscope.core import settings
    from mlmodelscope.core.errors import EnvironmentMissingError
    from mlmodelscope.hosting import Preparation
    from mlmodelscope.serving import prepare_supply

    # what it has to say of an address that cannot be had, our own error says
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from mlmodelscope.rpc.server import Service, start_server
        from mlmodelscope.rpc.shared import FOLDER
    except ImportError as error:
        raise EnvironmentMissingError(
            f"serving needs gRPC, which is not installed: {error}", hint="pip install 'mlmodelscope[rpc]'"
        ) from error
    preparation = Preparation(settings.home(), may_install(is_yes), lambda text: click.echo(text, err=True))
    supply = prepare_supply(name, environment, preparation)
    # a shell that starts us in the background has this signal ignored, and then nobody could end us with it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    service = Service(supply.make, folder=None if no_shared_memory else FOLDER, most_models=models)
    with supply.held():
        server = start_server(service, address)
        try:
            _say_ready(supply, server.address, is_json)
            server.wait()
        except KeyboardInterrupt:
            pass
        finally:
            _stop(server, supply)
    return 0


def _say_ready(supply: Supply, address: str, is_json: bool) -> None:
    if is_json:
        facts = {"framework": supply.framework, "version": supply.version, "environment": supply.environment}
        echo_json({**facts, "address": address})
        return
    click.echo(f"{supply.framework} {supply.version} is ready at {address}")


def _stop(server: RunningServer, supply: Supply) -> None:
    """Ends the server, in a few seconds even where a call hangs, and at once where the user asks again."""
    code = 0
    try:
        if server.stop():
            return
        click.echo("a call that did not come to its end was given up", err=True)
    except KeyboardInterrupt:
        server.free_address()
        code = 130
    supply.end()
    # Python would wait for the thread that hangs
    os._exit(code)
