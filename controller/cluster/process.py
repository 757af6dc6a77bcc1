"""`slopewise run` in a cluster: one replica of the controller, from its start to its orderly end.

Order of things: the endpoint for probes and metrics, the watches, then the lease. Only the replica that holds it has
`leading.py` at work; the others keep their watches warm. One that loses the lease ends with status 1 and is started
again by the kubelet: what it was about to do was decided under a lease that is no more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import structlog

from controller.adapters.health import HealthServer
from controller.adapters.http_access import read_access
from controller.adapters.kube.api import KubeApi
from controller.adapters.kube.election import Elector
from controller.adapters.kube.policies import PolicyRecord
from controller.cluster.claims import checked
from controller.cluster.connecting import connect, make_elector, other_leaders
from controller.cluster.leading import Leadership
from controller.cluster.metrics import ClusterMetrics
from controller.cluster.once import run_once
from controller.cluster.options import ClusterOptions
from controller.cluster.signals import StopSignal
from controller.cluster.watches import make_watches
from controller.cluster.world import World, make_world
from controller.documents import policy_of
from controller.errors import SlopewiseError, UsageError
from controller.loop import calm_garbage_collector
from controller.own_policies import catalogue
from controller.settings import load_training_policy
from controller.telemetry import Instruments, configure_logging

TICK_SECONDS = 0.5
STALLED_SECONDS = 60.0
"""Without a good tick for so long this process hangs or errs, and the kubelet is to start it again."""

STOP_SECONDS = 3.0
"""How long a pass that is under way is waited for at the end; the kubelet kills after 30 s."""

SAY_AGAIN_SECONDS = 60.0


def run_cluster(options: ClusterOptions, stop: StopSignal, announce: Callable[[str], None]) -> int:
    """Run until a signal comes (0) or the lease is lost (1); with `once`, one pass of each policy (see `once.py`)."""
    file_policy = policy_of_file(options)
    cautions = read_access(options.prometheus).cautions
    configure_logging(as_json=options.json_logs)
    log_own_policies()
    calm_garbage_collector()
    instruments = Instruments()
    metrics = ClusterMetrics(instruments.registry)
    api = connect(options.connection, metrics.on_request)
    announce(f"API server: {api.host}; Prometheus: {options.prometheus.url}.")
    for caution in cautions:
        announce(caution)
    if file_policy is not None and not options.dry_run:
        _warn_of_others(other_leaders(api, options.lease_namespace), announce)
    with Replica(options, api, instruments, metrics, file_policy) as replica:
        if options.once:
            return run_once(replica.world, replica.elector, stop, announce)
        announce(f"/healthz, /readyz and /metrics on {options.host}:{replica.health.port}.")
        return replica.run(stop)


def log_own_policies() -> None:
    """Load the user's policies, whose files are read once, and log which there are and which cannot be used."""
    log = structlog.get_logger("slopewise")
    for policy in catalogue.own():
        if isinstance(policy, catalogue.Unusable):
            log.warning("policy cannot be used", name=policy.name, origin=policy.origin, reason=policy.mistake)
        else:
            log.info("policy found", name=policy.name, origin=policy.origin)


def _warn_of_others(leaders: Mapping[str, str], announce: Callable[[str], None]) -> None:
    """A policy that came as a file is known to no other controller."""
    for namespace, holder in leaders.items():
        announce(
            f"Warning: {holder} leads in namespace {namespace}; if it manages the whole cluster, it gives back what "
            "this controller changes, since it does not know its policy; scale it to 0 replicas, or apply the policy."
        )


def policy_of_file(options: ClusterOptions) -> PolicyRecord | None:
    """The policy of --policy-file, as if it were the cluster's only one; UsageError where it cannot be obeyed."""
    if options.policy_file is None:
        if options.connection.namespace is not None:
            raise UsageError(
                "--namespace: TrainingPolicies belong to the whole cluster and are not read; add --policy-file FILE."
            )
        return None
    document = load_training_policy(options.policy_file)
    policy_of(document)
    record = PolicyRecord(
        uid="",
        name=document.metadata.name,
        resource_version="",
        generation=1,
        created_at_seconds=0.0,
        document=document,
        invalid=None,
    )
    record = checked(record, options.scrape_interval_seconds)
    if record.invalid is not None:
        raise UsageError(f"{options.policy_file}: {record.invalid}")
    return record


