"""One TrainingPolicy and its passes: plugs the ports of a cluster into `reconcile`, and gives back what is due.

`leading.py` makes one for each policy, and another one whenever the policy is changed. Before each pass resources are
given back that are no longer ours to keep: that needs no Prometheus, so it happens also when a pass cannot observe.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from controller.adapters.kube.actuator import KubeActuator
from controller.adapters.kube.memory import KubeMemory, OnlyStored
from controller.adapters.kube.observer import KubeObserver
from controller.adapters.kube.policies import PolicyDocument, PolicyRecord
from controller.adapters.kube.records import ManagedPod, PodRecord
from controller.adapters.kube.reporting import StatusReporter
from controller.adapters.local import DryRunActuator
from controller.adapters.memory_dictionary import DictionaryMemory
from controller.adapters.prometheus import PrometheusReader
from controller.adapters.queries import AnyOf
from controller.cluster.world import World
from controller.documents import pass_settings, policy_of
from controller.errors import ObservationError
from controller.loop import ControllerLoop
from controller.model import CpuAllocation, PassReport
from controller.ports import Actuator, Memory, Ports
from controller.reconcile import reconcile
from controller.restoring import GivenBack, due, give_back
from controller.settings import TrainingPolicy
from controller.telemetry import Telemetry

SCRAPES_PER_WINDOW = 4

LEAST_SECONDS_BETWEEN_EVENTS = 2.0
"""Of two events in this time the second one waits: a Job with 50 pods starts them within a second."""

MOST_CPU_RATIO = 0.05
"""Events may take at most this share of a core: a pass of 1 s is not repeated within 20 s because a pod started."""

TRY_AGAIN_SECONDS = 5.0
"""Between two tries to give back what could not be given back at once."""


class PolicyRunner:
    """The passes of one policy document. A changed document gets another runner; what is remembered is in the book."""

    def __init__(
        self, world: World, record: PolicyRecord, document: TrainingPolicy, status: PolicyDocument | None
    ) -> None:
        """`status`: of the TrainingPolicy; None where it came as a file."""
        self.record = record
        self.spec = document.spec
        self._world = world
        self._name = record.name
        self._policy = policy_of(document)
        self._settings = pass_settings(document)
        self._kept = None if world.options.dry_run else self._kube_memory(status)
        self.reporter = self._reporter(status)
        self.telemetry = Telemetry(
            control=self.spec.resources.control,
            interval_seconds=self.spec.behaviour.interval_seconds,
            document=self._name,
            instruments=world.instruments,
        )
        self._reader = self._prometheus()
        self.observer = self._observer()
        self._actuator = self._make_actuator()
        self._ports = Ports(self.observer, self._actuator, self._memory(), world.clock)
        self._sinks = [] if world.options.dry_run else [self.reporter]
        self.loop = ControllerLoop(self.one_pass, self.telemetry, self.spec.behaviour.interval_seconds, self._sinks)
        self._settled = True
        self._tried_at = float("-inf")
        self._log = structlog.get_logger("slopewise")

    def start(self) -> None:
        """Run the first pass now, further ones as they ask for."""
        self.loop.start()

    def stop(self) -> None:
        """No further pass; waits for the one that is under way. Every pod keeps what it has."""
        self.loop.stop()
        self._reader.close()

    def forget(self) -> None:
        """The policy is gone: its jobs are told no more."""
        self.telemetry.forget()

    def wake(self) -> bool:
        """Something happened to a pod: look again now. False: too soon after the last look, ask again later."""
        passes = max(1, self.loop.passes)
        spacing = max(LEAST_SECONDS_BETWEEN_EVENTS, self.loop.cpu_seconds / passes / MOST_CPU_RATIO)
        if self.loop.seconds_since_pass() < spacing:
            return False
        self.loop.wake()
        return True

    def tick(self) -> None:
        """Called about every second: try again what could not be given back."""
        if not self._settled and time.monotonic() - self._tried_at > TRY_AGAIN_SECONDS:
            self.loop.wake()

    def one_pass(self) -> PassReport:
        """Give back what is due, then one whole pass."""
        if self._kept is not None:
            self._give_back_due(self._kept)
        claims = self._world.claims.current()
        self.reporter.set_conflict(claims.conflicts.get(self._name))
        return reconcile(self._ports, self._policy, self._settings)

    def tell(self, report: PassReport) -> None:
        """What the loop does with each report, for a pass that was run without it."""
        self.telemetry.record(report)
        for sink in self._sinks:
            sink(report)

    def give_back_all(self) -> GivenBack:
        """Every original of this policy; what a deleted policy's finalizer waits for."""
        if self._kept is None:
            return GivenBack()
        given_back = give_back(self._kept, self._actuator)
        self._tell(given_back)
        return given_back

    def holds_originals(self) -> bool:
        """True while a pod has something else than it came with."""
        if self._kept is None:
            return False
        return any(known.original is not None for known in self._kept.load().jobs.values())

    def retire(self) -> None:
        """Delete the JobGrowths of this policy, whose pods nobody manages any more."""
        if self._kept is not None:
            self._kept.retire()

    def _give_back_due(self, memory: KubeMemory) -> None:
        try:
            uids = self._due(memory)
        except ObservationError:  # the pass that follows says so
            return
        self._tried_at = time.monotonic()
        if not uids:
            self._settled = True
            return
        given_back = give_back(memory, self._actuator, uids)
        self._settled = given_back.settled
        self._tell(given_back)
        # Not those whose pod is gone: a workload between two pods is still ours, and so is what is known of it.
        selected = self._selected_uids()
        memory.retire([uid for uid in given_back.restored if uid not in selected])

    def _due(self, memory: KubeMemory) -> list[str]:
        state = memory.load()
        if all(known.original is None for known in state.jobs.values()):
            return []
        if (waits_for := self._world.watches.waits_for()) is not None:
            raise ObservationError(waits_for)
        behaviour = self.spec.behaviour
        return due(state, self.spec.mode, behaviour.canary_ratio, self._selected_uids())

    def _selected_uids(self) -> frozenset[str]:
        """The jobs whose pods this policy manages now. One whose pod is being replaced is not among them."""
        resolution = self._world.owners.resolve(self._world.watches.pods.items())
        return frozenset(uid for uid, (_, pod) in resolution.pods.items() if self._manages(pod))

    def _manages(self, pod: PodRecord) -> bool:
        return self._world.claims.current().policy_of.get(pod.uid) == self._name

    def _tell(self, given_back: GivenBack) -> None:
        self._world.metrics.on_given_back(given_back)
        self.reporter.tell_restored(given_back)
        self._log.info(
            "original resources given back",
            policy=self._name,
            restored=len(given_back.restored),
            gone=len(given_back.gone),
            waiting=dict(given_back.waiting),
            failed={**given_back.failed, **given_back.impossible},
        )

    # --- the ports -------------------------------------------------------------------------------------------

    def _kube_memory(self, status: PolicyDocument | None) -> KubeMemory:
        on_nodes = status.remember if status is not None else lambda nodes: None
        return KubeMemory(
            self._name,
            self._world.book,
            _Late(lambda: self.observer),
            intervals=self.record.intervals,
            on_nodes=on_nodes,
        )

    def _memory(self) -> Memory:
        return DictionaryMemory() if self._kept is None else self._kept

    def _reporter(self, status: PolicyDocument | None) -> StatusReporter:
        return StatusReporter(
            self._name,
            self.spec,
            self._world.book,
            _Late(lambda: self.observer),
            self._world.events,
            document=status,
            policy_uid=self.record.uid,
            generation=self.record.generation,
        )

    def _prometheus(self) -> PrometheusReader:
        options = self._world.options
        namespace = options.connection.namespace
        return PrometheusReader(
            options.prometheus_url,
            {"pod": AnyOf()} if namespace is None else {"namespace": namespace},
            options.scrape_interval_seconds,
            [self.spec.evaluation],
            window_seconds=SCRAPES_PER_WINDOW * options.scrape_interval_seconds,
            resource_matchers={},
        )

    def _observer(self) -> KubeObserver:
        return KubeObserver(
            self._world.watches.stores,
            self._world.owners,
            self._reader,
            self._manages,
            self.spec,
            self._world.clock,
            self._original,
        )

    def _make_actuator(self) -> Actuator:
        if self._kept is None:
            return DryRunActuator()
        actuator = KubeActuator(
            self._world.api,
            self.observer,
            self.spec.resources,
            self._world.may_write,
            self._world.buckets,
            self._world.clock,
            self._original,
            self._world.watches.pods.observe,
        )
        return OnlyStored(actuator, self._kept)

    def _original(self, job_uid: str) -> CpuAllocation | None:
        return None if self._kept is None else self._kept.original(job_uid)


class _Late:
    """A Roster that is made a moment later: the observer asks the memory for originals, and the memory asks it."""

    def __init__(self, roster: Callable[[], KubeObserver]) -> None:
        self._roster = roster

    def find(self, job_uid: str) -> ManagedPod | None:
        """As the observer says."""
        return self._roster().find(job_uid)


def check_interval(document: TrainingPolicy, scrape_interval_seconds: float) -> str | None:
    """Why this policy cannot look as often as it wants to; None: it can."""
    interval, least = document.spec.behaviour.interval_seconds, SCRAPES_PER_WINDOW * scrape_interval_seconds
    if interval >= least:
        return None
    return (
        f"spec.behaviour.intervalSeconds: {interval:g} s is less than {SCRAPES_PER_WINDOW} scrapes of "
        f"{scrape_interval_seconds:g} s; write {least:g} or more, or scrape more often (--scrape-interval)"
    )
