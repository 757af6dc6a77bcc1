"""Pods that wait behind our gate: placed where a policy says, let go when nobody does, and never kept.

Before it: `observer.py` shows them to the policies (`ClusterSnapshot.waiting`), and the pass decides. After it: the
default scheduler. A gated pod is opened by the first of these:

1. a policy places it: `place`, one PATCH with its node (`opening.py`);
2. a pass saw it and did not place it, in whatever mode, for whatever reason: `after_pass`, and the next `tick`;
3. it has been here for 30 s, because no pass could observe, or no policy selects it: `tick`.

The replacement of an evicted pod is not for here: `evictions.py` knows where it belongs (`reserved`).

A pod that is pinned and found no room for 20 s is evicted while it waits: it has done no work, its owner makes another
one (only such pods are pinned), and that one is opened without a node. What is known here is known from the pods
themselves, so a new leader begins with nothing and does the same; it counts the seconds anew, 60 s in all at most.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Sequence

import structlog

from controller import history
from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.coming_back import EVICTABLE
from controller.adapters.kube.contracts import Api, MayWrite, Store, TakeTurn
from controller.adapters.kube.events import About, Event
from controller.adapters.kube.evicting import evict, why_it_would_stay_away
from controller.adapters.kube.opening import Aim, Opener
from controller.adapters.kube.owners import Owners
from controller.adapters.kube.pinning import is_pinned_to
from controller.adapters.kube.records import MOVE, PLACED, PodRecord
from controller.errors import ActuationError, SlopewiseError
from controller.job_growth import Action
from controller.model import MoveOutcome, PassReport, Place
from controller.ports import Clock

TICK_SECONDS = 0.5
"""A pass that changes 5,000 pods wakes whoever ticks 20 times a second; to look at them all takes 2 ms."""

LONGEST_WAIT_SECONDS = 30.0
"""A pass is every 20 s or so; two replicas and a takeover included, nobody waits for more than 60 s."""

STRANDED_SECONDS = 20.0
"""A node that is full for a moment, while a pod on it ends, is waited for."""

RETRY_SECONDS = 5.0
"""Between two tries to open, or to evict, one and the same pod."""

NOT_PINNED_SECONDS = 600.0
"""For so long a job that found no room where it was pinned is left to the default scheduler."""

OPENED_A_TICK = 50
"""Half a second of calls: evictions and suspended Jobs have their turn in between."""

_VERDICTS_KEPT = 1000
_VERDICT_SECONDS = 60.0


class Gates:
    """All pods of the cluster that carry our gate. `tick` is called by one thread, everything else by any."""

    def __init__(
        self,
        api: Api,
        pods: Store[PodRecord],
        owners: Owners,
        opener: Opener,
        may_write: MayWrite,
        take_turn: TakeTurn,
        clock: Clock,
        *,
        may_evict_in: Callable[[str], bool] = lambda _: True,
        reserved: Callable[[], Container[str]] = tuple,
        on_stranded: Callable[[PodRecord], None] = lambda _: None,
        tell: Callable[[Event], None] = lambda _: None,
        act: Callable[[str, Action], object] = lambda uid, action: None,
    ) -> None:
        """`may_evict_in`: whether pods of this namespace may be evicted; elsewhere none is tied to a node.

        `reserved`: uids of owners whose pods somebody else opens. `on_stranded` hears of what is evicted next.
        `act` keeps an action in the history of the workload of that uid.
        """
        self._pods = pods
        self._owners = owners
        self._opener = opener
        self._comers_back = _ComersBack(api, clock)
        self._api = api
        self._may_write = may_write
        self._take_turn = take_turn
        self._clock = clock
        self._may_evict_in = may_evict_in
        self._reserved = reserved
        self._on_stranded = on_stranded
        self._tell = tell
        self._act = act
        self._ticked_at = float("-inf")
        self._seen: Sequence[PodRecord] | None = None
        self._waiting: list[PodRecord] = []
        self._pinned: list[PodRecord] = []
        self._sights: dict[str, float] = {}
        """Since when a pod waits, or is stranded, by its uid and by our own clock."""
        self._tried: dict[str, float] = {}
        self._passed_over: set[str] = set()
        """Uids of jobs that a pass saw and did not place."""
        self._left_to_scheduler: dict[str, float] = {}
        """Until when, by the job's uid."""
        self._lock = threading.Lock()
        self._log = structlog.get_logger("slopewise")

    def place(self, move: Place) -> MoveOutcome:
        """Open the gate of an arriving job's pod, with its node; ActuationError when we do not lead."""
        found = self._owners.resolve(self._pods.items()).gated.get(move.job_uid)
        if found is None:
            return MoveOutcome(move, "failed", "its pod is gone, or its gate is off already")
        pod = found[1]
        if _owner_uid(pod) in self._reserved():
            return MoveOutcome(
                move, "deferred", "it is the replacement of an evicted pod, and goes where that was to go"
            )
        if self._clock.monotonic() < self._left_to_scheduler.get(move.job_uid, 0.0):
            return MoveOutcome(move, "failed", "there was no room where it was pinned; the default scheduler places it")
        if (wait := self._take_turn(move.node, pod.namespace)) is not None:
            return MoveOutcome(move, "deferred", wait)
        freed_by_eviction = self._may_evict_in(pod.namespace) and self._comers_back.includes(pod)
        opened = self._opener.open(pod, Aim(move.node, pin=freed_by_eviction))
        return MoveOutcome(move, opened.result, opened.detail)

    def after_pass(self, report: PassReport) -> None:
        """What one policy's pass has seen and not placed is let go in the next tick; a turn that is due soon counts."""
        if report.snapshot is None:
            return
        kept = {
            outcome.move.job_uid
            for outcome in report.moves
            if isinstance(outcome.move, Place) and outcome.result in ("applied", "deferred")
        }
        with self._lock:
            self._passed_over |= {arrival.uid for arrival in report.snapshot.waiting} - kept

    def tick(self, after_each: Callable[[], None] = lambda: None) -> None:
        """Open what has waited long enough, free what is pinned where no room is; one pod's trouble stops no other.

        `after_each` of these pods.
        """
        now = self._clock.monotonic()
        if now - self._ticked_at < TICK_SECONDS:
            return
        self._ticked_at = now
        self._look(now)
        if not self._may_write() or not (self._waiting or self._pinned):
            return
        for pod in self._openable(self._due(now)):
            self._safely(pod, self._let_go)
            after_each()
        for pod in self._pinned:
            if self._is_due(pod, STRANDED_SECONDS, now):
                self._safely(pod, self._unpin)
                after_each()

    def _look(self, now: float) -> None:
        """Who waits now; nothing to do while the store hands out the same list."""
        pods = self._pods.items()
        if pods is self._seen:
            return
        self._seen = pods
        self._waiting = [pod for pod in pods if pod.waits_for_us]
        self._pinned = [pod for pod in pods if is_stranded(pod)]
        there = {pod.uid for pod in (*self._waiting, *self._pinned)}
        self._sights = {uid: self._sights.get(uid, now) for uid in there}
        self._tried = {uid: at for uid, at in self._tried.items() if uid in there}

    def _due(self, now: float) -> list[PodRecord]:
        with self._lock:
            passed_over, self._passed_over = self._passed_over, set()
        if not self._waiting:
            return []
        soon = {pod.uid for pod in self._waiting if self._is_steered_already(pod)}
        if uids := {*passed_over, *self._unpinnable(now)}:
            gated = self._owners.resolve(self._pods.items()).gated
            soon |= {gated[uid][1].uid for uid in uids if uid in gated}
        for uid in soon:  # kept as if it had waited, so that a try that fails is not the last
            self._sights[uid] = min(self._sights.get(uid, now), now - LONGEST_WAIT_SECONDS)
        return [pod for pod in self._waiting if self._is_due(pod, LONGEST_WAIT_SECONDS, now)]

    def _is_steered_already(self, pod: PodRecord) -> bool:
        """A pod of a Job that is moved by suspending it: its template is pinned."""
        owner = pod.owner
        job = None if owner is None or owner.kind != "Job" else self._owners.jobs.get(pod.namespace, owner.name)
        return job is not None and owner is not None and job.uid == owner.uid and MOVE in job.annotations

    def _unpinnable(self, now: float) -> Iterable[str]:
        self._left_to_scheduler = {uid: until for uid, until in self._left_to_scheduler.items() if now < until}
        return self._left_to_scheduler

    def _is_due(self, pod: PodRecord, patience_seconds: float, now: float) -> bool:
        waited = now - self._sights.get(pod.uid, now)
        return waited >= patience_seconds and now - self._tried.get(pod.uid, float("-inf")) >= RETRY_SECONDS

    def _openable(self, due: Sequence[PodRecord]) -> list[PodRecord]:
        reserved = self._reserved() if due else ()
        return [pod for pod in due if _owner_uid(pod) not in reserved][:OPENED_A_TICK]

    def _safely(self, pod: PodRecord, act: Callable[[PodRecord], None]) -> None:
        """A mistake of ours about one pod must keep no other waiting."""
        self._tried[pod.uid] = self._clock.monotonic()
        try:
            act(pod)
        except ActuationError:
            return  # another replica leads, and does it
        except SlopewiseError as error:
            self._warn("gate", pod, str(error))
        except Exception as error:
            self._log.error("gate", pod=_name(pod), reason=repr(error), exc_info=error)

    def _let_go(self, pod: PodRecord) -> None:
        opened = self._opener.open(pod)
        if opened.result == "applied":
            self._say(pod, "GateOpened", "nobody has placed it; the default scheduler does", warning=False)
        elif not opened.over:
            self._warn("gate not opened", pod, opened.detail)

    def _unpin(self, pod: PodRecord) -> None:
        job_uid = self._note_stranded(pod)
        refused = evict(self._api, pod)
        if refused is None:
            node = pod.annotations[PLACED]
            why = f"{node} has had no room for it for {STRANDED_SECONDS:.0f} s; evicted, its next pod may run anywhere"
            self._say(pod, "Unpinned", why, warning=True)
            if job_uid is not None:
                action = history.move_ended(job_uid, f"{node} to any node", "released", why, self._clock.now())
                self._act(job_uid.rpartition(":")[0], action)
        elif not refused.gone:
            self._warn("pod not unpinned", pod, refused.detail)

    def _note_stranded(self, pod: PodRecord) -> str | None:
        """Its replacement must not be pinned again. Returns the uid of its job."""
        self._on_stranded(pod)
        job_uid = self._owners.job_uid(pod, self._pods.items())
        if job_uid is not None:
            self._left_to_scheduler[job_uid] = self._clock.monotonic() + NOT_PINNED_SECONDS
        return job_uid

    def _say(self, pod: PodRecord, reason: str, note: str, *, warning: bool) -> None:
        """In the log, and where people look for it: at the pod."""
        log = self._log.warning if warning else self._log.info
        log("gate", pod=_name(pod), action=reason, reason=note)
        about = About("v1", "Pod", pod.name, pod.uid, pod.namespace)
        self._tell(Event(about, reason, note, warning=warning, action="Place"))

    def _warn(self, event: str, pod: PodRecord, reason: str) -> None:
        self._log.warning(event, pod=_name(pod), reason=reason)


