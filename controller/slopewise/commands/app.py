"""The `slopewise` command line: registers the commands, and turns expected errors into a message and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from slopewise import __version__
from slopewise.commands.advise import advise
from slopewise.commands.console import announce_failure, wants_json
from slopewise.commands.demo import demo
from slopewise.commands.doctor import doctor
from slopewise.commands.operate import explain, freeze, history, replay, restore, sweep, unfreeze
from slopewise.commands.policies import dashboards, policies
from slopewise.commands.run import run
from slopewise.commands.service import attach, cancel, jobs, logs, mode, submit, up
from slopewise.commands.simulate import simulate
from slopewise.commands.top import status, top
from slopewise.errors import SlopewiseError
from slopewise.signals import Interrupted, ignore_further_signals
from slopewise.telemetry import log_lines

app = typer.Typer(
    name="slopewise",
    help="Gives CPU to the training jobs whose loss is still falling.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(dashboards, name="dashboards")
app.add_typer(policies, name="policies")
_COMMANDS: tuple[Callable[..., None], ...] = (
    demo,
    run,
    up,
    submit,
    attach,
    jobs,
    cancel,
    logs,
    mode,
    restore,
    doctor,
    status,
    top,
    history,
    explain,
    freeze,
    unfreeze,
    replay,
    sweep,
    simulate,
    advise,
)
for command in _COMMANDS:
    app.command()(command)

_REFUSED: type[Exception] = typer.BadParameter.__mro__[2]
"""What the command line library raises for options that it cannot parse: the base of its UsageError."""


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What holds for every command."""


def run_command_line() -> NoReturn:
    """Run the `slopewise` command; an expected error ends it with one message and its exit code."""
    if wants_json():
        log_lines.only_json_lines()
    try:
        code = app(standalone_mode=not wants_json())
    except SlopewiseError as error:
        announce_failure(str(error), error.exit_code)
        sys.exit(error.exit_code)
    except Interrupted as stop:
        ignore_further_signals()  # leaving takes 50 ms: a third Ctrl-C would end it without its exit code
        announce_failure(f"{stop}; limits, processes and folders were put back.", stop.exit_code)
        sys.exit(stop.exit_code)
    except _REFUSED as error:
        refused: Any = error
        announce_failure(refused.format_message(), refused.exit_code)
        sys.exit(refused.exit_code)
    sys.exit(code if isinstance(code, int) else 0)
