"""What all policies of one process share: the API server, the watches, memory and status, rates, metrics.

Made once by `process.py`; each `runner.py` plugs its own ports together out of it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from controller.adapters.clock import SystemClock
from controller.adapters.kube.api import KubeApi
from controller.adapters.kube.buckets import Buckets, Rate
from controller.adapters.kube.contracts import Api, MayWrite
from controller.adapters.kube.events import EventRecorder
from controller.adapters.kube.evictions import Evictions
from controller.adapters.kube.gates import Gates
from controller.adapters.kube.growth_book import GrowthBook
from controller.adapters.kube.move_backoff import MoveBackoff
from controller.adapters.kube.move_consent import allows_moves
from controller.adapters.kube.opening import Opener
from controller.adapters.kube.owners import Owners
from controller.adapters.kube.policies import PolicyRecord
from controller.adapters.kube.status_writer import StatusSender, StatusWriter
from controller.adapters.kube.suspending import JobMover
from controller.cluster.claims import ClaimKeeper
from controller.cluster.metrics import ClusterMetrics
from controller.cluster.options import ClusterOptions, Rates
from controller.cluster.watches import Watches
from controller.model import MoveUnderWay
from controller.telemetry import Instruments

_FLUSH_SECONDS = 4.0
IMPATIENT_SECONDS = 3.0

_FAILURES_OF_TROUBLE = 3
"""A status that could not be written once was in somebody's way; three times in a row is seven seconds."""


@dataclass(frozen=True, slots=True)
class World:
    """The shared parts."""

    options: ClusterOptions
    api: Api
    impatient: Api
    """The same, for what the thread that ticks asks: it must not hang for long."""
    watches: Watches
    owners: Owners
    claims: ClaimKeeper
    book: GrowthBook
    writer: StatusWriter
    events: EventRecorder
    buckets: Buckets
    gates: Gates
    evictions: Evictions
    job_moves: JobMover
    move_backoff: MoveBackoff
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
        deadline = time.monotonic() + _FLUSH_SECONDS
        self.writer.stop(_FLUSH_SECONDS - 1)
        self.events.stop(max(0.5, deadline - time.monotonic()))

    def moves_under_way(self) -> tuple[MoveUnderWay, ...]:
        """All moves of the cluster that were begun and are not over, in either way."""
        return (*self.job_moves.under_way(), *self.evictions.under_way())

    def gated_seconds(self) -> list[float]:
        """How old each pod is that waits behind our gate."""
        now = self.clock.now()
        return [max(0.0, now - pod.created_at_seconds) for pod in self.watches.pods.items() if pod.waits_for_us]

    def moving_seconds(self) -> list[float]:
        """For how long each job has been on its way to another node."""
        now = self.clock.now()
        return [max(0.0, now - move.since_seconds) for move in self.moves_under_way()]

    def trouble(self, policy: str) -> str | None:
        """What keeps this policy from being obeyed and told of in full, in words: a right that was taken away, say."""
        if (silence := self.watches.trouble()) is not None:
            return silence
        failing = sum(document.failures >= _FAILURES_OF_TROUBLE for document in self.book.of(policy))
        if not failing:
            return None
        return f"{failing} JobGrowths cannot be written" + (f": {self.writer.failure}" if self.writer.failure else "")


def make_world(
    options: ClusterOptions,
    api: KubeApi,
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
    owners, clock = Owners(watches.jobs, api, book.recorded), SystemClock()
    buckets = _buckets(options.rates)
    events = EventRecorder(api, may_write, instance=options.identity)
    opener = Opener(api, may_write, watches.pods.observe)
    backoff = MoveBackoff(api, watches.jobs, watches.namespaces, clock)
    evictions = Evictions(
        api, watches.pods, watches.nodes, owners, book, opener, may_write, buckets.take, clock, events.emit,
        on_refused=backoff.note,
    )  # fmt: skip
    job_moves = JobMover(
        api, watches.jobs, watches.nodes, may_write, buckets.take, clock, watches.jobs.observe, on_refused=backoff.note
    )
    return World(
        options=options,
        api=api,
        impatient=api.with_timeout(IMPATIENT_SECONDS),
        watches=watches,
        owners=owners,
        claims=ClaimKeeper(watches, file_policy, options.scrape_interval_seconds),
        book=book,
        writer=writer,
        events=events,
        buckets=buckets,
        gates=Gates(
            api, watches.pods, owners, opener, may_write, buckets.take, clock,
            may_evict_in=lambda namespace: allows_moves(watches.namespaces, namespace),
            reserved=evictions.reserved, on_stranded=evictions.give_up_node, tell=events.emit, act=book.act,
        ),
        evictions=evictions,
        job_moves=job_moves,
        move_backoff=backoff,
        may_write=may_write,
        instruments=instruments,
        metrics=metrics,
        clock=clock,
    )  # fmt: skip


def _buckets(rates: Rates) -> Buckets:
    return Buckets(
        node=Rate(rates.per_node_per_minute),
        namespace=Rate(rates.per_namespace_per_minute),
        cluster=Rate(rates.per_cluster_per_minute),
        clock=time.monotonic,
    )
