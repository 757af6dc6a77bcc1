"""`slopewise top`: the jobs of a cluster, or of a controller on this machine, as they are now."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from slopewise.commands.console import out, print_json
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


class SortOption(StrEnum):
    """By what the jobs are ordered."""

    growth = "growth"
    cpu = "cpu"
    name = "name"


Interval = Annotated[float, typer.Option(min=1, max=3600, help="Seconds between two tables.")]
Count = Annotated[
    int | None, typer.Option(min=1, max=1_000_000, help="So many tables; else until Ctrl-C, without a terminal one.")
]
SortBy = Annotated[SortOption, typer.Option(help="Largest growth or CPU first, or by name.")]


def top(
    call: typer.Context,
    local: Here = False,
    sort: SortBy = SortOption.growth,
    interval: Interval = 2.0,
    count: Count = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    lease_namespace: LeaseNamespace = None,
    output: Output = OutputFormat.table,
) -> None:
    """Show the jobs of a cluster as they change: state, loss, growth, CPU, and why. Ctrl-C ends it.

    Without a terminal the table is printed once, without colours.
    Examples: `slopewise top`; `slopewise top --namespace team-a --sort cpu`; `slopewise top --local`.
    """
    from slopewise.operate import top as shown

    if output is OutputFormat.json and count not in (None, 1):
        raise UsageError("-o json prints one object; leave --count out.")
    with received_signals() as stop, ExitStack() as stack:
        view = _local(call) if local else _cluster(stack, kubeconfig, context, namespace, lease_namespace)
        if output is OutputFormat.json:
            print_json(shown.as_json(view(), sort.value))
        elif out.is_terminal and not out.is_dumb_terminal:
            _redraw(view, sort.value, interval, count, stop)
        else:
            _print(view, sort.value, interval, count or 1, stop)


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


def _local(call: typer.Context) -> Callable[[], View]:
    refuse_clusters(call, "--local")
    from slopewise.operate.top import LocalWatch

    return LocalWatch().view


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
