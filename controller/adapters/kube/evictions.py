"""The evict way of a move: intent stored, pods evicted, their gated replacements opened where they belong.

Before it: `mover.py`, when a pass wants to move pods of a StatefulSet, of a Job that has an owner, or of any Job on a
server before 1.36. After it: the default scheduler, and the next pass, which sees the job on its new node.

How far a move is can be seen in the cluster at every moment, so whoever leads goes on with it:

- Nothing is stored: nothing was done.
- `status.move` of the JobGrowth is stored and a pod of it still runs: evict it, for 30 s; then leave it where it is.
- A pod of it is ending, or has ended: wait for the one in its place (`replacements.py`).
- A replacement is gated: open it, pinned to `status.move.node`, or without a node where that was given up.
- Each pod has a replacement with a node, or none is to come (it succeeded, its owner is over): clear `status.move`.

A Job's replacement comes 10 s after the first eviction, 20 s after the second, and so on up to 6 minutes (the back-off
of the Job controller). After 15 minutes a move is over whatever has become of it, and what comes later is an arriving
pod like others (`gates.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import structlog

from controller import history
from controller.adapters.kube import budgets
from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.contracts import Api, MayWrite, Store, TakeTurn
from controller.adapters.kube.events import About, Event
from controller.adapters.kube.evicting import (
    OnRefused,
    Refused,
    as_it_is,
    evict,
    makes_no_more,
    why_it_would_stay_away,
)
from controller.adapters.kube.growth_book import GrowthBook
from controller.adapters.kube.growth_objects import GrowthDocument
from controller.adapters.kube.opening import Aim, Opener, would_refuse
from controller.adapters.kube.owners import Owners
from controller.adapters.kube.records import ManagedPod, NodeRecord, OwnerRef, PodRecord
from controller.adapters.kube.replacements import AWAITED, ENDING, Member, Replacements, Step, next_step, runs
from controller.conditions import timestamp
from controller.errors import ActuationError, ObservationError, SlopewiseError
from controller.job_growth import MoveIntent, PodMove
from controller.model import Migrate, MoveOutcome, MoveUnderWay
from controller.ports import Clock

LONGEST_MOVE_SECONDS = 900.0
TURN_SECONDS = 0.5
"""How long a tick waits for a pass that begins a move: one of 50 pods asks 100 questions, and gates wait for none."""
RETRY_SECONDS = 5.0
ASK_OWNER_SECONDS = 15.0
"""Between two looks whether an owner whose pod has ended still makes another one."""


class Evictions:
    """All moves by eviction. `tick` is called by one thread, everything else by any."""

    def __init__(
        self,
        api: Api,
        pods: Store[PodRecord],
        nodes: Store[NodeRecord] | None,
        owners: Owners,
        book: GrowthBook,
        opener: Opener,
        may_write: MayWrite,
        take_turn: TakeTurn,
        clock: Clock,
        tell: Callable[[Event], None] = lambda _: None,
        on_refused: OnRefused = as_it_is,
    ) -> None:
        self._api = api
        self._pods = pods
        self._nodes = nodes
        self._owners = owners
        self._book = book
        self._opener = opener
        self._may_write = may_write
        self._take_turn = take_turn
        self._clock = clock
        self._tell = tell
        self._on_refused = on_refused
        self._taken_over = False
        self._steps: dict[str, str] = {}
        """In words, by the uid of the pod that leaves; empty once another one has come in its place."""
        self._tried: dict[str, float] = {}
        """When a pod was last evicted, opened, or its owner asked, by uid and the monotonic clock."""
        self._lock = threading.RLock()
        self._log = structlog.get_logger("slopewise")

    # --- beginning -------------------------------------------------------------------------------------------

    def begin(self, move: Migrate, managed: ManagedPod, policy: str, members: Sequence[str] = ()) -> MoveOutcome:
        """Evict the job's pod and those of all `members` (uids of jobs), or none; the members' own calls follow suit.

        `applied` once the first eviction is granted. ActuationError when we do not lead.
        """
        with self._lock:
            document = self._book.open(managed.workload, managed.pod.namespace)
            if document.move is not None:
                return self._under_way_already(move, managed, document.move)
            found = self._members(move, managed, members)
            begun = found if isinstance(found, Refused) else self._ask_and_start(move, managed, policy, found)
            if isinstance(begun, Refused):
                return MoveOutcome(move, begun.result, self._on_refused(managed, begun))
            how = f"evicted; its replacement goes to {move.node}"
            return MoveOutcome(move, "applied", how, begun_at_seconds=begun)

    def _ask_and_start(
        self, move: Migrate, managed: ManagedPod, policy: str, members: Sequence[Member]
    ) -> Refused | float:
        """When it was begun, in Unix seconds."""
        if (wait := self._take_turn(managed.pod.node or "", managed.pod.namespace)) is not None:
            return Refused("deferred", wait)
        if (refused := self._granted(members)) is not None:
            return refused
        return self._start(move, self._book.open(managed.workload, managed.pod.namespace), policy, members)

    def _under_way_already(self, move: Migrate, managed: ManagedPod, intent: MoveIntent) -> MoveOutcome:
        together = any(each.slot == managed.slot for each in intent.pods) and intent.node == move.node
        if together:
            return MoveOutcome(move, "applied", "moves together with the other pods of its workload")
        return MoveOutcome(move, "deferred", f"a move of its workload to {intent.node or 'any node'} is under way")

    def _members(self, move: Migrate, managed: ManagedPod, uids: Sequence[str]) -> tuple[Member, ...] | Refused:
        """The pods that run now and are not where they belong already."""
        if managed.pod.ended or managed.pod.deleting:
            return Refused("failed", "its pod is ending")
        known = self._owners.resolve(self._pods.items()).pods
        others = [known[uid] for uid in uids if uid != move.job_uid and uid in known]
        running = [(managed.slot, managed.pod)]
        running += [(identity.slot, pod) for identity, pod in others if runs(pod) and pod.node != move.node]
        if any(pod.owner is None for _, pod in running):
            return Refused("infeasible", "it is a bare pod, which nobody makes again; run it as a Job", "rule")
        return tuple(Member(slot, pod, pod.owner) for slot, pod in running if pod.owner is not None)

    def _granted(self, members: Sequence[Member]) -> Refused | None:
        """Whether each would come back, and each eviction would be granted: asked before anything is done."""
        asked: set[str] = set()
        for member in members:
            if member.owner.uid not in asked:
                asked.add(member.owner.uid)
                if (refused := self._comes_back(member.pod)) is not None:
                    return refused
        return budgets.refusal(self._api, [member.pod for member in members])

    def _comes_back(self, pod: PodRecord) -> Refused | None:
        try:
            why = why_it_would_stay_away(self._api, pod)
        except ApiError as error:
            return Refused("failed", f"its owner cannot be read, so it is not evicted: {error}", "trouble")
        return None if why is None else Refused("infeasible", why, "rule")

    def _start(
        self, move: Migrate, document: GrowthDocument, policy: str, members: Sequence[Member]
    ) -> Refused | float:
        self._check_leading()
        document.policy = document.policy or policy
        now = self._clock.now()
        document.move = MoveIntent(
            node=move.node,
            since=timestamp(now),
            pods=tuple(member.leaving() for member in members),
        )
        try:
            self._book.write_now(document)
        except SlopewiseError as error:
            document.move = None
            why = f"where it is to go could not be stored, so it is not evicted: {error}"
            return Refused("failed", why, "trouble")
        refusals = [self._evict(member.pod) for member in members]
        if all(refused is not None and not refused.maybe_done for refused in refusals):
            self._clear(document, "no pod of it could be evicted")
            return next(refused for refused in refusals if refused is not None)
        name = f"{document.namespace}/{document.name}"
        self._log.info("move begun", workload=name, pods=len(members), node=move.node, way="evict")
        return now

    def _evict(self, pod: PodRecord) -> Refused | None:
        self._check_leading()
        self._tried[pod.uid] = self._clock.monotonic()
        return evict(self._api, pod)

    # --- going on --------------------------------------------------------------------------------------------

    def under_way(self) -> tuple[MoveUnderWay, ...]:
        """Each pod that is on its way."""
        return tuple(
            MoveUnderWay(
                job_uid=f"{document.workload.uid}:{pod.slot}",
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
        """Uids of the owners whose gated pods are replacements of pods that are being moved: nobody else opens them."""
        return frozenset(leaving.owner.uid for _, intent in self._intents() for leaving in intent.pods)

    def give_up_node(self, pod: PodRecord, why: str = "no room") -> None:
        """This replacement cannot run where it belongs: it, or the one after it, is opened without a node."""
        owner = "" if pod.owner is None else pod.owner.uid
        with self._lock:
            for document, intent in self._intents():
                theirs = document.namespace == pod.namespace  # an owner's uid may be named anywhere
                if theirs and intent.node and any(leaving.owner.uid == owner for leaving in intent.pods):
                    document.move = intent.model_copy(update={"node": ""})
                    self._book.write_now(document)
                    self._say_given_up(document, intent.node, why)

    def _say_given_up(self, document: GrowthDocument, node: str, why: str) -> None:
        note = f"not moved to {node} ({why}); it starts wherever the scheduler puts it"
        self._log.warning("move given up", workload=f"{document.namespace}/{document.name}", reason=note)
        workload = document.workload
        about = About(workload.api_version, workload.kind, workload.name, workload.uid, document.namespace)
        self._tell(Event(about, "MoveGivenUp", note, warning=True, action="Move"))
        for leaving in document.move.pods if document.move is not None else ():
            uid, change = f"{workload.uid}:{leaving.slot}", f"{leaving.node} to {node}"
            document.acted(history.move_ended(uid, change, "cancelled", note, self._clock.now()))
        self._book.changed(document, transition=True)

    def tick(self, after_each: Callable[[], None] = lambda: None) -> None:
        """Each move's next step, and `after_each` pod of it. Never raises for one move's trouble."""
        if not self._may_write() or not self._knows_the_book():
            return
        if not self._lock.acquire(timeout=TURN_SECONDS):
            return  # the next tick goes on
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
        for document in self._book.moving():
            if (intent := document.move) is not None:
                yield document, intent

    def _knows_the_book(self) -> bool:
        """A new leader reads what the former one stored before it goes on with it."""
        if not self._taken_over:
            try:
                self._book.refresh()
            except ObservationError:
                return False
            self._taken_over = True
        return True

    def _safely(self, document: GrowthDocument, intent: MoveIntent, after_each: Callable[[], None]) -> None:
        name = f"{document.namespace}/{document.name}"
        try:
            self._go_on(document, intent, after_each)
        except ActuationError:
            return  # another replica leads, and goes on
        except SlopewiseError as error:
            self._log.warning("move", workload=name, reason=str(error))
        except Exception as error:
            self._log.error("move", workload=name, reason=repr(error), exc_info=error)

    def _go_on(self, document: GrowthDocument, intent: MoveIntent, after_each: Callable[[], None]) -> None:
        age = self._clock.now() - intent.since.timestamp()
        if age > LONGEST_MOVE_SECONDS:
            self._clear(document, f"not over after {age:.0f} s; its pods are left to the default scheduler")
            return
        replacements = Replacements(self._pods.items(), document.namespace, intent)
        over = True
        for leaving in intent.pods:
            step = next_step(leaving, intent, replacements, age)
            goes_on = self._take_step(document, leaving, intent, step, age)
            self._steps[leaving.uid] = step.words if goes_on else ""
            over = over and not goes_on
            after_each()
        if over:
            self._clear(document, "every pod of it has found its place" if intent.node else "its pods run anywhere")

    def _take_step(
        self, document: GrowthDocument, leaving: PodMove, intent: MoveIntent, step: Step, age: float
    ) -> bool:
        """Do what is next for one pod; False when nothing more is to come for it."""
        if step.evict is not None and self._may_try(step.evict.uid):
            self._evict(step.evict)
        if step.open is not None and self._may_try(step.open.uid):
            self._open(document, step.open, intent.node)
        if step.words == AWAITED and self._owner_is_over(document.namespace, leaving, age):
            return False
        return bool(step.words)

    def _open(self, document: GrowthDocument, pod: PodRecord, node: str) -> None:
        """Pinned, unless the node has become one that would not take it: then where the scheduler likes."""
        self._tried[pod.uid] = self._clock.monotonic()
        name = f"{pod.namespace}/{pod.name}"
        if node and (why := would_refuse(pod, node, self._nodes)) is not None:
            self.give_up_node(pod, why)
            node = ""
        opened = self._opener.open(pod, Aim(node, pin=True) if node else None)
        if opened.result != "applied" and not opened.over:
            self._log.warning("gate not opened", pod=name, reason=opened.detail)

    def _owner_is_over(self, namespace: str, leaving: PodMove, age: float) -> bool:
        """Whether no replacement is to come: the owner is gone, suspended or has ended. Asked once a minute."""
        if age < ASK_OWNER_SECONDS or not self._may_try(leaving.uid, ASK_OWNER_SECONDS):
            return False
        self._tried[leaving.uid] = self._clock.monotonic()
        owner = OwnerRef(leaving.owner.api_version, leaving.owner.kind, leaving.owner.name, leaving.owner.uid)
        return makes_no_more(self._api, namespace, owner, leaving.name)

    def _may_try(self, uid: str, pause_seconds: float = RETRY_SECONDS) -> bool:
        return self._clock.monotonic() - self._tried.get(uid, float("-inf")) >= pause_seconds

    def _clear(self, document: GrowthDocument, why: str) -> None:
        document.move = None
        if not document.lost:  # else its workload is gone, and nothing is to be made anew for it
            self._book.changed(document, transition=True)
        self._log.info("move over", workload=f"{document.namespace}/{document.name}", reason=why, way="evict")

    def _check_leading(self) -> None:
        if not self._may_write():
            raise ActuationError("this replica does not lead any more; nothing was sent")
