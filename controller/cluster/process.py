"""`slopewise run` in a cluster: one replica of the controller, from its start to its orderly end.

Order of things: the endpoint for probes and metrics, the watches, then the lease. Only the replica that holds it has
`leading.py` at work; the others keep their watches warm. One that loses the lease ends with status 1 and is started
again by the kubelet: what it was about to do was decided under a lease that is no more.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

import structlog

from controller.adapters.health import HealthServer
from controller.adapters.kube.api import KubeApi
from controller.adapters.kube.election import Elector, Terms
from controller.adapters.kube.policies import PolicyRecord
from controller.cluster.leading import Leadership
from controller.cluster.metrics import ClusterMetrics
from controller.cluster.once import run_once
from controller.cluster.options import ClusterOptions
from controller.cluster.watches import make_watches
from controller.cluster.world import World, make_world
from controller.errors import SlopewiseError, UsageError
from controller.loop import calm_garbage_collector
from controller.settings import load_training_policy
from controller.telemetry import Instruments, configure_logging

LEASE_NAME = "slopewise-controller"

TICK_SECONDS = 0.5
STALLED_SECONDS = 60.0
"""Without a tick for so long this thread hangs, and the kubelet is to start us again."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_cluster(options: ClusterOptions, announce: Callable[[str], None]) -> int:
    """Run until a signal comes (0) or the lease is lost (1); with `once`, one pass of each policy (0, 4 if held)."""
    file_policy = _file_policy(options)
    configure_logging(as_json=options.json_logs)
    calm_garbage_collector()
    instruments = Instruments()
    metrics = ClusterMetrics(instruments.registry)
    api = KubeApi.connect(
        kubeconfig=None if options.connection.kubeconfig is None else str(options.connection.kubeconfig),
        context=options.connection.context,
        timeout_seconds=options.connection.timeout_seconds,
        on_request=metrics.on_request,
    )
    announce(f"API server: {api.host}; Prometheus: {options.prometheus_url}.")
    with Replica(options, api, instruments, metrics, file_policy) as replica:
        if options.once:
            return run_once(replica.world, replica.elector, announce)
        announce(f"/healthz, /readyz and /metrics on {options.host}:{replica.health.port}.")
        return replica.run()


def _file_policy(options: ClusterOptions) -> PolicyRecord | None:
    """The policy of --policy-file, as if it were the cluster's only one."""
    if options.policy_file is None:
        if options.connection.namespace is not None:
            raise UsageError(
                "slopewise run --namespace: TrainingPolicies belong to the whole cluster and are not read; "
                "add --policy-file FILE."
            )
        return None
    document = load_training_policy(options.policy_file)
    return PolicyRecord(
        uid="",
        name=document.metadata.name,
        resource_version="",
        generation=1,
        created_at_seconds=0.0,
        document=document,
        invalid=None,
    )


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
        self._stopping = threading.Event()
        self._ticked_at = time.monotonic()
        self._log = structlog.get_logger("slopewise")
        self.watches = make_watches(api, options.connection.namespace, lambda old, new: self.leadership.stir(old, new))
        metrics.follow_watches(self.watches.watches)
        self._api = api
        self._lost: str | None = None
        self.elector = self._make_elector(api)
        may_write = (lambda: False) if options.dry_run else self.elector.may_write
        self.world: World = make_world(options, api, self.watches, may_write, instruments, metrics, file_policy)
        self.leadership = Leadership(self.world)

    def __enter__(self) -> Replica:
        with ExitStack() as stack:
            stack.callback(self._api.close)
            self.health = stack.enter_context(
                HealthServer(
                    self.world.instruments.registry,
                    self.is_alive,
                    self._options.host,
                    self._options.port,
                    self.watches.waits_for,
                )
            )
            stack.callback(self.watches.stop)
            self.watches.start()
            # The lease is handed back last: nobody else writes while our last statuses are still under way.
            stack.callback(self._stop_elector)
            stack.callback(self.world.stop)
            self.world.start()
            stack.callback(self.leadership.stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self) -> int:
        """Wait for the lease, lead, end at a signal or when the lease is lost."""
        with self._signals():
            if not self._options.dry_run:
                self.elector.start()
            while not self._stopping.wait(TICK_SECONDS):
                self._ticked_at = time.monotonic()
                if self._lost is not None:
                    self._log.error("lease lost", reason=self._lost)
                    return 1
                self._tick()
        self._log.info("stopped")
        return 0

    def is_alive(self) -> bool:
        """Whether this process does what it is for: ticks, and passes where it leads."""
        ticking = self._options.once or time.monotonic() - self._ticked_at < STALLED_SECONDS
        return ticking and self.leadership.is_alive()

    def _tick(self) -> None:
        leads = self._options.dry_run or self.elector.is_leader
        self._metrics.leader.set(leads and not self._options.dry_run)
        if leads and self.watches.waits_for() is None:
            try:
                self.leadership.tick()
            except SlopewiseError as error:  # said, and tried again at the next tick
                self._log.error("tick failed", reason=str(error))

    def _make_elector(self, api: KubeApi) -> Elector:
        lease = self._options.lease
        terms = Terms(lease.lease_seconds, lease.renew_deadline_seconds, lease.retry_seconds)
        # A renewal that hangs must end while there is time for another one.
        patient = api.with_timeout(min(self._options.connection.timeout_seconds, terms.renew_deadline_seconds / 3))
        return Elector(
            patient,
            self._options.lease_namespace,
            LEASE_NAME,
            self._options.identity,
            terms=terms,
            on_started_leading=lambda: self._log.info("leading", identity=self._options.identity),
            on_lost=self._note_lost,
        )

    def _note_lost(self, reason: str) -> None:
        self._lost = reason

    def _stop_elector(self) -> None:
        if not self._options.dry_run:
            self.elector.stop()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first signal ends the loop in an orderly way; nothing is interrupted in the middle of a write."""

        def on_signal(number: int, _frame: FrameType | None) -> None:
            self._log.info("stopping", signal=signal.Signals(number).name)
            self._stopping.set()

        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, on_signal)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
