"""The state that all policies of one process share: API clients, watches, memory, writers, rate limits, metrics.

`manager/replica.py` makes it once; each `policy_runner.py` builds its ports from it. `PolicyAssignment` says which
policy manages which pod. An invalid policy has no pods: a younger one that selects them manages them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from slopewise.adapters.clock import SystemClock
from slopewise.adapters.grafana.annotations import DecisionAnnotations, GrafanaAccess
from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.client.fencing import FencedApi
from slopewise.adapters.kube.client.protocol import MayWrite
from slopewise.adapters.kube.connection import DEFAULT_NAMESPACE, Connection, own_identity
from slopewise.adapters.kube.events import EventRecorder
from slopewise.adapters.kube.leader_election import Terms
from slopewise.adapters.kube.moves.backoff import MoveBackoff
from slopewise.adapters.kube.moves.evict.controller import EvictionController
from slopewise.adapters.kube.moves.gated_pods import GatedPodController
from slopewise.adapters.kube.moves.movability_inputs import allows_moves
from slopewise.adapters.kube.moves.scheduling_gate import GateReleaser
from slopewise.adapters.kube.moves.suspend.annotation import SuspendedJobs
from slopewise.adapters.kube.moves.suspend.begin import JobMover
from slopewise.adapters.kube.moves.suspend.stop import JobStopper
from slopewise.adapters.kube.resize.rate_limiter import Rate, RateLimiter
from slopewise.adapters.kube.state.freezes import KubeFreezes
from slopewise.adapters.kube.state.job_growth_store import JobGrowthStore
from slopewise.adapters.kube.state.status_writer import StatusSender, StatusWriter
from slopewise.adapters.kube.state.training_policies import Claims, PolicyRecord, claim_pods
from slopewise.adapters.kube.watches import Watches
from slopewise.adapters.kube.workloads.owners import Owners
from slopewise.config.pass_settings import interval_mistake, with_interval
from slopewise.decision_record.recorder import RecordOptions
from slopewise.manager.effects import Effects, NoEffects
from slopewise.manager.metrics import ClusterMetrics
from slopewise.model import JobUid, MoveUnderWay
from slopewise.telemetry.metrics import Instruments


@dataclass(frozen=True, slots=True)
class Rates:
    """How many pods may be resized a minute, which bounds the effect of an error; each a token bucket."""

    per_node_per_minute: int = 30
    per_namespace_per_minute: int = 120
    per_cluster_per_minute: int = 600


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The command line of `slopewise run`, in a cluster."""

    connection: Connection
    prometheus_url: str
    policy_file: Path | None = None
    scrape_interval_seconds: float = 15.0
    dry_run: bool = False
    once: bool = False
    host: str = "127.0.0.1"
    port: int = 8080
    json_logs: bool = False
    lease_namespace: str = DEFAULT_NAMESPACE
    identity: str = field(default_factory=own_identity)
    lease: Terms = field(default_factory=Terms)
    rates: Rates = Rates()
    restore_deadline_seconds: float = 60.0
    """A policy that is deleted waits for its pods' originals no longer than this."""
    prometheus_config: Path | None = None
    """The `http_config` for Prometheus."""

    record: RecordOptions | None = None
    """Where the passes of each policy are recorded; None: nowhere."""
    alert_token_file: Path | None = None
    """The token by which Alertmanager may call the webhook; None: there is no webhook."""
    annotated: GrafanaAccess | None = None
    """The Grafana in which decisions are annotated; None: none."""

    @property
    def prometheus(self) -> Endpoint:
        """The Prometheus that scrapes the trainers."""
        return Endpoint(self.prometheus_url, self.prometheus_config)


def checked(record: PolicyRecord, scrape_interval_seconds: float) -> PolicyRecord:
    """The record with its interval; invalid, with a message, where that is shorter than the scrape interval."""
    if record.document is None:
        return record
    mistake = interval_mistake(record.document, scrape_interval_seconds)
    if mistake is None:
        return replace(record, document=with_interval(record.document, scrape_interval_seconds))
    reason = f"TrainingPolicy {record.name}: {mistake}, or scrape more often (--scrape-interval)."
    return replace(record, document=None, invalid=reason)


