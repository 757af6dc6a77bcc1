"""`slopewise history`: prints what was done to the jobs of a cluster, or of a decision record."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from slopewise.commands.console import announce, out, print_json
from slopewise.commands.options import Kubeconfig, KubeContext, OneNamespace, complete_workload
from slopewise.commands.refusals import refuse


class HistoryFormat(StrEnum):
    """How actions are printed."""

    table = "table"
    json = "json"
    csv = "csv"


def history(
    call: typer.Context,
    job: Annotated[
        str | None,
        typer.Argument(help="Only this workload: NAME or NAMESPACE/NAME.", autocompletion=complete_workload),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="A decision record instead of a cluster: every action, also on jobs long gone.")
    ] = None,
    withheld: Annotated[
        bool, typer.Option("--withheld", help="With --record: also what guards withheld, and which.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    output: Annotated[
        HistoryFormat, typer.Option("--output", "-o", help="Print a table, one JSON object, or CSV for a notebook.")
    ] = HistoryFormat.table,
) -> None:
    """Print the last ten resizes, placements and moves of each job of a cluster, or all of a decision record.

    Examples: `slopewise history`; `slopewise history team-a/train -o json`;
    `slopewise history --record records/default.jsonl -o csv`.
    """
    from slopewise.crds.history import as_json, csv_text, listing

    if record is not None:
        refuse(call, ("--kubeconfig", "--context", "--namespace"), "is for a cluster; leave it or --record out")
        from slopewise.operate.recorded_history import history_recorded

        lines = history_recorded(record, job, announce, withheld=withheld)
    else:
        refuse(call, ("--withheld",), "is for a decision record; add --record FILE, or leave it out")
        from slopewise.adapters.kube.connection import Connection
        from slopewise.operate.growths import read_history

        lines = read_history(Connection(kubeconfig, context, namespace), job)
    if output is HistoryFormat.json:
        print_json(as_json(lines))
    elif output is HistoryFormat.csv:
        typer.echo(csv_text(lines), nl=False)
    else:
        out.print(listing(lines), soft_wrap=True)  # a line for a program such as grep is one line
