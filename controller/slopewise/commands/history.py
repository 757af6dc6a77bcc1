"""`slopewise history`: prints the last resizes, placements and moves of a cluster's jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from slopewise.commands.console import out, print_json
from slopewise.commands.options import Kubeconfig, KubeContext, OneNamespace, Output, OutputFormat


def history(
    job: Annotated[str | None, typer.Argument(help="Only this workload: NAME or NAMESPACE/NAME.")] = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    output: Output = OutputFormat.table,
) -> None:
    """Print the last ten resizes, placements and moves of each job of a cluster.

    Examples: `slopewise history`; `slopewise history team-a/train -o json`.
    """
    from slopewise.crds.history import as_json, listing
    from slopewise.manager.options import Connection
    from slopewise.manager.read_history import read_history

    lines = read_history(Connection(kubeconfig, context, namespace), job)
    if output is OutputFormat.json:
        print_json(as_json(lines))
    else:
        out.print(listing(lines), soft_wrap=True)  # a line for a program such as grep is one line
