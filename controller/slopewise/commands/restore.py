"""`slopewise restore`: restores the original resources of every container of a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from slopewise.commands.console import announce, out, print_json
from slopewise.commands.options import Kubeconfig, KubeContext, LeaseNamespace, OneNamespace, Output, OutputFormat
from slopewise.errors import UsageError
from slopewise.signals import received_signals


def restore(
    everything: Annotated[bool, typer.Option("--all", help="Every pod that was changed, and every finalizer.")] = False,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    lease_namespace: LeaseNamespace = None,
    deadline: Annotated[float, typer.Option(min=1, max=3600, help="Seconds to try for.")] = 60.0,
    output: Output = OutputFormat.table,
) -> None:
    """Restore the original resources of every container of the cluster, and remove the policies' finalizers.

    Run it before the controller is removed; the controller must not run meanwhile.
    Example: `kubectl -n slopewise-system scale deployment slopewise-controller --replicas=0; slopewise restore --all`.
    """
    if not everything:
        raise UsageError("restore: add --all; it restores the original resources of every changed pod.")
    with received_signals() as stop:
        from slopewise.adapters.kube.connection import Connection
        from slopewise.operate.restore import listing, restore_all

        result = restore_all(Connection(kubeconfig, context, namespace), lease_namespace, deadline, stop, announce)
        exit_code = 0 if result.complete else 1 if stop.number is None else stop.exit_code
    if output is OutputFormat.json:
        print_json(result.as_json())
    else:
        out.print(listing(result))
    raise typer.Exit(exit_code)