class PolicyAssignment:
    """Which policy manages which pod, computed again only when an input has changed."""

    def __init__(self, watches: Watches, file_policy: PolicyRecord | None, scrape_interval_seconds: float) -> None:
        """`file_policy`: the one policy, where it came as a file."""
        self._watches = watches
        self._file_policy = None if file_policy is None else (file_policy,)
        self._scrape_interval_seconds = scrape_interval_seconds
        self._checked: tuple[tuple[PolicyRecord, ...], tuple[PolicyRecord, ...]] = ((), ())
        self._known: tuple[tuple[object, ...], Claims] | None = None

    def policies(self) -> tuple[PolicyRecord, ...]:
        """All current policies, also invalid ones and those that are being deleted.

        The same tuple until something changes.
        """
        if self._file_policy is not None:
            return self._file_policy
        there = () if self._watches.policies is None else self._watches.policies.items()
        if there is not self._checked[0]:
            self._checked = (there, tuple(checked(record, self._scrape_interval_seconds) for record in there))
        return self._checked[1]

    def current(self) -> Claims:
        """Each pod's policy. A store returns the same tuple until something changes, so a call is cheap."""
        watches, policies = self._watches, self.policies()
        seen = (
            policies,
            watches.pods.items(),
            () if watches.namespaces is None else watches.namespaces.items(),
            () if watches.nodes is None else watches.nodes.items(),
        )
        known = self._known
        if known is None or any(now is not before for now, before in zip(seen, known[0], strict=True)):
            known = (seen, claim_pods(policies, watches.pods.items(), self._namespaces(), self._nodes()))
            self._known = known
        return known[1]

    def _namespaces(self) -> Mapping[str, Mapping[str, str]]:
        store = self._watches.namespaces
        if store is None:  # their labels may not be read: only an empty selector selects
            return {pod.namespace: {} for pod in self._watches.pods.items()}
        return {each.name: each.labels for each in store.items()}

    def _nodes(self) -> Mapping[str, Mapping[str, str]]:
        store = self._watches.nodes
        if store is None:
            return {pod.node: {} for pod in self._watches.pods.items() if pod.node is not None}
        return {each.name: each.labels for each in store.items()}


_FLUSH_SECONDS = 4.0
FAIL_FAST_SECONDS = 3.0

_FAILURES_OF_TROUBLE = 3
"""A status write that fails once may be a conflict; three failures in a row take seven seconds."""


@dataclass(frozen=True, slots=True)
class SharedState:
    """The shared parts. Nothing in it writes without the lease: both clients are fenced."""

    options: ClusterOptions
    api: FencedApi
    fail_fast: FencedApi
    """The same with a short timeout, for the ticking thread, which must not hang."""
    watches: Watches
    owners: Owners
    claims: PolicyAssignment
    job_growths: JobGrowthStore
    writer: StatusWriter
    events: EventRecorder
    rate_limiter: RateLimiter
    gates: GatedPodController
    evictions: EvictionController
    job_moves: JobMover
    job_stops: JobStopper
    suspended_jobs: SuspendedJobs
    move_backoff: MoveBackoff
    effects: Effects
    instruments: Instruments
    metrics: ClusterMetrics
    clock: SystemClock
    freezes: KubeFreezes
    annotations: DecisionAnnotations | None = None
    """None: decisions are annotated nowhere."""

    def start(self) -> None:
        """Start the writers of statuses and events; the lease fences them."""
        self.writer.start()
        self.events.start()

    def stop(self) -> None:
        """Write what waits, within a few seconds, and end."""
        deadline = time.monotonic() + _FLUSH_SECONDS
        self.writer.stop(_FLUSH_SECONDS - 1)
        self.events.stop(max(0.5, deadline - time.monotonic()))
        if self.annotations is not None:
            self.annotations.close(0.5)

    def moves_under_way(self) -> tuple[MoveUnderWay, ...]:
        """All moves of the cluster that are not over, by suspension and by eviction."""
        return (*self.job_moves.under_way(), *self.evictions.under_way())

    def gated_seconds(self) -> list[float]:
        """The age of each gated pod."""
        now = self.clock.now()
        return [max(0.0, now - pod.created_at_seconds) for pod in self.watches.pods.items() if pod.waits_for_us]

    def moving_seconds(self) -> list[float]:
        """The age of each workload's move: the pods of one Job move together, and bounds of moves count them as one."""
        now = self.clock.now()
        begun = {JobUid.of(move.job_uid).workload: move.since_seconds for move in self.moves_under_way()}
        return [max(0.0, now - since) for since in begun.values()]

    def trouble(self, policy: str) -> str | None:
        """What keeps this policy from working and reporting in full, a missing right for example; None: nothing."""
        if (silence := self.watches.trouble()) is not None:
            return silence
        failing = sum(document.failures >= _FAILURES_OF_TROUBLE for document in self.job_growths.of(policy))
        if not failing:
            return None
        return f"{failing} JobGrowths cannot be written" + (f": {self.writer.failure}" if self.writer.failure else "")


