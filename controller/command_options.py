"""Which options a command line really has, so that those that do not apply are refused and never ignored.

Before it: the arguments of a command, parsed. After it: `cli.py`, which knows what applies to what. What environment
variables say does not count as given: a shell may have them set for something else.
"""

from __future__ import annotations

from collections.abc import Sequence

import typer

from controller.errors import UsageError


def given(context: typer.Context) -> list[str]:
    """The options and arguments that were written, in the command's own order; of an argument what was written."""
    written = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            is_option = parameter.param_type_name == "option"
            written.append(parameter.opts[0] if is_option else str(context.params[parameter.name or ""]))
    return written


def refuse(context: typer.Context, options: Sequence[str], why: str) -> None:
    """UsageError about the first of these options that was written; `why` ends the sentence, without its full stop."""
    for option in given(context):
        if option in options:
            raise UsageError(f"{option} {why}.")


def refuse_beside(context: typer.Context, option: str, why: str) -> None:
    """UsageError about the first thing that was written besides `option`."""
    refuse(context, [each for each in given(context) if each != option], why)
