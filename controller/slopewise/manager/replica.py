"""`slopewise run` in a cluster: one replica of the controller, from its start to its orderly end.

It starts the endpoint for probes and metrics, the watches, then the election. Only the replica that holds the lease
runs `manager/leader.py`; the others keep their watches up to date. A replica that loses the lease exits with status 1,
and the kubelet restarts it: its pending actions were decided under the lost lease. With `--once` it runs one pass of
each policy instead, and ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Self

import structlog

from slopewise.adapters.health import HealthServer
from slopewise.adapters.http import alert_webhook
from slopewise.adapters.http.access import read_access
from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.connection import connect, make_elector, other_leaders, take_lease
from slopewise.adapters.kube.leader_election import Elector, NoElection
from slopewise.adapters.kube.state.training_policies import PolicyDocument, PolicyRecord, set_finalizer
from slopewise.adapters.kube.watches import make_watches, wait_for_watches
from slopewise.config.pass_settings import policy_of, with_interval
from slopewise.config.training_policy import TrainingPolicy, load_training_policy
from slopewise.errors import SlopewiseError, UsageError
from slopewise.loop import calm_garbage_collector
from slopewise.manager.finalization import Finalizations, NoFinalizations
from slopewise.manager.freezes import AlertHandler, counted
from slopewise.manager.leader import PolicyManager
from slopewise.manager.metrics import ClusterMetrics, of_freezes, of_moves, of_resizes, of_suspended, of_watches
from slopewise.manager.move_loop import finish_moves
from slopewise.manager.policy_runner import PolicyRunner
from slopewise.manager.shared import ClusterOptions, SharedState, checked, make_shared_state
from slopewise.model import acts
from slopewise.own_policies import catalogue
from slopewise.signals import StopSignal
from slopewise.telemetry.metrics import Instruments, configure_logging
from slopewise.tracking import OncePerChange

TICK_SECONDS = 0.5
STALLED_SECONDS = 60.0
"""Without a successful tick for so long the process hangs or fails, and the kubelet restarts it."""

STOP_SECONDS = 3.0
"""How long the end waits for a running pass; the kubelet kills after 30 s."""

REPEAT_SECONDS = 60.0


def run_cluster(options: ClusterOptions, stop: StopSignal, announce: Callable[[str], None]) -> int:
    """Run until a signal comes (0) or the lease is lost (1); with `once`, one pass of each policy (`run_once`)."""
    file_policy = policy_of_file(options)
    if options.alert_token_file is not None:
        alert_webhook.check_token_file(options.alert_token_file)
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
            return run_once(replica.shared, replica.elector, stop, announce)
        announce(f"/healthz, /readyz and /metrics on {options.host}:{replica.health.port}.")
        if options.alert_token_file is not None:
            announce(f"Alertmanager may call {alert_webhook.PATH} there.")
        return replica.run(stop)


def log_own_policies() -> None:
    """Load the user's policies, whose files are read once, and log which there are and which cannot be used."""
    log = structlog.get_logger("slopewise")
    for policy in catalogue.own():
        if isinstance(policy, catalogue.Unusable):
            log.warning("policy file rejected", name=policy.name, origin=policy.origin, reason=policy.mistake)
        else:
            log.info("policy file loaded", name=policy.name, origin=policy.origin)


def _warn_of_others(leaders: Mapping[str, str], announce: Callable[[str], None]) -> None:
    """Warn about other leaders, which do not see a policy that came as a file."""
    for namespace, holder in leaders.items():
        announce(
            f"Warning: {holder} leads in namespace {namespace}; if it manages the whole cluster, it restores what "
            "this controller changes, since it has no such policy; scale it to 0 replicas, or apply the policy."
        )