def make_shared_state(
    options: ClusterOptions,
    raw_api: KubeApi,
    watches: Watches,
    may_write: MayWrite,
    instruments: Instruments,
    metrics: ClusterMetrics,
    file_policy: PolicyRecord | None,
) -> SharedState:
    """Build the shared parts; nothing is started yet."""
    api = FencedApi(raw_api, may_write)
    sender = StatusSender(api)
    writer = StatusWriter(sender.send, on_write=metrics.on_status_write)
    job_growths = JobGrowthStore(watches.growths, sender, writer)
    owners, clock = Owners(watches.jobs, api, job_growths.recorded), SystemClock()
    rate_limiter = RateLimiter(
        node=Rate(options.rates.per_node_per_minute),
        namespace=Rate(options.rates.per_namespace_per_minute),
        cluster=Rate(options.rates.per_cluster_per_minute),
        clock=time.monotonic,
    )
    events = EventRecorder(api, instance=options.identity)
    gate_releaser = GateReleaser(api, watches.pods.observe)
    backoff = MoveBackoff(api, watches.jobs, watches.namespaces, clock)
    evictions = EvictionController(
        api, watches.pods, watches.nodes, owners, job_growths, gate_releaser, rate_limiter.take, clock, events.emit,
        on_refused=backoff.note,
    )  # fmt: skip
    job_moves = JobMover(
        api, watches.jobs, watches.nodes, rate_limiter.take, clock, watches.jobs.observe, on_refused=backoff.note
    )
    fail_fast = FencedApi(raw_api.with_timeout(FAIL_FAST_SECONDS), may_write)
    return SharedState(
        options=options,
        api=api,
        fail_fast=fail_fast,
        watches=watches,
        owners=owners,
        claims=PolicyAssignment(watches, file_policy, options.scrape_interval_seconds),
        job_growths=job_growths,
        writer=writer,
        events=events,
        rate_limiter=rate_limiter,
        gates=GatedPodController(
            api, watches.pods, owners, gate_releaser, rate_limiter.take, clock,
            may_evict_in=lambda namespace: allows_moves(watches.namespaces, namespace),
            reserved=evictions.reserved, on_stranded=evictions.give_up_node, emit=events.emit, act=job_growths.act,
        ),
        evictions=evictions,
        job_moves=job_moves,
        job_stops=JobStopper(api, clock, watches.jobs.observe),
        suspended_jobs=SuspendedJobs(watches.jobs, watches.pods),
        move_backoff=backoff,
        effects=(NoEffects if options.dry_run else Effects)(fail_fast, job_growths, clock),
        instruments=instruments,
        metrics=metrics,
        clock=clock,
        freezes=KubeFreezes(fail_fast, watches.freezes, clock),
        annotations=None if options.annotated is None else DecisionAnnotations(options.annotated),
    )  # fmt: skip
