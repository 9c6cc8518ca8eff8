"""The `mlmodelscope` command: finds the subcommand, runs it, and turns errors into messages and exit codes."""

from __future__ import annotations

import importlib
import json
import signal
import sys
from typing import Any

import click

from mlmodelscope.core.errors import Interrupted, MLModelScopeError, UsageError
from mlmodelscope.core.release import VERSION

__all__ = ["COMMANDS", "cli", "main"]

# name -> (module, help): the list is printed without importing what is behind it
COMMANDS: dict[str, tuple[str, str]] = {
    "evaluate": ("evaluate", "Evaluate models and store what they did."),
    "predict": ("predict", "Ask a model about files, URLs or standard input."),
    "history": ("history", "List stored evaluations."),
    "show": ("show", "Show one stored evaluation."),
    "compare": ("compare", "Compare evaluations and say whether that is fair."),
    "check": ("check", "Check an evaluation against a baseline, for pipelines."),
    "run": ("run", "Run a suite of evaluations; take it up again where it stopped."),
    "report": ("report", "Write a report of evaluations: a page, Markdown or CSV."),
    "reproduce": ("reproduce", "Run a stored evaluation again and judge the difference."),
    "trace": ("trace", "Show and export where the time of an evaluation went."),
    "models": ("models", "List, show, add and remove models."),
    "datasets": ("datasets", "List, show, add and remove data sets."),
    "frameworks": ("frameworks", "List the frameworks that can run models here."),
    "environments": ("environments", "List, show and remove the environments that frameworks run in."),
    "predictor": ("predictor", "Serve a predictor to other processes and machines."),
    "record": ("record", "Give a stored evaluation to others, or take theirs in."),
    "assets": ("assets", "List, pack, take in and mirror the files of models and data sets."),
    "storage": ("storage", "Show what takes up space, and free what nobody needs."),
    "doctor": ("doctor", "Say what this machine is, how quiet it is, and what works on it."),
    "init": ("init", "Write the skeleton of a manifest from a model file."),
    "validate": ("validate", "Check manifests and print every problem."),
}


class _LazyGroup(click.Group):
    """A group whose subcommands are imported when they are run, so that `--help` stays near a bare Python start."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"mlmodelscope.cli.{COMMANDS[name][0]}")
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # before click sees it: its exit code 1 means a failed evaluation with us
            return _leave_quietly()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=2)
            if near:
                raise click.UsageError(f"{error.message} Did you mean {' or '.join(near)}?", ctx) from None
            raise


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="mlmodelscope")
def cli() -> None:
    """Evaluate and benchmark machine-learning models repeatably and fairly.

    Start with: mlmodelscope evaluate ResNet50 --dataset imagenet-photos

    Exit codes: 0 success, 1 an evaluation ended as a failed record, 2 a mistake in what was asked, 3 this machine could
    not do its part, 4 a plug-in failed, 130 interrupted.
    """


def main() -> None:
    """Entry point of the console script."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = _run(sys.argv[1:])
    except BrokenPipeError:
        code = _leave_quietly()
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    """The exit code; errors are told here, and nowhere else."""
    as_json = "--json" in arguments
    try:
        result: Any = cli.main(args=arguments, prog_name="mlmodelscope", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        if as_json:
            _say_json(UsageError(error.format_message()).to_fields())
        error.show()
        return error.exit_code
    except MLModelScopeError as error:
        _say(error, as_json)
        return error.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt, Interrupted):
        return _say_interrupted(as_json)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _say(error: MLModelScopeError, as_json: bool) -> None:
    if as_json:
        _say_json(error.to_fields())
    click.echo(f"error: {error.message} ({error.code})", err=True)
    problems = error.fields.get("problems", []) if error.code == "manifest_invalid" else []
    for problem in problems if len(problems) > 1 else []:
        click.echo(f"  {problem['file']}:{problem['line']}:{problem['column']}: {problem['message']}", err=True)
    if error.hint:
        click.echo(f"hint: {error.hint}", err=True)


def _say_json(fields: dict[str, Any]) -> None:
    click.echo(json.dumps({"error": fields}, ensure_ascii=False, indent=2, default=str))


def _say_interrupted(as_json: bool) -> int:
    if as_json:
        _say_json({"code": "interrupted", "message": "the user stopped the run", "hint": None, "fields": {}})
    click.echo("interrupted", err=True)
    return Interrupted.exit_code


def _leave_quietly() -> int:
    """The reader of our output is gone (`| head`): nothing more to say, and no complaint at shut-down."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    main()