class Replica:
    """One process. Entering it starts everything but the passes; leaving it ends everything in the other order."""

    def __init__(
        self,
        options: ClusterOptions,
        api: KubeApi,
        instruments: Instruments,
        metrics: ClusterMetrics,
        file_policy: PolicyRecord | None,
    ) -> None:
        self._options = options
        self._metrics = metrics
        self._ticked_at = time.monotonic()
        self._log = structlog.get_logger("slopewise")
        self._said: dict[str, tuple[str, float]] = {}
        self.watches = make_watches(
            api,
            options.connection.namespace,
            lambda old, new: self.leadership.stir(old, new),
            lambda kind, namespace: self.leadership.note_limit(kind, namespace),
        )
        metrics.follow_watches(self.watches.watches)
        metrics.follow_resizes(self.watches.resizes.by_node)
        self._api = api
        self._lost: str | None = None
        self.elector = self._make_elector(api)
        may_write = (lambda: False) if options.dry_run else self.elector.may_write
        self.world: World = make_world(options, api, self.watches, may_write, instruments, metrics, file_policy)
        metrics.follow_moves(self.world.gated_seconds, self.world.moving_seconds)
        self.leadership = Leadership(self.world)

    def __enter__(self) -> Replica:
        with ExitStack() as stack:
            stack.callback(self._api.close)
            if not self._options.once:  # nobody probes it, and the port may be a running controller's
                self.health = stack.enter_context(self._health_server())
            stack.callback(self.watches.stop)
            self.watches.start()
            # The lease is handed back last: nobody else writes while our last statuses are still under way.
            stack.callback(self._stop_elector)
            stack.callback(self.world.stop)
            self.world.start()
            stack.callback(self.leadership.stop, STOP_SECONDS)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, stop: StopSignal) -> int:
        """Wait for the lease, lead, end at a signal or when the lease is lost."""
        if not self._options.dry_run:
            self.elector.start()
        while not stop.wait(TICK_SECONDS):
            if self._lost is not None:
                self._log.error("lease lost", reason=self._lost)
                return 1
            self._tick_safely()
        self._log.info("stopping", signal=stop.name)
        return 0

    def is_alive(self) -> bool:
        """Whether this process does what it is for: ticks, and where it leads passes, and moves that are seen through.

        An API server or a Prometheus that is away is no reason: starting again would not bring it back.
        """
        ticking = self._options.once or time.monotonic() - self._ticked_at < STALLED_SECONDS
        return ticking and self.leadership.is_alive()

    def _health_server(self) -> HealthServer:
        registry, options = self.world.instruments.registry, self._options
        return HealthServer(registry, self.is_alive, options.host, options.port, self.watches.waits_for)

    def _tick_safely(self) -> None:
        """An error that nobody expected is told, and counts as no tick: if it stays, the process is started again."""
        try:
            self._tick()
        except SlopewiseError as error:
            self._say("tick failed", str(error))
        except Exception as error:
            self._metrics.tick_failures.inc()
            self._say("tick failed", repr(error), error)
            return
        self._ticked_at = time.monotonic()

    def _tick(self) -> None:
        leads = self._options.dry_run or self.elector.is_leader
        self._metrics.leader.set(leads and not self._options.dry_run)
        if (waits_for := self.watches.waits_for()) is not None:
            self._say("not ready", waits_for)
            return
        if (silence := self.watches.trouble()) is not None:
            self._say("not heard", silence)
        if leads:
            self.leadership.tick()
        elif (why := self._why_standing_by()) is not None:
            self._say("standing by", why)

    def _why_standing_by(self) -> str | None:
        """None in the first moments, when nobody knows yet."""
        if self.elector.failure is not None:
            return self.elector.failure
        holder = self.elector.holder
        return None if holder in (None, self._options.identity) else f"{holder} holds the lease"

    def _say(self, event: str, reason: str, error: Exception | None = None) -> None:
        """A warning when it is new, and not more often than once a minute while it changes."""
        said, at = self._said.get(event, ("", float("-inf")))
        now = time.monotonic()
        if reason != said and now - at >= SAY_AGAIN_SECONDS:
            self._said[event] = (reason, now)
            self._log.warning(event, reason=reason, exc_info=error)

    def _make_elector(self, api: KubeApi) -> Elector:
        options = self._options
        return make_elector(
            api,
            options.connection,
            options.lease_namespace,
            options.identity,
            options.lease,
            on_started_leading=lambda: self._log.info("leading", identity=options.identity),
            on_lost=self._note_lost,
        )

    def _note_lost(self, reason: str) -> None:
        self._lost = reason

    def _stop_elector(self) -> None:
        if not self._options.dry_run:
            self.elector.stop()