def policy_of_file(options: ClusterOptions) -> PolicyRecord | None:
    """The policy of --policy-file, as if it were the cluster's only one; UsageError where it is invalid."""
    if options.policy_file is None:
        if options.connection.namespace is not None:
            raise UsageError(
                "--namespace: TrainingPolicies belong to the whole cluster and are not read; add --policy-file FILE."
            )
        return None
    document = load_training_policy(options.policy_file)
    policy_of(with_interval(document, options.scrape_interval_seconds))
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
    """One process. Entering it starts everything but the passes; leaving it ends everything in reverse order."""

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
        self._reported = OncePerChange[str, str](REPEAT_SECONDS)
        self.watches = make_watches(
            api,
            options.connection.namespace,
            lambda old, new: self.leadership.trigger(old, new),
            lambda old, new: self.leadership.note_freeze(old, new),
        )
        metrics.follow(lambda: of_watches(self.watches.watches()))
        metrics.follow(lambda: of_resizes(self.watches.resizes.by_node()))
        self._api = api
        self._lost: str | None = None
        self.elector = self._make_elector(api)
        self.shared: SharedState = make_shared_state(
            options, api, self.watches, self.elector.may_write, instruments, metrics, file_policy
        )
        metrics.follow(lambda: of_moves(self.shared.gated_seconds(), self.shared.moving_seconds()))
        metrics.follow(lambda: of_suspended(self.shared.suspended_jobs.seconds()))
        if (freezes := self.watches.freezes) is not None:
            metrics.follow(lambda: of_freezes(counted(freezes.items(), self.shared.clock.now)))
        finalizations = (NoFinalizations if options.dry_run else Finalizations)(self.shared)
        self.leadership = PolicyManager(self.shared, finalizations)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._api.close)
            if not self._options.once:  # it has no probes, and the port may be a running controller's
                self.health = stack.enter_context(self._health_server())
            stack.callback(self.watches.stop)
            self.watches.start()
            # The lease is released last, so that no other replica writes while our last statuses are under way.
            stack.callback(lambda: self.elector.stop())
            stack.callback(self.shared.stop)
            self.shared.start()
            stack.callback(self.leadership.stop, STOP_SECONDS)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, stop: StopSignal) -> int:
        """Wait for the lease, lead, end at a signal or when the lease is lost."""
        self.elector.start()
        while not stop.wait(TICK_SECONDS):
            if self._lost is not None:
                self._log.error("lease lost", reason=self._lost)
                return 1
            self._tick_safely()
        self._log.info("stopping", signal=stop.name)
        return 0

    def is_alive(self) -> bool:
        """Whether this process ticks, and where it leads, whether its passes and moves advance.

        An API server or a Prometheus that is down is no reason for a restart, which would not help.
        """
        ticking = self._options.once or time.monotonic() - self._ticked_at < STALLED_SECONDS
        return ticking and self.leadership.is_alive()

    def _health_server(self) -> HealthServer:
        registry, options = self.shared.instruments.registry, self._options
        webhook = self._webhook()
        more = {} if webhook is None else {alert_webhook.PATH: webhook}
        return HealthServer(registry, self.is_alive, options.host, options.port, self.watches.waits_for, more)

    def _webhook(self) -> alert_webhook.AlertWebhook | None:
        """What Alertmanager calls; None without a token, and where Freezes may not be written."""
        token_file, freezes = self._options.alert_token_file, self.watches.freezes
        if token_file is None or freezes is None:
            return None
        handler = AlertHandler(self._api, freezes, self.shared.clock.now, self._metrics.on_alert)
        return alert_webhook.AlertWebhook(
            token_file, handler, self._metrics.on_alert_call, lambda error: self._log_once("webhook failed", str(error))
        )

    def _tick_safely(self) -> None:
        """An unexpected error is logged, and counts as no tick: if it persists, the process is restarted."""
        try:
            self._tick()
        except SlopewiseError as error:
            self._log_once("tick failed", str(error))
        except Exception as error:
            self._metrics.tick_failures.inc()
            self._log_once("tick failed", repr(error), error)
            return
        self._ticked_at = time.monotonic()

    def _tick(self) -> None:
        leads = self.elector.is_leader
        self._metrics.leader.set(leads and self.elector.holder is not None)
        if (waits_for := self.watches.waits_for()) is not None:
            self._log_once("not ready", waits_for)
            return
        if (silence := self.watches.trouble()) is not None:
            self._log_once("watches silent", silence)
        if leads:
            self.leadership.tick()
        elif (reason := self._standby_reason()) is not None:
            self._log_once("standing by", reason)

    def _standby_reason(self) -> str | None:
        """None in the first moments, before the holder is known."""
        if self.elector.failure is not None:
            return self.elector.failure
        holder = self.elector.holder
        return None if holder in (None, self._options.identity) else f"{holder} holds the lease"

    def _log_once(self, event: str, reason: str, error: Exception | None = None) -> None:
        """A warning when it is new, at most once a minute while it changes."""
        if self._reported.is_new(event, reason, time.monotonic()):
            self._log.warning(event, reason=reason, exc_info=error)

    def _make_elector(self, api: KubeApi) -> Elector:
        options = self._options
        return make_elector(
            api,
            options.connection,
            options.lease_namespace,
            options.identity,
            options.lease,
            kind=NoElection if options.dry_run else Elector,
            on_started_leading=lambda: self._log.info("leading", identity=options.identity),
            on_lost=self._note_lost,
        )

    def _note_lost(self, reason: str) -> None:
        self._lost = reason


MOVES_SECONDS = 120.0
"""How long the process waits for the end of moves that this pass has begun: a checkpoint, and a start."""

HELD_EXIT_CODE = 4
REFUSED_EXIT_CODE = FAILED_EXIT_CODE = 1


def run_once(shared: SharedState, elector: Elector, stop: StopSignal, announce: Callable[[str], None]) -> int:
    """0 when every policy had its pass; 4 when one could not observe, 1 when one is invalid or has failed.

    Changes are carried out, unless it is a dry run.
    """
    wait_for_watches(shared.watches, stop)
    take_lease(elector, shared.options.lease_namespace, stop)
    shared.watches.catch_up()
    policies = [record for record in shared.claims.policies() if not record.deleting]
    if not policies:
        announce("There is no TrainingPolicy; apply one, or name one with --policy-file.")
    codes = []
    for record in policies:
        if stop.number is not None:
            return stop.exit_code
        codes.append(_one(shared, record, announce))
    if not shared.options.dry_run and not finish_moves(shared, MOVES_SECONDS, stop.wait):
        announce("Moves are under way; another controller, or `slopewise sweep`, continues them.")
    return max(codes, default=0)


def _one(shared: SharedState, record: PolicyRecord, announce: Callable[[str], None]) -> int:
    """One policy's pass."""
    if record.document is None:
        announce(f"slopewise: {record.invalid}")
        return REFUSED_EXIT_CODE
    runner = _runner(shared, record, record.document)
    try:
        report = runner.one_pass()
        runner.publish(report)
    finally:
        runner.stop()
    if report.held is None:
        return 0
    return FAILED_EXIT_CODE if report.policy_failed else HELD_EXIT_CODE


def _runner(shared: SharedState, record: PolicyRecord, document: TrainingPolicy) -> PolicyRunner:
    """As in `manager/leader.py`: a policy that changes pods gets its finalizer first."""
    if not record.uid:
        return PolicyRunner(shared, record, document, None)
    if acts(document.spec.mode) and not shared.effects.is_held(record):
        set_finalizer(shared.api, record.name, wanted=True)
    return PolicyRunner(shared, record, document, PolicyDocument(record))
