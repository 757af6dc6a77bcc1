"""Places and releases gated pods: where a policy decides, or to the default scheduler after a bounded wait.

The first of these releases a gated pod:

- a policy places it: `place`, one PATCH with its node (`moves/scheduling_gate.py`);
- a pass saw it and did not place it, in whatever mode: `after_pass`, and the next `tick`;
- it has waited for 30 s, because no pass could observe, or no policy selects it: `tick`.

`evict/controller.py` releases the replacements of evicted pods (`reserved`). A pinned pod that finds no room for 20 s
is evicted: it has done no work, its owner recreates it (only such pods are pinned), and the new pod is released without
a node. All state is read from the pods, so a new leader does the same; it counts the seconds again, 60 s in all at
most.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Sequence

import structlog

from slopewise.adapters.kube.cache.records import MOVE, PLACED, PodRecord
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.fencing import NotLeadingError
from slopewise.adapters.kube.client.protocol import Api, Store, TakeTurn
from slopewise.adapters.kube.events import About, Event
from slopewise.adapters.kube.moves.eviction import evict, not_recreated_reason
from slopewise.adapters.kube.moves.node_predicates import is_pinned_to
from slopewise.adapters.kube.moves.recreation import EVICTABLE
from slopewise.adapters.kube.moves.scheduling_gate import Aim, GateReleaser
from slopewise.adapters.kube.workloads.owners import Owners
from slopewise.adapters.pauses import POD_SECONDS
from slopewise.crds import history
from slopewise.crds.job_growth import Action
from slopewise.errors import SlopewiseError
from slopewise.guards.framework import ATTEMPTS
from slopewise.model import JobUid, Move, Outcome, PassReport, Place
from slopewise.ports import Clock
from slopewise.tracking import FirstSeen, TtlMap

TICK_SECONDS = 0.5
"""A pass that changes 5,000 pods triggers 20 ticks a second; checking all pods takes 2 ms."""

MAX_WAIT_SECONDS = 30.0
"""A pass is every 20 s or so; with two replicas and a takeover no pod waits for more than 60 s."""

STRANDED_SECONDS = 20.0
"""A node that is full for a moment, while a pod on it ends, is waited for."""

NOT_PINNED_SECONDS = 600.0
"""How long the default scheduler places a job that found no room where it was pinned."""

RELEASED_PER_TICK = 50
"""Half a second of requests, so that evictions and suspended Jobs are not delayed."""

_LOG_EVENTS = {"GateReleased": "gate released", "Unpinned": "pod unpinned"}
"""By the reason of the Kubernetes Event."""
_VERDICTS_KEPT = 1000
_VERDICT_SECONDS = 60.0


class GatedPodController:
    """All gated pods of the cluster. `tick` is called by one thread, everything else by any."""

    def __init__(
        self,
        api: Api,
        pods: Store[PodRecord],
        owners: Owners,
        gate_releaser: GateReleaser,
        take_turn: TakeTurn,
        clock: Clock,
        *,
        may_evict_in: Callable[[str], bool] = lambda _: True,
        reserved: Callable[[], Container[str]] = tuple,
        on_stranded: Callable[[PodRecord], None] = lambda _: None,
        emit: Callable[[Event], None] = lambda _: None,
        act: Callable[[str, Action], object] = lambda uid, action: None,
    ) -> None:
        """`may_evict_in`: whether pods of this namespace may be evicted; elsewhere none is pinned.

        `reserved`: uids of owners whose pods another controller releases. `on_stranded` gets each pod that is evicted
        next. `act` appends an action to the history of the workload of that uid.
        """
        self._pods = pods
        self._owners = owners
        self._gate_releaser = gate_releaser
        self._api = api
        self._take_turn = take_turn
        self._clock = clock
        self._may_evict_in = may_evict_in
        self._reserved = reserved
        self._on_stranded = on_stranded
        self._emit = emit
        self._act = act
        self._ticked_at = float("-inf")
        self._seen: Sequence[PodRecord] | None = None
        self._waiting: list[PodRecord] = []
        self._pinned: list[PodRecord] = []
        self._first_seen = FirstSeen[tuple[str, bool]]()
        """Since when a pod, by its uid, waits (False), or is stranded, as it may be at once; by our own clock."""
        self._tried = TtlMap[str, None](POD_SECONDS, clock.monotonic)
        """Pods, by uid, that were released or evicted just now."""
        self._recreated = TtlMap[tuple[str, str], bool](_VERDICT_SECONDS, clock.monotonic, _VERDICTS_KEPT)
        """Whether pods are recreated after an eviction, by namespace and owner's uid: read at most once a minute."""
        self._passed_over: set[str] = set()
        """Uids of jobs that a pass saw and did not place."""
        self._left_to_scheduler = TtlMap[str, None](NOT_PINNED_SECONDS, clock.monotonic)
        """Uids of jobs."""
        self._lock = threading.Lock()
        self._log = structlog.get_logger("slopewise")

    def place(self, move: Place) -> Outcome[Move]:
        """Release an arriving job's pod, with its node; NotLeadingError without the lease."""
        found = self._owners.resolve(self._pods.items()).gated.get(move.job_uid)
        if found is None:
            return Outcome(move, "failed", "its pod is gone, or its gate is off already")
        pod = found[1]
        if _owner_uid(pod) in self._reserved():
            return Outcome(move, "deferred", "it is the replacement of an evicted pod, and goes where that was to go")
        if move.job_uid in self._left_to_scheduler:
            return Outcome(move, "failed", "there was no room where it was pinned; the default scheduler places it")
        if (wait := self._take_turn(move.node, pod.namespace)) is not None:
            return Outcome(move, "deferred", wait)
        freed_by_eviction = self._may_evict_in(pod.namespace) and self._is_recreated(pod)
        release = self._gate_releaser.release(pod, Aim(move.node, pin=freed_by_eviction))
        return Outcome(move, release.result, release.detail)

    def after_pass(self, report: PassReport) -> None:
        """Release the pods that this pass saw and did not place, in the next tick; deferred and put off ones wait."""
        if report.snapshot is None:
            return
        results = report.results
        kept = {each.decision.job_uid for each in results.of(Place) if each.result in ("applied", "deferred")}
        kept |= {each.decision.job_uid for each in results.withheld_of(Place) if each.guard == ATTEMPTS}
        waiting = {arrival.uid for arrival in report.snapshot.waiting}
        with self._lock:
            self._passed_over |= waiting - kept

    def tick(self, after_each: Callable[[], None] = lambda: None) -> None:
        """Release pods that have waited long enough, unpin those without room; errors of one pod stop no other.

        `after_each` of these pods.
        """
        now = self._clock.monotonic()
        if now - self._ticked_at < TICK_SECONDS:
            return
        self._ticked_at = now
        self._refresh(now)
        due = self._due(now)
        reserved = self._reserved() if due else ()
        for pod in [pod for pod in due if _owner_uid(pod) not in reserved][:RELEASED_PER_TICK]:
            self._safely(pod, self._release)
            after_each()
        for pod in self._pinned:
            if self._is_due(pod, STRANDED_SECONDS, now, stranded=True):
                self._safely(pod, self._unpin)
                after_each()

    def _refresh(self, now: float) -> None:
        """Update the waiting and stranded pods, if the store has changed."""
        pods = self._pods.items()
        if pods is self._seen:
            return
        self._seen = pods
        self._waiting = [pod for pod in pods if pod.waits_for_us]
        self._pinned = [pod for pod in pods if is_stranded(pod)]
        waiting = {(pod.uid, False) for pod in self._waiting}
        self._first_seen.keep(waiting | {(pod.uid, True) for pod in self._pinned}, now)

    def _due(self, now: float) -> list[PodRecord]:
        with self._lock:
            passed_over, self._passed_over = self._passed_over, set()
        if not self._waiting:
            return []
        soon = {pod.uid for pod in self._waiting if self._is_steered_already(pod)}
        if uids := {*passed_over, *self._left_to_scheduler}:
            gated = self._owners.resolve(self._pods.items()).gated
            soon |= {gated[uid][1].uid for uid in uids if uid in gated}
        for uid in soon:  # kept as if it had waited, so that a try that fails is not the last
            self._first_seen.at((uid, False), now - MAX_WAIT_SECONDS)
        return [pod for pod in self._waiting if self._is_due(pod, MAX_WAIT_SECONDS, now)]

    def _is_steered_already(self, pod: PodRecord) -> bool:
        """Whether its Job is moved by suspension, and its template is pinned."""
        owner = pod.owner
        job = None if owner is None or owner.kind != "Job" else self._owners.jobs.get(pod.namespace, owner.name)
        return job is not None and owner is not None and job.uid == owner.uid and MOVE in job.annotations

    def _is_due(self, pod: PodRecord, wait_seconds: float, now: float, *, stranded: bool = False) -> bool:
        return self._first_seen.seconds((pod.uid, stranded), now) >= wait_seconds and pod.uid not in self._tried

    def _is_recreated(self, pod: PodRecord) -> bool:
        """False also where it is unknown."""
        owner = pod.owner
        if owner is None or owner.kind not in EVICTABLE:
            return False
        return self._recreated.get((pod.namespace, owner.uid), lambda: self._check_owner(pod))

    def _check_owner(self, pod: PodRecord) -> bool:
        try:
            return not_recreated_reason(self._api, pod) is None
        except ApiError:
            return False

    def _safely(self, pod: PodRecord, act: Callable[[PodRecord], None]) -> None:
        """An error about one pod must not delay the others."""
        self._tried.put(pod.uid, None)
        try:
            act(pod)
        except NotLeadingError:
            return  # another replica leads, and does it
        except SlopewiseError as error:
            self._log.warning("gated pod failed", pod=_name(pod), reason=str(error))
        except Exception as error:
            self._log.error("gated pod failed", pod=_name(pod), reason=repr(error), exc_info=error)

    def _release(self, pod: PodRecord) -> None:
        release = self._gate_releaser.release(pod)
        if release.result == "applied":
            self._report(pod, "GateReleased", "no policy placed it; the default scheduler places it", warning=False)
        elif not release.over:
            self._log.warning("gate release failed", pod=_name(pod), reason=release.detail)

    def _unpin(self, pod: PodRecord) -> None:
        self._on_stranded(pod)
        if (job_uid := self._owners.job_uid(pod, self._pods.items())) is not None:
            self._left_to_scheduler.put(job_uid, None)  # or its replacement would be pinned again
        refused = evict(self._api, pod)
        if refused is None:
            node = pod.annotations[PLACED]
            reason = (
                f"{node} has had no room for it for {STRANDED_SECONDS:.0f} s; evicted, its next pod may run anywhere"
            )
            self._report(pod, "Unpinned", reason, warning=True)
            if job_uid is not None:
                action = history.move_ended(job_uid, f"{node} to any node", "released", reason, self._clock.now())
                self._act(JobUid.of(job_uid).workload, action)
        elif not refused.gone:
            self._log.warning("pod unpinning failed", pod=_name(pod), reason=refused.detail)

    def _report(self, pod: PodRecord, reason: str, note: str, *, warning: bool) -> None:
        """In the log, and as an event of the pod."""
        log = self._log.warning if warning else self._log.info
        log(_LOG_EVENTS[reason], pod=_name(pod), reason=note)
        about = About("v1", "Pod", pod.name, pod.uid, pod.namespace)
        self._emit(Event(about, reason, note, warning=warning, action="Place"))


def is_stranded(pod: PodRecord) -> bool:
    """A pod that we pinned and that no node takes: its node has filled up, is tainted, or deleted.

    The annotation alone is not enough: a copy of a pod's YAML carries it too.
    """
    node, scheduling = pod.annotations.get(PLACED), pod.scheduling
    if node is None or scheduling is None or pod.unschedulable_since_seconds is None:
        return False
    waits = pod.node is None and not pod.deleting and not pod.gates
    is_recreated = pod.owner is not None and pod.owner.kind in EVICTABLE
    return waits and is_recreated and is_pinned_to(scheduling.affinity, node)


def _owner_uid(pod: PodRecord) -> str:
    return "" if pod.owner is None else pod.owner.uid


def _name(pod: PodRecord) -> str:
    return f"{pod.namespace}/{pod.name}"
