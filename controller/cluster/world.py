"""What all policies of one process share: the API server, the watches, memory and status, rates, metrics.

Made once by `process.py`; each `runner.py` plugs its own ports together out of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from controller.adapters.clock import SystemClock
from controller.adapters.kube.buckets import Buckets, Rate
from controller.adapters.kube.contracts import Api, MayWrite
from controller.adapters.kube.events import EventRecorder
from controller.adapters.kube.growth_book import GrowthBook
from controller.adapters.kube.owners import Owners
from controller.adapters.kube.policies import Claims, PolicyRecord, claim_pods
from controller.adapters.kube.status_writer import StatusSender, StatusWriter
from controller.cluster.metrics import ClusterMetrics
from controller.cluster.options import ClusterOptions, Rates
from controller.cluster.watches import Watches
from controller.telemetry import Instruments

_FLUSH_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class World:
    """The shared parts."""

    options: ClusterOptions
    api: Api
    watches: Watches
    owners: Owners
    claims: ClaimKeeper
    book: GrowthBook
    writer: StatusWriter
    events: EventRecorder
    buckets: Buckets
    may_write: MayWrite
    instruments: Instruments
    metrics: ClusterMetrics
    clock: SystemClock

    def start(self) -> None:
        """Begin to write statuses and events; nothing is written before this replica may write."""
        self.writer.start()
        self.events.start()

    def stop(self) -> None:
        """Write what waits, within a few seconds, and end."""
        self.writer.stop(_FLUSH_SECONDS)
        self.events.stop(_FLUSH_SECONDS)


def make_world(
    options: ClusterOptions,
    api: Api,
    watches: Watches,
    may_write: MayWrite,
    instruments: Instruments,
    metrics: ClusterMetrics,
    file_policy: PolicyRecord | None,
) -> World:
    """Put the shared parts together; nothing is started yet."""
    sender = StatusSender(api, may_write)
    writer = StatusWriter(sender.send, on_write=metrics.on_status_write)
    book = GrowthBook(watches.growths, sender, writer)
    return World(
        options=options,
        api=api,
        watches=watches,
        owners=Owners(watches.jobs, api, book.recorded),
        claims=ClaimKeeper(watches, file_policy),
        book=book,
        writer=writer,
        events=EventRecorder(api, may_write, instance=options.identity),
        buckets=_buckets(options.rates),
        may_write=may_write,
        instruments=instruments,
        metrics=metrics,
        clock=SystemClock(),
    )


def _buckets(rates: Rates) -> Buckets:
    return Buckets(
        node=Rate(rates.per_node_per_minute),
        namespace=Rate(rates.per_namespace_per_minute),
        cluster=Rate(rates.per_cluster_per_minute),
        clock=time.monotonic,
    )


class ClaimKeeper:
    """Which policy manages which pod, worked out again only when something of it has changed."""

    def __init__(self, watches: Watches, file_policy: PolicyRecord | None) -> None:
        """`file_policy`: the one policy, where it came as a file."""
        self._watches = watches
        self._file_policy = file_policy
        self._known: tuple[tuple[object, ...], Claims] | None = None

    def policies(self) -> tuple[PolicyRecord, ...]:
        """All policies as they are now, also those that are being deleted or cannot be obeyed."""
        if self._file_policy is not None:
            return (self._file_policy,)
        return () if self._watches.policies is None else tuple(self._watches.policies.items())

    def current(self) -> Claims:
        """Each pod's policy. A store hands out the same tuple until something changes, so looking is cheap."""
        watches = self._watches
        seen = (
            self.policies() if watches.policies is None else watches.policies.items(),
            watches.pods.items(),
            () if watches.namespaces is None else watches.namespaces.items(),
            () if watches.nodes is None else watches.nodes.items(),
        )
        known = self._known
        if known is None or any(now is not before for now, before in zip(seen, known[0], strict=True)):
            known = (seen, claim_pods(self.policies(), watches.pods.items(), self._namespaces(), self._nodes()))
            self._known = known
        return known[1]

    def _namespaces(self) -> Mapping[str, Mapping[str, str]]:
        store = self._watches.namespaces
        if store is None:  # their labels may not be read: only a selector that asks for none selects
            return {pod.namespace: {} for pod in self._watches.pods.items()}
        return {each.name: each.labels for each in store.items()}

    def _nodes(self) -> Mapping[str, Mapping[str, str]]:
        store = self._watches.nodes
        if store is None:
            return {pod.node: {} for pod in self._watches.pods.items() if pod.node is not None}
        return {each.name: each.labels for each in store.items()}
