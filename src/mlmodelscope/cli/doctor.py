"""`mlmodelscope doctor`: what this machine is, how quiet it is, and what works on it."""

from __future__ import annotations

import click

from mlmodelscope.cli.options import as_json, echo_json
from mlmodelscope.core.release import VERSION


@click.command("doctor")
@as_json
def command(is_json: bool) -> int:
    """Say what this machine is and what works on it. Takes a few seconds; exit code 3 if something cannot work."""
    from mlmodelscope.core.plugins import predictors
    from mlmodelscope.core.settings import home
    from mlmodelscope.diagnosis import diagnose
    from mlmodelscope.facts import frameworks
    from mlmodelscope.show.diagnosis import format_diagnosis

    registry = predictors()
    found = frameworks()
    variables = {name: value for one in found for name, value in registry.get(one.name).environment.items()}
    entries = [(one.name, one.entry_point, one.version, one.install_hint) for one in found]
    diagnosis = diagnose(home(), entries, variables, VERSION)
    if is_json:
        echo_json(diagnosis)
    else:
        click.echo(format_diagnosis(diagnosis))
    return 0 if diagnosis.is_usable else 3