def is_stranded(pod: PodRecord) -> bool:
    """A pod that we pinned and that no node takes: its node has filled up, is tainted, or gone.

    The annotation alone is not enough: whoever copies a pod's YAML has it in his template.
    """
    node, scheduling = pod.annotations.get(PLACED), pod.scheduling
    if node is None or scheduling is None or pod.unschedulable_since_seconds is None:
        return False
    waits = pod.node is None and not pod.deleting and not pod.gates
    comes_back = pod.owner is not None and pod.owner.kind in EVICTABLE
    return waits and comes_back and is_pinned_to(scheduling.affinity, node)


class _ComersBack:
    """Which pods come back when they are evicted, by their owners; each owner is asked at most once a minute."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._verdicts: dict[str, tuple[bool, float]] = {}

    def includes(self, pod: PodRecord) -> bool:
        """False also where nobody can say."""
        owner, now = pod.owner, self._clock.monotonic()
        if owner is None or owner.kind not in EVICTABLE:
            return False
        known, until = self._verdicts.get(owner.uid, (False, float("-inf")))
        if now < until:
            return known
        if len(self._verdicts) >= _VERDICTS_KEPT:
            self._verdicts.clear()
        verdict = self._ask(pod)
        self._verdicts[owner.uid] = (verdict, now + _VERDICT_SECONDS)
        return verdict

    def _ask(self, pod: PodRecord) -> bool:
        try:
            return why_it_would_stay_away(self._api, pod) is None
        except ApiError:
            return False


def _owner_uid(pod: PodRecord) -> str:
    return "" if pod.owner is None else pod.owner.uid


def _name(pod: PodRecord) -> str:
    return f"{pod.namespace}/{pod.name}"
