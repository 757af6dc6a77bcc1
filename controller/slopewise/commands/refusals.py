"""Refuses options that do not apply to a command line, instead of ignoring them.

A value from an environment variable does not count: a shell may have it set for something else.
"""

from __future__ import annotations

from collections.abc import Sequence

import typer

from slopewise.errors import UsageError


def given(context: typer.Context) -> list[str]:
    """The names of the options on the command line and the values of its arguments, in the command's own order."""
    written = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            is_option = parameter.param_type_name == "option"
            written.append(parameter.opts[0] if is_option else str(context.params[parameter.name or ""]))
    return written


def refuse(context: typer.Context, options: Sequence[str], reason: str) -> None:
    """UsageError about the first of these options that was written; `reason` has no full stop."""
    for option in given(context):
        if option in options:
            raise UsageError(f"{option} {reason}.")


def refuse_clusters(context: typer.Context, other: str) -> None:
    """UsageError about the first option that says which cluster; `other`: the option that stands beside it."""
    options = ("--kubeconfig", "--context", "--namespace", "--lease-namespace")
    refuse(context, options, f"is for a cluster; leave it or {other} out")


def refuse_beside(context: typer.Context, option: str, reason: str) -> None:
    """UsageError about the first thing that was written besides `option`."""
    refuse(context, [each for each in given(context) if each != option], reason)
