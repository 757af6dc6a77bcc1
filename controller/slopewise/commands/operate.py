"""`slopewise history`, `explain`, `replay`, `freeze`, `unfreeze`, `restore`, `sweep`: options and output."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from slopewise.commands.console import announce, err, out, print_json, print_result, print_unpadded
from slopewise.commands.options import (
    Here,
    Kubeconfig,
    KubeContext,
    LeaseNamespace,
    OneNamespace,
    Output,
    PoliciesFolders,
    Rows,
    refuse,
    refuse_clusters,
)
from slopewise.errors import UsageError
from slopewise.signals import received_signals

_OF_RECORD = "is for a decision record; add --record FILE, or leave it out"


def history(
    call: typer.Context,
    job: Annotated[str | None, typer.Argument(help="Only this workload: NAME or NAMESPACE/NAME.")] = None,
    record: Annotated[
        Path | None, typer.Option(help="A decision record instead of a cluster: every action, also on jobs long gone.")
    ] = None,
    withheld: Annotated[
        bool, typer.Option("--withheld", help="With --record: also what guards withheld, and which.")
    ] = False,
    local: Here = False,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    output: Rows = "table",
) -> None:
    """Print the last ten resizes, placements and moves of each job of a cluster, or all of a decision record.

    Examples: `slopewise history`; `slopewise history team-a/train -o json`;
    `slopewise history --record records/default.jsonl -o csv`.
    """
    from slopewise.crds.history import as_json, csv_text, listing

    if record is not None:
        refuse_clusters(call, "--record")
        refuse(call, ("--local",), "is for a session that runs; leave it or --record out")
        from slopewise.operate.recorded import history_recorded

        lines = history_recorded(record, job, announce, withheld=withheld)
    elif local:
        refuse_clusters(call, "--local")
        refuse(call, ("--withheld",), _OF_RECORD)
        from slopewise.operate.local_session import history as history_here

        lines = history_here(job)
    else:
        refuse(call, ("--withheld",), _OF_RECORD)
        from slopewise.adapters.kube.connection import Connection
        from slopewise.operate.growths import read_history

        lines = read_history(Connection(kubeconfig, context, namespace), job)
    if output == "json":
        print_json(as_json(lines))
    elif output == "csv":
        typer.echo(csv_text(lines), nl=False)
    else:
        out.print(listing(lines), soft_wrap=True)  # a line for a program such as grep is one line


def explain(
    call: typer.Context,
    job: Annotated[str, typer.Argument(help="The workload: NAME or NAMESPACE/NAME.")],
    record: Annotated[
        Path | None, typer.Option(help="A decision record instead of a cluster: also each guard, and jobs long gone.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="With --record: as of this time, such as 2026-11-23T08:00:00 (UTC).")
    ] = None,
    local: Here = False,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    output: Output = "table",
) -> None:
    """Explain what was seen of a job, what was decided for it, and why.

    Examples: `slopewise explain team-a/train`; `slopewise explain train --record records/default.jsonl`.
    """
    from slopewise.operate import explanation

    if record is not None:
        refuse_clusters(call, "--record")
        refuse(call, ("--local",), "is for a session that runs; leave it or --record out")
        from slopewise.operate.recorded import explain_recorded

        explanations = [explain_recorded(record, job, None if at is None else _seconds(at), announce)]
    elif local:
        refuse_clusters(call, "--local")
        refuse(call, ("--at",), _OF_RECORD)
        from slopewise.operate.local_session import explained

        explanations = [explained(job)]
    else:
        refuse(call, ("--at",), _OF_RECORD)
        from slopewise.adapters.kube.connection import Connection
        from slopewise.operate.growths import read_growths

        growths = read_growths(Connection(kubeconfig, context, namespace), "explain", job)
        explanations = [explanation.explain(each.name, each.status, each.lines) for each in growths]
    if output == "json":
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


def replay(
    file: Annotated[Path, typer.Argument(help="A decision record, as `slopewise run --record` writes it.")],
    policies_folders: PoliciesFolders = None,
    output: Output = "table",
) -> None:
    """Decide the passes of a record again. Exit code 1: a pass decided something else than was recorded.

    Example: `slopewise replay records/default.jsonl`.
    """
    from slopewise.operate import replay as replaying
    from slopewise.reports.wording import plain

    with err.status("replaying") as status:
        whole = replaying.replay_file(file, announce, lambda passes: status.update(f"{passes} passes"))
    lines = [replaying.summary(whole), *map(plain, replaying.differences(whole))]
    print_result(replaying.as_json(whole), "\n".join(lines), output)
    raise typer.Exit(0 if whole.is_same else 1)


Scope = Annotated[
    str, typer.Argument(metavar="SCOPE", help="all, namespace/NAME, node/NAME or policy/NAME.", show_default=False)
]


def freeze(
    scope: Scope,
    lasts: Annotated[str, typer.Option("--for", help="How long, such as 1h, 90m or 2d.")] = "1h",
    reason: Annotated[str, typer.Option(help="Why, for those who find it.", show_default=False)] = "",
    effect: Annotated[
        Literal["Freeze", "Recommend"],
        typer.Option(help="Freeze: no change at all. Recommend: as the mode, originals are restored."),
    ] = "Freeze",
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    output: Output = "table",
) -> None:
    """Stop changes of all jobs, or of those of a namespace, a node or a policy, until `unfreeze` or for a time.

    Examples: `slopewise freeze namespace/team-a --for 2h --reason "load test"`; `slopewise freeze all`.
    """
    from slopewise.adapters.kube.connection import Connection, connect
    from slopewise.config.freeze import parse_scope
    from slopewise.config.quantities import duration_seconds
    from slopewise.operate.freeze import MAX_FOR_SECONDS, freeze_by_hand

    parsed, seconds = parse_scope(scope), duration_seconds(lasts)
    if seconds is None or not 1 <= seconds <= MAX_FOR_SECONDS:
        raise UsageError(f"--for {lasts!r} is not a time from 1s to 366d; write it like 1h, 90m or 2d.")
    with closing(connect(Connection(kubeconfig, context))) as api:
        made = freeze_by_hand(api, parsed, seconds, reason, effect)
    print_result(made.as_json(), made.sentence, output)


def unfreeze(
    scope: Scope,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    output: Output = "table",
) -> None:
    """Delete all Freezes of a scope, also those of others; exit 1 where there is none.

    One that an alert made comes back while the alert fires: silence it first. Example:
    `slopewise unfreeze namespace/team-a`.
    """
    from slopewise.adapters.kube.connection import Connection, connect
    from slopewise.config.freeze import parse_scope
    from slopewise.operate.freeze import unfreeze as delete_all
    from slopewise.reports.wording import plain

    parsed = parse_scope(scope)
    with closing(connect(Connection(kubeconfig, context))) as api:
        deleted = delete_all(api, parsed)
    text = f"unfrozen: {', '.join(deleted)}" if deleted else f"there is no Freeze of {scope}"
    print_result({"deleted": deleted}, plain(text), output)
    raise typer.Exit(0 if deleted else 1)


def restore(
    everything: Annotated[bool, typer.Option("--all", help="Every pod that was changed, and every finalizer.")] = False,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    lease_namespace: LeaseNamespace = None,
    deadline: Annotated[float, typer.Option(min=1, max=3600, help="Seconds to try for.")] = 60.0,
    output: Output = "table",
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
    print_result(result.as_json(), listing(result), output)
    raise typer.Exit(exit_code)


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
    output: Output = "table",
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
    print_result(asdict(swept), sweeping.listing(swept), output)
    raise typer.Exit(exit_code)
