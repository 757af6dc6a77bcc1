"""`slopewise sweep`: frees pods and Jobs that a controller without a successor has left gated or suspended."""

from __future__ import annotations

from typing import Annotated

import typer

from slopewise.commands.console import out, print_json
from slopewise.commands.options import Kubeconfig, KubeContext, OneNamespace, Output, OutputFormat
from slopewise.signals import received_signals


def sweep(
    older_than: Annotated[
        float,
        typer.Option(
            "--older-than", min=1, max=3600, help="Least age in seconds; younger ones are left to a controller."
        ),
    ] = 60.0,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    output: Output = OutputFormat.table,
) -> None:
    """Free pods and Jobs that a dead controller has left gated, suspended, or pinned to a node that does not exist.

    A CronJob runs it each minute. It leaves what a running controller still handles.
    Example: `slopewise sweep -o json`.
    """
    with received_signals() as stop:
        from slopewise.adapters.kube.connection import Connection
        from slopewise.operate import sweep as sweeping

        swept = sweeping.sweep(Connection(kubeconfig, context, namespace), older_than, stop)
        exit_code = stop.exit_code if stop.number is not None else 1 if swept.failed else 0
    if output is OutputFormat.json:
        print_json(swept.as_json())
    else:
        out.print(sweeping.listing(swept))
    raise typer.Exit(exit_code)
