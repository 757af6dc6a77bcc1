"""One TrainingPolicy and its passes: plugs the ports of a cluster into `reconcile`, and gives back what is due.

`leading.py` makes one for each policy, and another one whenever the policy is changed. Before each pass resources are
given back that are no longer ours to keep: that needs no Prometheus, so it happens also when a pass cannot observe.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from controller.adapters.kube.actuator import KubeActuator, ResizeContext
from controller.adapters.kube.memory import ORIGINALS_A_PASS, KubeMemory, OnlyStored
from controller.adapters.kube.mobilities import Moving
from controller.adapters.kube.mover import KubeMover, Ways
from controller.adapters.kube.namespace_limits import LimitKind
from controller.adapters.kube.observer import KubeObserver
from controller.adapters.kube.policies import Claims, PolicyDocument, PolicyRecord
from controller.adapters.kube.records import ManagedPod, PodRecord
from controller.adapters.kube.reporting import StatusReporter
from controller.adapters.kube.unwatched import UnwatchedPods
from controller.adapters.local import DryRunActuator
from controller.adapters.prometheus import PrometheusReader
from controller.adapters.queries import AnyOf
from controller.cluster.departures import Departures
from controller.cluster.undoing import Announcer
from controller.cluster.world import World
from controller.documents import pass_settings, policy_of
from controller.errors import ObservationError
from controller.growth import SCRAPES_PER_WINDOW
from controller.loop import ControllerLoop, Sink
from controller.memory_dictionary import DictionaryMemory
from controller.model import CpuAllocation, PassReport
from controller.policy_status import OtherResizers
from controller.ports import Actuator, Memory, Ports
from controller.reconcile import reconcile
from controller.restoring import GivenBack, due, give_back
from controller.settings import TrainingPolicy
from controller.telemetry import Telemetry

LEAST_SECONDS_BETWEEN_EVENTS = 2.0
"""Of two events in this time the second one waits: a Job with 50 pods starts them within a second."""

MOST_CPU_RATIO = 0.05
"""Events may take at most this share of a core: a pass of 1 s is not repeated within 20 s because a pod started."""

_FEW_NAMES = 3

SHORTEST_READING_SECONDS, LONGEST_READING_SECONDS = 5.0, 15.0

CONFIRM_SECONDS = 1.0
TRY_AGAIN_SECONDS = 5.0
MOST_TRY_AGAIN_SECONDS = 80.0
"""Between two tries to give back what could not be given back at once; each one that was in vain doubles it. The first
look at whether what was accepted is in effect comes sooner."""

LEAST_LIVENESS_SECONDS = 60.0
"""A pass whose questions all time out takes some 20 s, and is over then."""


class PolicyRunner:
    """The passes of one policy document. A changed document gets another runner; what is remembered is in the book."""

    def __init__(
        self, world: World, record: PolicyRecord, document: TrainingPolicy, status: PolicyDocument | None
    ) -> None:
        """`status`: of the TrainingPolicy; None where it came as a file."""
        self.record = record
        self.spec = document.spec
        self.trouble: str | None = None
        """What keeps the policy from being obeyed in full, as far as whoever runs it knows; told with each pass."""
        self._world = world
        self._name = record.name
        self._policy = policy_of(document)
        self._settings = replace(pass_settings(document), first_changes_a_pass=ORIGINALS_A_PASS)
        self._claims = Claims()
        self._kept = None if world.options.dry_run else self._kube_memory(status)
        self._unwatched = UnwatchedPods(world.impatient, world.book).find
        self._reporter = self._make_reporter(status)
        self._telemetry = Telemetry(
            control=self.spec.resources.control,
            interval_seconds=self.spec.behaviour.interval_seconds,
            document=self._name,
            instruments=world.instruments,
        )
        self._announcer = Announcer(self._name, world.metrics, self._reporter, self._name_of)
        self._reader = self._prometheus()
        self._observer = self._make_observer()
        self._waits_for: Callable[[LimitKind, str], bool] = lambda *_: False
        self._actuator = self._make_actuator()
        self._ports = Ports(self._observer, self._actuator, self._memory(), world.clock)
        self._sinks: list[Sink] = [] if world.options.dry_run else [self._reporter, self._make_departures()]
        self.loop = ControllerLoop(self.one_pass, self._telemetry, self.spec.behaviour.interval_seconds, self._sinks)
        self._stirred = threading.Event()
        self._resized: deque[str] = deque()
        """Uids of pods whose CPU has changed since it was last shown."""
        self._retry: Retry | None = None

    def start(self) -> None:
        """Run the first pass now, further ones as they ask for."""
        self.loop.start()

    def stop(self, patience_seconds: float = 0.0) -> bool:
        """No further pass; True once none is under way. Every pod keeps what it has. May be called again."""
        if not self.loop.stop(patience_seconds):
            return False
        self._reader.close()
        return True

    def forget(self) -> None:
        """The policy is obeyed no more: its jobs are told no more."""
        self._telemetry.forget()
        self._announcer.forget()

    def is_alive(self) -> bool:
        """False when passes no longer end. A short interval is no reason to restart over one slow answer."""
        return self.loop.is_alive() or self.loop.seconds_since_pass() < LEAST_LIVENESS_SECONDS

    def stir(self) -> None:
        """Something happened to one of its pods. Called from any thread."""
        self._stirred.set()

    def note_limit(self, kind: LimitKind, namespace: str) -> None:
        """A LimitRange or ResourceQuota has changed: ask again soon for what it refused. Called from any thread."""
        if self._waits_for(kind, namespace):
            self.stir()

    def note_cpu(self, pod_uid: str) -> None:
        """The CPU of one of its pods has changed, or its kubelet has reported it. Called from any thread."""
        self._resized.append(pod_uid)

    def tick(self) -> None:
        """Called about twice a second: look again now if there is a reason to, and the last look is not just over."""
        self._refresh()
        if self._stirred.is_set() and self._may_look_again():
            self._stirred.clear()
            self.loop.wake()
        elif self._retry is not None and self._retry.is_due():
            self.loop.wake()

    def _refresh(self) -> None:
        """Show what kubelets have reported since, unless a pass is about to do so."""
        if not self._resized or self.loop.busy or self._world.options.dry_run:
            return
        changed = {self._resized.popleft() for _ in range(len(self._resized))}
        self._reporter.refresh(self._observer.workloads_of(changed), self._observer.with_cpu)

    def _may_look_again(self) -> bool:
        passes = max(1, self.loop.passes)
        spacing = max(LEAST_SECONDS_BETWEEN_EVENTS, self.loop.cpu_seconds / passes / MOST_CPU_RATIO)
        return not self.loop.busy and self.loop.seconds_since_pass() >= spacing

    def one_pass(self) -> PassReport:
        """Give back what is due, then one whole pass."""
        self._claims = self._world.claims.current()
        if self._kept is not None:
            self._give_back_due(self._kept)
        self._reporter.set_conflict(self._claims.conflicts.get(self._name))
        self._reporter.set_others(self._others())
        trouble = self.trouble or self._world.trouble(self._name) or self._left_out() or self._kubelets_behind()
        self._reporter.set_degraded(trouble)
        report = reconcile(self._ports, self._policy, self._settings)
        self._world.gates.after_pass(report)
        return report

    def tell(self, report: PassReport) -> None:
        """What the loop does with each report, for a pass that was run without it."""
        self._telemetry.record(report)
        for sink in self._sinks:
            sink(report)

    def holds_originals(self) -> bool:
        """True while a pod has something else than it came with; ObservationError while that is not known.

        Asked of the book: a pass may be under way, and loading the memory begins a new one.
        """
        if self._kept is None:
            return False
        self._world.book.refresh()
        return self._world.book.holds_originals(self._name)

    # --- giving back -----------------------------------------------------------------------------------------

    def _give_back_due(self, memory: KubeMemory) -> None:
        try:
            if self._retry is None and not self.holds_originals():
                return  # so it is for most policies and passes; whose pods are whose takes longer to find out
            selected = self._selected_uids()
            state = memory.load()
        except ObservationError:  # the pass that follows says so
            return
        behaviour = self.spec.behaviour
        uids = due(state, self.spec.mode, behaviour.canary_ratio, selected - self._observer.autoscaled)
        if not uids and self._retry is None:
            return
        given_back = give_back(memory, self._actuator, uids)
        self._announcer.tell(given_back)
        self._retry = None if given_back.settled else Retry.after(self._retry, given_back)
        # Not those whose pod is gone: a workload between two pods is still ours, and so is what is known of it.
        memory.retire([uid for uid in given_back.restored if uid not in selected])

    def _selected_uids(self) -> frozenset[str]:
        """The jobs whose pods this policy manages now. One whose pod is being replaced is not among them."""
        if (waits_for := self._world.watches.waits_for()) is not None:
            raise ObservationError(waits_for)
        resolution = self._world.owners.resolve(self._world.watches.pods.items())
        return frozenset(uid for uid, (_, pod) in resolution.pods.items() if self._manages(pod))

    def _manages(self, pod: PodRecord) -> bool:
        """As of the beginning of the pass: which policy has a pod does not change in the middle of one."""
        return self._claims.policy_of.get(pod.uid) == self._name

    def _left_out(self) -> str | None:
        """Pods of which too little is known, in words; from the pass before."""
        left_out = self._observer.left_out
        if not left_out:
            return None
        name, why = next(iter(left_out.items()))
        return f"{len(left_out)} pods are left out; {name}: {why}"

    def _others(self) -> OtherResizers | None:
        """Who else resizes pods of this policy; from the pass before."""
        found = self._observer.resized_by_others
        if not found:
            return None
        return OtherResizers(len(found), tuple(found)[:_FEW_NAMES], ", ".join(sorted(set(found.values()))[:_FEW_NAMES]))

    def _kubelets_behind(self) -> str | None:
        """Nodes whose kubelets do not carry out what was accepted, in words; from the pass before."""
        behind = Counter(self._observer.behind)
        if not behind:
            return None
        nodes = ", ".join(f"{node} ({pods} {'pod' if pods == 1 else 'pods'})" for node, pods in sorted(behind.items()))
        return f"accepted CPU is not in effect on {nodes}; see whether the kubelet runs there"

    def _name_of(self, job_uid: str) -> str:
        managed = self._observer.find(job_uid)
        return job_uid if managed is None else f"{managed.pod.namespace}/{managed.pod.name}"

    # --- the ports -------------------------------------------------------------------------------------------

    def _kube_memory(self, status: PolicyDocument | None) -> KubeMemory:
        on_nodes = status.remember if status is not None else lambda nodes: None
        return KubeMemory(
            self._name,
            self._world.book,
            _Late(lambda: self._observer),
            intervals=self.record.intervals,
            on_nodes=on_nodes,
        )

    def _memory(self) -> Memory:
        return DictionaryMemory() if self._kept is None else self._kept

    def _make_reporter(self, status: PolicyDocument | None) -> StatusReporter:
        return StatusReporter(
            self._name,
            self.spec,
            self._world.book,
            _Late(lambda: self._observer),
            self._world.events,
            document=status,
            policy_uid=self.record.uid,
            generation=self.record.generation,
        )

    def _prometheus(self) -> PrometheusReader:
        options = self._world.options
        namespace = options.connection.namespace
        return PrometheusReader(
            options.prometheus,
            {"pod": AnyOf()} if namespace is None else {"namespace": namespace},
            options.scrape_interval_seconds,
            [self.spec.evaluation],
            window_seconds=SCRAPES_PER_WINDOW * options.scrape_interval_seconds,
            timeout_seconds=reading_seconds(self.spec.behaviour.interval_seconds),
            resource_matchers={},
        )

    def _make_observer(self) -> KubeObserver:
        return KubeObserver(
            self._world.watches.stores,
            self._world.owners,
            self._reader,
            self._manages,
            self.spec,
            self._world.clock,
            self._original,
            Moving(
                self._world.api,
                self._world.moves_under_way,
                is_ours=lambda uid: self._kept is not None and self._kept.remembers(uid),
                made=lambda uid: 0 if self._kept is None else self._kept.moves_made(uid),
                remembered=lambda: () if self._kept is None else self._kept.remembered(),
                backoff=self._world.move_backoff.reason,
            ),
            self._world.watches.resizes.waited_seconds,
        )

    def _make_actuator(self) -> Actuator:
        if self._kept is None:
            return DryRunActuator()
        actuator = KubeActuator(
            self._world.api,
            self._observer,
            self.spec.resources,
            self._world.may_write,
            self._world.buckets,
            self._world.clock,
            self._original,
            self._world.watches.pods.observe,
            self._make_mover().move,
            ResizeContext(
                self._world.watches.resizes.waited_seconds, self._world.watches.limits.changes, self._unwatched
            ),
        )
        self._waits_for = actuator.waits_for
        return OnlyStored(actuator, self._kept)

    def _make_departures(self) -> Departures:
        return Departures(
            self._name,
            self.spec.resources.control,
            self._world.book,
            _Late(lambda: self._observer),
            self._unwatched,
            lambda pod: pod.uid in self._claims.policy_of,
            self._world.clock,
        )

    def _make_mover(self) -> KubeMover:
        world = self._world
        ways = Ways(place=world.gates.place, suspend=world.job_moves.begin, evict=world.evictions.begin)
        return KubeMover(self._name, self._observer, self._observer.mobility, ways, world.may_write)

    def _original(self, job_uid: str) -> CpuAllocation | None:
        return None if self._kept is None else self._kept.original(job_uid)


class _Late:
    """A Roster that is made a moment later: the observer asks the memory for originals, and the memory asks it."""

    def __init__(self, roster: Callable[[], KubeObserver]) -> None:
        self._roster = roster

    def find(self, job_uid: str) -> ManagedPod | None:
        """As the observer says."""
        return self._roster().find(job_uid)


@dataclass(frozen=True, slots=True)
class Retry:
    """When what could not be given back is tried again: after 5, 10, 20, … s, because each try is a whole pass.

    Whether a kubelet has carried out what was accepted is looked at sooner: most do within a second.
    """

    pause_seconds: float
    at: float

    @classmethod
    def after(cls, last: Retry | None, given_back: GivenBack) -> Retry:
        """After a try that gave something back, the next one need not wait longer than the first."""
        if last is None or given_back.restored:
            pause = CONFIRM_SECONDS if given_back.accepted else TRY_AGAIN_SECONDS
        else:
            pause = min(2 * last.pause_seconds, MOST_TRY_AGAIN_SECONDS)
        return cls(pause, time.monotonic() + pause)

    def is_due(self) -> bool:
        """True from that moment on."""
        return time.monotonic() >= self.at


def reading_seconds(interval_seconds: float) -> float:
    """How long Prometheus may take for the questions of one pass: a quarter of the interval, from 5 s up to 15 s.

    The answers about 5,000 jobs take 2 to 3 s, and on a busy node several times that; a pass that has to wait for
    longer decides on what is over.
    """
    return min(LONGEST_READING_SECONDS, max(SHORTEST_READING_SECONDS, interval_seconds / 4))
