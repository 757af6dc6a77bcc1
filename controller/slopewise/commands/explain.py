"""`slopewise explain`: why a job was changed, or why it was not."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from slopewise.commands.console import announce, print_json, print_unpadded
from slopewise.commands.options import Kubeconfig, KubeContext, OneNamespace, Output, OutputFormat, complete_workload
from slopewise.commands.refusals import refuse
from slopewise.errors import UsageError


def explain(
    call: typer.Context,
    job: Annotated[str, typer.Argument(help="The workload: NAME or NAMESPACE/NAME.", autocompletion=complete_workload)],
    record: Annotated[
        Path | None, typer.Option(help="A decision record instead of a cluster: also each guard, and jobs long gone.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="With --record: as of this time, such as 2026-11-23T08:00:00 (UTC).")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    output: Output = OutputFormat.table,
) -> None:
    """Explain what was seen of a job, what was decided for it, and why.

    Examples: `slopewise explain team-a/train`; `slopewise explain train --record records/default.jsonl`.
    """
    from slopewise.operate import explanation

    if record is not None:
        refuse(call, ("--kubeconfig", "--context", "--namespace"), "is for a cluster; leave it or --record out")
        from slopewise.operate.recorded import explain_recorded

        explanations = [explain_recorded(record, job, None if at is None else _seconds(at), announce)]
    else:
        refuse(call, ("--at",), "is for a decision record; add --record FILE, or leave it out")
        from slopewise.adapters.kube.connection import Connection
        from slopewise.operate.growths import read_growths

        growths = read_growths(Connection(kubeconfig, context, namespace), "explain", job)
        explanations = [explanation.explain(each.name, each.status, each.lines) for each in growths]
    if output is OutputFormat.json:
        print_json([each.as_json() for each in explanations])
    else:
        for each in explanations:
            print_unpadded(explanation.rendered(each))


def _seconds(at: str) -> float:
    try:
        time = datetime.fromisoformat(at)
    except ValueError as error:
        raise UsageError(f"--at {at!r} is not a time; write it like 2026-11-23T08:00:00.") from error
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
