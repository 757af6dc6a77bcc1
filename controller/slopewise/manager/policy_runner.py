"""Runs the passes of one TrainingPolicy: connects the ports of a cluster to `reconcile`, and restores what is due.

`manager/leader.py` makes one for each policy, and another one whenever the policy is changed. Restores run before each
pass. They need no Prometheus, so they happen also when a pass cannot observe.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from slopewise.adapters.kube.cache.records import PodRecord
from slopewise.adapters.kube.capacity import capacity_message
from slopewise.adapters.kube.moves.dispatch import KubeMover
from slopewise.adapters.kube.moves.movability_inputs import Moving
from slopewise.adapters.kube.observer import KubeNotes, KubeObserver
from slopewise.adapters.kube.reporting.pass_reporter import StatusReporter
from slopewise.adapters.kube.resize.actuator import KubeActuator
from slopewise.adapters.kube.resize.target import left_by_other_control
from slopewise.adapters.kube.state.job_memory import ORIGINALS_A_PASS
from slopewise.adapters.kube.state.training_policies import Claims, PolicyDocument, PolicyRecord
from slopewise.adapters.kube.workloads.job_facts import trainer_under
from slopewise.adapters.kube.workloads.owners import WatchedJobIndex
from slopewise.adapters.pauses import RESTORE
from slopewise.adapters.prometheus.queries import AnyOf
from slopewise.adapters.prometheus.reader import PrometheusReader
from slopewise.config.pass_settings import pass_settings, points_seconds, policy_of, reading_seconds
from slopewise.config.training_policy import TrainingPolicy
from slopewise.crds.policy_status import OtherResizers
from slopewise.errors import ObservationError
from slopewise.estimators.growth import SCRAPES_PER_WINDOW
from slopewise.feedback.restore import Outage, RestoreReport, due, restore_originals
from slopewise.loop import ControllerLoop
from slopewise.manager.departures import Departures
from slopewise.manager.finalization import RestoreReporter
from slopewise.manager.shared import SharedState
from slopewise.model import MemoryState, PassReport, acts
from slopewise.ports import Actuator, Ports
from slopewise.reconcile import reconcile
from slopewise.telemetry.metrics import Telemetry

MIN_SECONDS_BETWEEN_EVENTS = 2.0
"""The second of two triggers within this time waits: a Job with 50 pods starts them within a second."""

MAX_CPU_RATIO = 0.05
"""Triggered passes may take at most this share of a core: a pass of 1 s is not repeated within 20 s because a pod
started."""

_FEW_NAMES = 3

CONFIRM_SECONDS = 1.0
"""The first check whether an accepted restore is in effect."""

MIN_LIVENESS_SECONDS = 60.0
"""A pass whose queries all time out takes some 20 s, and ends then."""


class PolicyRunner:
    """The passes of one policy document. A changed document gets another runner; memory is in the JobGrowths."""

    def __init__(
        self, shared: SharedState, record: PolicyRecord, document: TrainingPolicy, status: PolicyDocument | None
    ) -> None:
        """`status`: of the TrainingPolicy; None where it came as a file."""
        self.record = record
        self.spec = document.spec
        self.trouble: str | None = None
        """What keeps the policy from being applied in full, set by its manager; reported with each pass."""
        self._shared = shared
        self._name = record.name
        self._policy = policy_of(document)
        self._settings = replace(pass_settings(document), first_changes_a_pass=ORIGINALS_A_PASS)
        self._claims = Claims()
        pods, changed = shared.watches.pods, shared.job_growths.changed_container
        self._index = WatchedJobIndex(pods, shared.owners, trainer_under(self.spec), changed)
        self._memory = shared.effects.memory(record, self._index, status)
        self._reporter = self._make_reporter(status)
        self._telemetry = Telemetry(
            control=self.spec.resources.control,
            interval_seconds=self.spec.behaviour.evaluation_seconds,
            document=self._name,
            instruments=shared.instruments,
            moving=self._settings.bounds.moving,
        )
        self._restore_reporter = RestoreReporter(self._name, shared.metrics, self._reporter, self._name_of)
        self._reader = self._prometheus()
        self._observer = self._make_observer()
        self._notes = KubeNotes()
        """Of the last pass that observed."""
        self._actuator = self._make_actuator()
        self._ports = Ports(self._observer, self._actuator, self._memory, shared.clock)
        annotated = () if shared.annotations is None else (shared.annotations.sink(self._name),)
        self._sinks = shared.effects.sinks(self._reporter, self._make_departures(), *annotated)
        recorded = self._shared.options.record
        self._recorder = None if recorded is None else recorded.recorder(document, ORIGINALS_A_PASS)
        if self._recorder is not None:
            self._ports = self._recorder.ports(self._ports)
            self._sinks.append(self._recorder)
        self.loop = ControllerLoop(
            self._pass_while_valid, self._telemetry, self.spec.behaviour.evaluation_seconds, self._sinks
        )
        self._outage = Outage(self.spec.behaviour.evaluation_seconds, shared.clock.now(), restores=acts(self.spec.mode))
        self._triggered = threading.Event()
        self._resized: deque[str] = deque()
        """Uids of pods whose CPU has changed since it was last shown."""
        self._retry: Retry | None = None
        self._other_control = True
        """Pods may have CPU of the other `spec.resources.control`: until a pass finds none."""

    def start(self) -> None:
        """Run the first pass now, further ones as they are due."""
        self.loop.start()

    def stop(self, timeout_seconds: float = 0.0) -> bool:
        """No further pass; True once none is under way. Every pod keeps its CPU. May be called again."""
        if not self.loop.stop(timeout_seconds):
            return False
        self._reader.close()
        if self._recorder is not None:
            self._recorder.close()
        return True

    def forget(self) -> None:
        """Remove the metrics of its jobs."""
        self._telemetry.forget()
        self._restore_reporter.forget()

    def is_alive(self) -> bool:
        """False when passes no longer end. A short interval does not cause a restart over one slow answer."""
        return self.loop.is_alive() or self.loop.seconds_since_pass() < MIN_LIVENESS_SECONDS

    def trigger(self) -> None:
        """Request an early pass after a change of a pod. Called from any thread."""
        self._triggered.set()

    def note_cpu(self, pod_uid: str) -> None:
        """The CPU of one of its pods has changed, or its kubelet has reported it. Called from any thread."""
        self._resized.append(pod_uid)

    def tick(self) -> None:
        """Called about twice a second: start an early pass if one is due and the last one is not just over."""
        self._refresh()
        if self._triggered.is_set() and self._may_check_again():
            self._triggered.clear()
            self.loop.trigger()
        elif self._retry is not None and self._retry.is_due():
            self.loop.trigger()

    def _refresh(self) -> None:
        """Show CPU that kubelets have reported since, unless a pass is about to do so."""
        if not self._resized or self.loop.busy:
            return
        changed = {self._resized.popleft() for _ in range(len(self._resized))}
        self._reporter.refresh(self._observer.workloads_of(changed), self._observer.with_cpu)

    def _may_check_again(self) -> bool:
        passes = max(1, self.loop.passes)
        spacing = max(MIN_SECONDS_BETWEEN_EVENTS, self.loop.cpu_seconds / passes / MAX_CPU_RATIO)
        return not self.loop.busy and self.loop.seconds_since_pass() >= spacing

    def _pass_while_valid(self) -> PassReport | None:
        """None once the policy is invalid or being deleted, until its manager stops this runner.

        Such a policy manages no pods: a pass would take all of its own for released, and restore them.
        """
        claims = self._shared.claims.current()
        return self._pass(claims) if self._name in claims.policies else None

    def one_pass(self) -> PassReport:
        """Restore what is due, then run one whole pass."""
        return self._pass(self._shared.claims.current())

    def _pass(self, claims: Claims) -> PassReport:
        self._claims = claims
        self._restore_due()
        self._reporter.set_conflict(self._claims.conflicts.get(self._name))
        self._reporter.set_others(self._others())
        self._reporter.set_capacity(capacity_message(self._notes.capacities))
        trouble = self.trouble or self._shared.trouble(self._name) or self._left_out() or self._kubelets_behind()
        self._reporter.set_degraded(trouble)
        lasted = self._outage.lasts
        report = self._outage.note(reconcile(self._ports, self._policy, self._settings))
        if isinstance(report.notes, KubeNotes):
            self._notes = report.notes
        self._telemetry.record_outage(lasts=self._outage.lasts)
        if self._outage.lasts and not lasted:
            self._reporter.emit_outage(report.held or "")
            self._restore_due()
        self._shared.gates.after_pass(report)
        return report

    def publish(self, report: PassReport) -> None:
        """Pass a report to all sinks, as the loop does, for a pass without it."""
        self._telemetry.record(report)
        for sink in self._sinks:
            sink(report)

    def holds_originals(self) -> bool:
        """True while a pod lacks its original resources; ObservationError while that is unknown."""
        return self._memory.holds_originals()

    # --- giving back -----------------------------------------------------------------------------------------

    def _restore_due(self) -> None:
        try:
            if self._retry is None and not self.holds_originals():
                return  # so it is for most policies and passes; whose pods are whose takes longer to find out
            selected = self._selected_uids()
            state = self._memory.load()
        except ObservationError:  # the next pass reports it
            return
        behaviour = self.spec.behaviour
        kept = (frozenset() if self._outage.lasts else selected) - self._notes.given_up
        if self._other_control:
            left = frozenset(self._left_by_other_control(state, selected))
            self._other_control, kept = bool(left), kept - left
        kept -= self._shared.freezes.to_recommend(self._name, state.jobs, self._index.find)
        uids = due(state, self.spec.mode, behaviour.canary_ratio, kept)
        if not uids and self._retry is None:
            return
        given_back = restore_originals(self._memory, self._actuator, uids)
        self._restore_reporter.report(given_back)
        self._retry = None if given_back.settled else Retry.after(self._retry, given_back)
        # Not those whose pod is gone: a workload between two pods is still ours, and so is what is known of it.
        self._memory.retire([uid for uid in given_back.restored if uid not in selected])

    def _left_by_other_control(self, state: MemoryState, uids: Iterable[str]) -> Iterator[str]:
        """The jobs whose pods were changed under the other `spec.resources.control`, and have that CPU still."""
        for uid in uids:
            known, managed = state.jobs.get(uid), self._index.find(uid)
            if known is None or known.original is None or managed is None:
                continue
            if left_by_other_control(managed, known.original, self.spec.resources):
                yield uid

    def _selected_uids(self) -> frozenset[str]:
        """The jobs whose pods this policy manages now. One whose pod is being replaced is not among them."""
        if (waits_for := self._shared.watches.waits_for()) is not None:
            raise ObservationError(waits_for)
        resolution = self._shared.owners.resolve(self._shared.watches.pods.items())
        return frozenset(uid for uid, (_, pod) in resolution.pods.items() if self._manages(pod))

    def _manages(self, pod: PodRecord) -> bool:
        """As of the beginning of the pass: the assignment of pods does not change during one."""
        return self._claims.policy_of.get(pod.uid) == self._name

    def _left_out(self) -> str | None:
        """A message about pods without enough facts; from the last pass."""
        left_out = self._notes.left_out
        if not left_out:
            return None
        name, reason = next(iter(left_out.items()))
        pods = "1 pod is" if len(left_out) == 1 else f"{len(left_out)} pods are"
        return f"{pods} left out; {name}: {reason}"

    def _others(self) -> OtherResizers | None:
        """Who else resizes pods of this policy; from the last pass."""
        found = self._notes.resized_by_others
        if not found:
            return None
        return OtherResizers(len(found), tuple(found)[:_FEW_NAMES], ", ".join(sorted(set(found.values()))[:_FEW_NAMES]))

    def _kubelets_behind(self) -> str | None:
        """A message about nodes whose kubelets do not carry out accepted resizes; from the last pass."""
        behind = Counter(self._notes.behind)
        if not behind:
            return None
        nodes = ", ".join(f"{node} ({pods} {'pod' if pods == 1 else 'pods'})" for node, pods in sorted(behind.items()))
        return f"accepted CPU is not in effect on {nodes}; see whether the kubelet runs there"

    def _name_of(self, job_uid: str) -> str:
        managed = self._index.find(job_uid)
        return job_uid if managed is None else f"{managed.pod.namespace}/{managed.pod.name}"

    # --- the ports -------------------------------------------------------------------------------------------

    def _make_reporter(self, status: PolicyDocument | None) -> StatusReporter:
        return StatusReporter(
            self._name,
            self.spec,
            self._shared.job_growths,
            self._index,
            self._shared.events,
            document=status,
            policy_uid=self.record.uid,
            generation=self.record.generation,
        )

    def _prometheus(self) -> PrometheusReader:
        options = self._shared.options
        namespace = options.connection.namespace
        return PrometheusReader(
            options.prometheus,
            {"pod": AnyOf()} if namespace is None else {"namespace": namespace},
            options.scrape_interval_seconds,
            [self.spec.evaluation],
            window_seconds=SCRAPES_PER_WINDOW * options.scrape_interval_seconds,
            timeout_seconds=reading_seconds(self.spec.behaviour.evaluation_seconds),
            resource_matchers={},
            responses=[self.spec.responses],
            points_seconds=points_seconds(self.spec),
            on_query=self._telemetry.record_query,
            on_left_out=self._telemetry.record_left_out,
        )

    def _make_observer(self) -> KubeObserver:
        return KubeObserver(
            self._shared.watches.stores,
            self._shared.owners,
            self._index,
            self._reader,
            self._manages,
            self.spec,
            self._shared.clock,
            self._memory.original,
            Moving(
                self._shared.api,
                self._shared.moves_under_way,
                is_ours=self._memory.remembers,
                made=self._memory.moves_made,
                remembered=self._memory.remembered,
                backoff=self._shared.move_backoff.reason,
            ),
            self._shared.watches.resizes.waited_seconds,
            self._memory.original_memory,
            lambda: self._shared.freezes.of(self._name),
        )

    def _make_actuator(self) -> Actuator:
        shared = self._shared
        mover = KubeMover(
            self._name, self._index, self._observer.movability,
            shared.gates.place, shared.job_moves.begin, shared.evictions.begin, shared.job_stops.stop,
        )  # fmt: skip
        actuator = KubeActuator(
            shared.api,
            self._index,
            self.spec.resources,
            shared.rate_limiter.take,
            shared.clock,
            self._memory.stored_original,
            shared.watches.pods.observe,
            mover.begin,
            shared.watches.resizes.waited_seconds,
            lambda: shared.freezes.before_write(self._name),
        )
        return shared.effects.actuator(actuator)

    def _make_departures(self) -> Departures:
        return Departures(
            self._name,
            self.spec.resources.control,
            self._shared.job_growths,
            self._index,
            lambda pod: pod.uid in self._claims.policy_of,
            self._shared.clock,
        )


@dataclass(frozen=True, slots=True)
class Retry:
    """When a pending restore is tried again: after 5, 10, 20, … s, because each try is a whole pass.

    Whether a kubelet has carried out an accepted one is checked sooner: most do within a second.
    """

    pause_seconds: float
    at: float

    @classmethod
    def after(cls, last: Retry | None, given_back: RestoreReport) -> Retry:
        """After a try that restored something, the next pause is the first one again."""
        if last is None or given_back.restored:
            pause = CONFIRM_SECONDS if given_back.accepted else RESTORE.first_seconds
        else:
            pause = min(2 * last.pause_seconds, RESTORE.most_seconds)
        return cls(pause, time.monotonic() + pause)

    def is_due(self) -> bool:
        """True from that moment on."""
        return time.monotonic() >= self.at
