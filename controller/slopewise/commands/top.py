"""`slopewise status` and `top`: a cluster, or a controller on this machine, and its jobs as they are now."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from slopewise.commands.console import out, print_json, print_line, print_rankings, print_result
from slopewise.commands.options import (
    Here,
    Kubeconfig,
    KubeContext,
    LeaseNamespace,
    OneNamespace,
    Output,
    OutputFormat,
    refuse_clusters,
)
from slopewise.errors import UsageError
from slopewise.signals import StopSignal, received_signals

if TYPE_CHECKING:
    from slopewise.operate.top import Sort, View


Interval = Annotated[float, typer.Option(min=1, max=3600, help="Seconds between two tables.")]
Count = Annotated[
    int | None, typer.Option(min=1, max=1_000_000, help="So many tables; else until Ctrl-C, without a terminal one.")
]
SortBy = Annotated[Literal["growth", "cpu", "name"], typer.Option(help="Largest growth or CPU first, or by name.")]


def status(
    call: typer.Context,
    local: Here = False,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    lease_namespace: LeaseNamespace = None,
    study: Annotated[str | None, typer.Option(help="Only jobs of this study, the best first.")] = None,
    output: Output = "table",
) -> None:
    """Print who leads, the policies and jobs of a cluster or of this machine, and what somebody should look at.

    Examples: `slopewise status`; `slopewise status --namespace team-a -o json`; `slopewise status --study lr-search`.
    """
    if local:
        refuse_clusters(call, "--local")
        _status_here(study, output)
        return
    from slopewise.adapters.kube.connection import Connection, connect, lease_namespaces_of
    from slopewise.operate import status as overview
    from slopewise.operate.freeze import read_freezes

    connection = Connection(kubeconfig, context, namespace)
    if study is not None:
        from slopewise.operate.growths import read_studies

        print_rankings(read_studies(connection, study), output)
        return
    with closing(connect(connection)) as api:
        leader = overview.read_leader(api, lease_namespaces_of(connection, lease_namespace))
        policies = overview.read_policies(api, namespace)
        freezes = read_freezes(api)
        if output == "json":
            print_json(overview.as_json(leader, policies, freezes, overview.read_jobs(api, namespace)))
            return
        print_line(overview.leader_line(leader))
        if policies.rows:
            out.print(overview.policies_table(policies.rows, out.width))
        else:
            print_line(overview.no_policies_line(policies))
        for line in overview.freeze_lines(freezes):
            print_line(line)
        jobs = overview.read_jobs(api, namespace)
    print_line(overview.jobs_line(jobs))
    troubles = [*overview.troubles_of_policies(policies.rows), *jobs.troubles]
    if troubles:
        out.print(overview.troubles_table(troubles))


def _status_here(study: str | None, output: OutputFormat) -> None:
    from slopewise.adapters.local.session_requests import session_and_jobs
    from slopewise.operate.local_session import status_json, status_lines, study_here

    if study is not None:
        print_rankings([study_here(study)], output)
        return
    session, jobs = session_and_jobs()
    print_result(status_json(session, jobs), "\n".join(status_lines(session, jobs)), output)


def top(
    call: typer.Context,
    local: Here = False,
    sort: SortBy = "growth",
    interval: Interval = 2.0,
    count: Count = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    lease_namespace: LeaseNamespace = None,
    output: Output = "table",
) -> None:
    """Show the jobs of a cluster as they change: state, loss, growth, CPU, and why. Ctrl-C ends it.

    Without a terminal the table is printed once, without colours.
    Examples: `slopewise top`; `slopewise top --namespace team-a --sort cpu`; `slopewise top --local`.
    """
    from slopewise.operate import top as shown

    if output == "json" and count not in (None, 1):
        raise UsageError("-o json prints one object; leave --count out.")
    with received_signals() as stop, ExitStack() as stack:
        if local:
            refuse_clusters(call, "--local")
            view = shown.LocalWatch().view
        else:
            view = _cluster(stack, kubeconfig, context, namespace, lease_namespace)
        if output == "json":
            print_json(shown.as_json(view(), sort))
        elif out.is_terminal and not out.is_dumb_terminal:
            _redraw(view, sort, interval, count, stop)
        else:
            _print(view, sort, interval, count or 1, stop)


def _cluster(
    stack: ExitStack,
    kubeconfig: Kubeconfig,
    context: KubeContext,
    namespace: OneNamespace,
    lease_namespace: LeaseNamespace,
) -> Callable[[], View]:
    from slopewise.adapters.kube.connection import Connection, lease_namespaces_of
    from slopewise.operate.growth_watch import GrowthWatch
    from slopewise.telemetry.log_lines import configure_logging

    configure_logging(level=logging.CRITICAL)  # a line of the log would stand in the middle of the screen
    connection = Connection(kubeconfig, context, namespace)
    return stack.enter_context(GrowthWatch(connection, lease_namespaces_of(connection, lease_namespace))).view


def _redraw(view: Callable[[], View], sort: Sort, interval: float, count: int | None, stop: StopSignal) -> None:
    """The whole terminal, which has its former content again at the end; the last table stays below it."""
    from rich.live import Live

    from slopewise.operate.top import screen

    shown, last = 0, view()
    with Live(console=out, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(screen(last, sort, out.height), refresh=True)
            shown += 1
            if stop.wait(interval) or shown == count:
                break
            last = view()
    out.print(screen(last, sort, out.height))


def _print(view: Callable[[], View], sort: Sort, interval: float, count: int, stop: StopSignal) -> None:
    from slopewise.operate.top import screen

    for number in range(count):
        if number and stop.wait(interval):
            return
        out.print(screen(view(), sort))
