"""Moves pods by eviction: stores the intent, evicts, and releases the gated replacements on the target node.

This way serves pods of a StatefulSet, of a Job that has an owner, or of any Job on a server before 1.36. Each state is
visible in the cluster, so the next leader continues:

- Nothing is stored: nothing was done.
- `status.move` of the JobGrowth is stored and a pod of it still runs: evict it, for 30 s; then leave it where it is.
- A pod of it is ending, or has ended: wait for its replacement (`replacements.py`).
- A replacement is gated: release it, pinned to `status.move.node`, or without a node where that was given up.
- Each pod has a replacement with a node, or none is to come (it succeeded, its owner has ended): clear `status.move`.

A Job's replacement comes 10 s after the first eviction, 20 s after the second, and so on up to 6 minutes (the back-off
of the Job controller). After 15 minutes every move is over, and a later pod is an arrival like others
(`moves/gated_pods.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import structlog

from slopewise.adapters.kube.cache.records import ManagedPod, NodeRecord, OwnerRef, PodRecord, SchedulingFacts
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.fencing import NotLeadingError, raise_if_frozen
from slopewise.adapters.kube.client.meanings import Refused
from slopewise.adapters.kube.client.protocol import Api, Store, TakeTurn
from slopewise.adapters.kube.events import About, Event
from slopewise.adapters.kube.moves.evict.replacements import (
    AWAITED,
    ENDING,
    Replacements,
    Step,
    as_leaving,
    next_step,
    runs,
)
from slopewise.adapters.kube.moves.eviction import (
    OnRefused,
    as_it_is,
    disruption_refusal,
    evict,
    is_not_replaced,
    not_recreated_reason,
)
from slopewise.adapters.kube.moves.node_predicates import refusal_by
from slopewise.adapters.kube.moves.scheduling_gate import Aim, GateReleaser
from slopewise.adapters.kube.state.job_growth_object import GrowthDocument
from slopewise.adapters.kube.state.job_growth_store import JobGrowthStore
from slopewise.adapters.kube.workloads.owners import Owners
from slopewise.adapters.pauses import POD_SECONDS
from slopewise.crds import history
from slopewise.crds.conditions import timestamp
from slopewise.crds.job_growth import MoveIntent, PodMove
from slopewise.errors import ObservationError, SlopewiseError
from slopewise.model import JobUid, Migrate, Move, MoveUnderWay, Outcome
from slopewise.ports import Clock

MAX_MOVE_SECONDS = 900.0
TURN_SECONDS = 0.5
"""How long a tick waits for a pass that begins a move: a move of 50 pods sends 100 requests, and gates must not wait
for them."""
OWNER_CHECK_SECONDS = 15.0
"""Between two checks whether the owner of an ended pod still recreates it."""


_Member = tuple[PodMove, PodRecord]
"""A pod that is to be moved, as it is stored and as it is."""


class EvictionController:
    """All moves by eviction. `tick` is called by one thread, everything else by any."""

    def __init__(
        self,
        api: Api,
        pods: Store[PodRecord],
        nodes: Store[NodeRecord] | None,
        owners: Owners,
        job_growths: JobGrowthStore,
        gate_releaser: GateReleaser,
        take_turn: TakeTurn,
        clock: Clock,
        emit: Callable[[Event], None] = lambda _: None,
        on_refused: OnRefused = as_it_is,
    ) -> None:
        self._api = api
        self._pods = pods
        self._nodes = nodes
        self._owners = owners
        self._job_growths = job_growths
        self._gate_releaser = gate_releaser
        self._take_turn = take_turn
        self._clock = clock
        self._emit = emit
        self._on_refused = on_refused
        self._taken_over = False
        self._steps: dict[str, str] = {}
        """The message of each step, by the uid of the leaving pod; empty once its replacement runs."""
        self._tried: dict[str, float] = {}
        """When a pod was last evicted or released, or its owner read, by uid and the monotonic clock."""
        self._lock = threading.RLock()
        self._log = structlog.get_logger("slopewise")

    # --- beginning -------------------------------------------------------------------------------------------

    def begin(self, move: Migrate, managed: ManagedPod, policy: str, members: Sequence[str] = ()) -> Outcome[Move]:
        """Evict the job's pod and those of all `members` (uids of jobs), or none; the members' own calls confirm it.

        `applied` once the first eviction is granted. NotLeadingError without the lease.
        """
        with self._lock:
            document = self._job_growths.get_or_create(managed.workload, managed.pod.namespace)
            if document.move is not None:
                return self._under_way_already(move, managed, document.move)
            found = self._members(move, managed, members)
            begun = found if isinstance(found, Refused) else self._start(move, managed, policy, found)
            if isinstance(begun, Refused):
                return Outcome(move, begun.result, self._on_refused(managed, begun))
            return Outcome(move, "applied", f"evicted; its replacement goes to {move.node}", begun_at_seconds=begun)

    def _under_way_already(self, move: Migrate, managed: ManagedPod, intent: MoveIntent) -> Outcome[Move]:
        if any(each.slot == managed.slot for each in intent.pods) and intent.node == move.node:
            return Outcome(move, "applied", "moves together with the other pods of its workload")
        return Outcome(move, "deferred", f"a move of its workload to {intent.node or 'any node'} is under way")

    def _members(self, move: Migrate, managed: ManagedPod, uids: Sequence[str]) -> tuple[_Member, ...] | Refused:
        """The running pods that are not on the target node already."""
        if managed.pod.ended or managed.pod.deleting:
            return Refused("failed", "its pod is ending")
        known = self._owners.resolve(self._pods.items()).pods
        others = [known[uid] for uid in uids if uid != move.job_uid and uid in known]
        running = [(managed.slot, managed.pod)]
        running += [(identity.slot, pod) for identity, pod in others if runs(pod) and pod.node != move.node]
        if any(pod.owner is None for _, pod in running):
            return Refused("infeasible", "a bare pod is not recreated; run it as a Job", "rule")
        return tuple((as_leaving(slot, pod, pod.owner), pod) for slot, pod in running if pod.owner is not None)

    def _granted(self, managed: ManagedPod, members: Sequence[_Member]) -> Refused | None:
        """Whether each pod would be recreated and each eviction granted: checked before anything is done."""
        if (wait := self._take_turn(managed.pod.node or "", managed.pod.namespace)) is not None:
            return Refused("deferred", wait)
        for pod in {leaving.owner.uid: pod for leaving, pod in reversed(members)}.values():
            if (refused := self._check_recreation(pod)) is not None:
                return refused
        return disruption_refusal(self._api, [pod for _, pod in members])

    def _check_recreation(self, pod: PodRecord) -> Refused | None:
        try:
            reason = not_recreated_reason(self._api, pod)
        except ApiError as error:
            return Refused("failed", f"its owner cannot be read, so it is not evicted: {error}", "trouble")
        return None if reason is None else Refused("infeasible", reason, "rule")

    def _start(self, move: Migrate, managed: ManagedPod, policy: str, members: Sequence[_Member]) -> Refused | float:
        """When the move was begun, in Unix seconds."""
        if (refused := self._granted(managed, members)) is not None:
            return refused
        raise_if_frozen()  # before the intent, which other threads see and the writer may store
        document = self._job_growths.get_or_create(managed.workload, managed.pod.namespace)
        document.policy = document.policy or policy
        now = self._clock.now()
        document.move = MoveIntent(node=move.node, since=timestamp(now), pods=tuple(leaving for leaving, _ in members))
        try:
            self._job_growths.write_now(document)
        except SlopewiseError as error:
            document.move = None
            if isinstance(error, NotLeadingError):
                raise
            return Refused("failed", f"where it is to go could not be stored, so it is not evicted: {error}", "trouble")
        refusals = [self._evict(pod) for _, pod in members]
        if all(refused is not None and not refused.maybe_done for refused in refusals):
            self._clear(document, "no pod of it could be evicted")
            return next(refused for refused in refusals if refused is not None)
        name = f"{document.namespace}/{document.name}"
        self._log.info("move begun", workload=name, pods=len(members), node=move.node, way="evict")
        return now

    def _evict(self, pod: PodRecord) -> Refused | None:
        self._tried[pod.uid] = self._clock.monotonic()
        return evict(self._api, pod)

    # --- going on --------------------------------------------------------------------------------------------

    def under_way(self) -> tuple[MoveUnderWay, ...]:
        """Each pod that is being moved."""
        return tuple(
            MoveUnderWay(
                job_uid=str(JobUid(document.workload.uid, pod.slot)),
                from_node=pod.node,
                node=intent.node,
                since_seconds=intent.since.timestamp(),
                step=self._steps.get(pod.uid, ENDING),
            )
            for document, intent in self._intents()
            for pod in intent.pods
            if self._steps.get(pod.uid) != ""
        )

    def reserved(self) -> frozenset[str]:
        """Uids of the owners of pods that are being moved: only this controller releases their gated pods."""
        return frozenset(leaving.owner.uid for _, intent in self._intents() for leaving in intent.pods)

    def give_up_node(self, pod: PodRecord, reason: str = "no room") -> None:
        """Drop the target of a replacement that cannot run there: it or the next one is released without a node."""
        owner = "" if pod.owner is None else pod.owner.uid
        with self._lock:
            for document, intent in self._intents():
                theirs = document.namespace == pod.namespace  # an owner's uid may be named anywhere
                if theirs and intent.node and any(leaving.owner.uid == owner for leaving in intent.pods):
                    document.move = intent.model_copy(update={"node": ""})
                    self._job_growths.write_now(document)
                    self._report_given_up(document, intent.node, reason)

    def _report_given_up(self, document: GrowthDocument, node: str, reason: str) -> None:
        note = f"not moved to {node} ({reason}); it starts wherever the scheduler puts it"
        self._log.warning("move given up", workload=f"{document.namespace}/{document.name}", reason=note)
        workload = document.workload
        self._emit(Event(About.of(workload, document.namespace), "MoveGivenUp", note, warning=True, action="Move"))
        for leaving in document.move.pods if document.move is not None else ():
            uid, change = str(JobUid(workload.uid, leaving.slot)), f"{leaving.node} to {node}"
            document.acted(history.move_ended(uid, change, "cancelled", note, self._clock.now()))
        self._job_growths.changed(document, transition=True)

    def tick(self, after_each: Callable[[], None] = lambda: None) -> None:
        """Each move's next step, and `after_each` pod of it. An error of one move stops no other."""
        if not self._is_stored():
            return
        if not self._lock.acquire(timeout=TURN_SECONDS):
            return  # the next tick continues
        try:
            moves = list(self._intents())
            leaving = {pod.uid for _, intent in moves for pod in intent.pods}
            self._steps = {uid: step for uid, step in self._steps.items() if uid in leaving}
            if not moves:
                self._tried.clear()
            for document, intent in moves:
                self._safely(document, intent, after_each)
        finally:
            self._lock.release()

    def _intents(self) -> Iterator[tuple[GrowthDocument, MoveIntent]]:
        for document in self._job_growths.moving():
            if (intent := document.move) is not None:
                yield document, intent

    def _is_stored(self) -> bool:
        """A new leader reads what the former one stored before it continues."""
        if not self._taken_over:
            try:
                self._job_growths.refresh()
            except ObservationError:
                return False
            self._taken_over = True
        return True

    def _safely(self, document: GrowthDocument, intent: MoveIntent, after_each: Callable[[], None]) -> None:
        name = f"{document.namespace}/{document.name}"
        try:
            self._go_on(document, intent, after_each)
        except NotLeadingError:
            return  # another replica leads, and continues
        except SlopewiseError as error:
            self._log.warning("move step failed", workload=name, reason=str(error))
        except Exception as error:
            self._log.error("move step failed", workload=name, reason=repr(error), exc_info=error)

    def _go_on(self, document: GrowthDocument, intent: MoveIntent, after_each: Callable[[], None]) -> None:
        age = self._clock.now() - intent.since.timestamp()
        if age > MAX_MOVE_SECONDS:
            self._clear(document, f"not over after {age:.0f} s; its pods are left to the default scheduler")
            return
        replacements = Replacements(self._pods.items(), document.namespace, intent)
        over = True
        for leaving in intent.pods:
            step = next_step(leaving, intent, replacements, age)
            goes_on = self._take_step(document, leaving, intent, step, age)
            self._steps[leaving.uid] = step.message if goes_on else ""
            over = over and not goes_on
            after_each()
        if over:
            self._clear(document, "every pod of it has found its place" if intent.node else "its pods run anywhere")

    def _take_step(
        self, document: GrowthDocument, leaving: PodMove, intent: MoveIntent, step: Step, age: float
    ) -> bool:
        """Carry out the next step of one pod; False when it was the last."""
        if step.evict is not None and self._may_try(step.evict.uid):
            self._evict(step.evict)
        if step.release is not None and self._may_try(step.release.uid):
            self._release(document, step.release, intent.node)
        if step.message == AWAITED and self._owner_is_over(document.namespace, leaving, age):
            return False
        return bool(step.message)

    def _release(self, document: GrowthDocument, pod: PodRecord, node: str) -> None:
        """Pinned, unless the node would refuse it: then wherever the scheduler places it."""
        self._tried[pod.uid] = self._clock.monotonic()
        name = f"{pod.namespace}/{pod.name}"
        reason = refusal_by(self._nodes, node, pod.scheduling or SchedulingFacts()) if node else None
        if reason is not None:
            self.give_up_node(pod, reason)
            node = ""
        release = self._gate_releaser.release(pod, Aim(node, pin=True) if node else None)
        if release.result != "applied" and not release.over:
            self._log.warning("gate release failed", pod=name, reason=release.detail)

    def _owner_is_over(self, namespace: str, leaving: PodMove, age: float) -> bool:
        """Whether no replacement is to come: the owner is deleted, suspended or has ended. Limited in rate."""
        if age < OWNER_CHECK_SECONDS or not self._may_try(leaving.uid, OWNER_CHECK_SECONDS):
            return False
        self._tried[leaving.uid] = self._clock.monotonic()
        owner = OwnerRef(leaving.owner.api_version, leaving.owner.kind, leaving.owner.name, leaving.owner.uid)
        return is_not_replaced(self._api, namespace, owner, leaving.name)

    def _may_try(self, uid: str, pause_seconds: float = POD_SECONDS) -> bool:
        return self._clock.monotonic() - self._tried.get(uid, float("-inf")) >= pause_seconds

    def _clear(self, document: GrowthDocument, reason: str) -> None:
        document.move = None
        if not document.lost:  # else its workload is deleted, and no object is created again for it
            self._job_growths.changed(document, transition=True)
        self._log.info("move ended", workload=f"{document.namespace}/{document.name}", reason=reason, way="evict")
