"""The Actuator port of a cluster: one patch of `pods/resize` a resize, and a sentence for whatever becomes of it.

Before it: guards, and originals that the memory has stored. After it: the next pass, which sees in `Job.actual` and
`Job.pending` what the kubelet made of a patch that the API server accepted. `resources.py` says what to write,
`refusals.py` what an error means. Nothing is sent without leadership, a stored original and a token; nothing is sent
twice without having read what the first try did.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from controller.adapters.kube import resources
from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.contracts import STRATEGIC_MERGE_PATCH, Api, Json, MayWrite, Roster
from controller.adapters.kube.namespace_limits import ChangesOf, LimitKind, unknown_changes
from controller.adapters.kube.parsing import parse_pod
from controller.adapters.kube.paths import path_of
from controller.adapters.kube.records import FIELD_MANAGER, MANAGED_LABEL, ManagedPod
from controller.adapters.kube.refusals import POD_GONE, POD_REPLACED, Changes, InVain, Refusal, meaning
from controller.adapters.kube.resize_progress import WaitedSeconds, in_words, nothing_awaited, unconfirmed
from controller.adapters.kube.resources import Impossible
from controller.adapters.kube.unwatched import FindUnwatched, nothing_unwatched
from controller.errors import ActuationError
from controller.model import CpuAllocation, Move, MoveOutcome, Outcome, OutcomeResult, Resize, Restored
from controller.ports import Clock
from controller.settings import ResourceSettings

ROOM_RETRY_SECONDS = 60.0
"""How long a restored request that found no room is not asked for again: while it waits it takes room from others."""

POD_ENDING = "its pod is ending; there is nothing to resize"

Originals = Callable[[str], CpuAllocation | None]
"""What is stored of a job's original resources; None: nothing, and then the job is not changed."""


class Turns(Protocol):
    """Who may write now (`buckets.Buckets`): so many resizes a minute per node, namespace and cluster."""

    def take(self, node: str, namespace: str) -> str | None:
        """None: go ahead; else a sentence, which says when there is another turn."""
        ...


@dataclass(frozen=True, slots=True)
class _Said:
    """What became of one attempt."""

    result: OutcomeResult
    detail: str = ""
    gone: bool = False
    """The pod is no more, or another has its name: nothing of ours is left to give back."""


Plan = Callable[[ManagedPod], CpuAllocation | Impossible]
"""What a pod's container is to have, worked out anew from what was read last."""


Mover = Callable[[Move], MoveOutcome]
"""Begins a move (`mover.KubeMover.move`)."""


def moves_nothing(move: Move) -> MoveOutcome:
    """Where only resources are given back."""
    return MoveOutcome(move, "infeasible", "nothing is moved while a policy ends")


@dataclass(frozen=True, slots=True)
class ResizeContext:
    """What an actuator asks about a pod besides the pod itself."""

    waited_seconds: WaitedSeconds = nothing_awaited
    """Since when what was accepted for it is not in effect (`ResizeProgress`)."""
    changes_of: ChangesOf = unknown_changes
    """How often what may refuse a resize in its namespace has changed (`NamespaceLimits`)."""
    unwatched: FindUnwatched = nothing_unwatched
    """Finds pods whose label was taken off (`UnwatchedPods`)."""
    restores_unlabelled: bool = False
    """Such pods are given back all the same: a person does it, by rights of their own."""


class KubeActuator:
    """Resizes pods in place and gives original resources back; moves are begun by whoever it is given for that."""

    def __init__(
        self,
        api: Api,
        roster: Roster,
        settings: ResourceSettings,
        may_write: MayWrite,
        turns: Turns,
        clock: Clock,
        originals: Originals,
        on_written: Callable[[Json], None] = lambda _: None,
        mover: Mover = moves_nothing,
        context: ResizeContext | None = None,
    ) -> None:
        """`on_written` is handed each pod that was read or written here, so that the stores need not wait for it."""
        self._mover = mover
        self._api = api
        self._roster = roster
        self._settings = settings
        self._may_write = may_write
        self._turns = turns
        self._clock = clock
        self._originals = originals
        self._on_written = on_written
        self._context = context or ResizeContext()
        self._in_vain = InVain(clock, self._context.changes_of)
        self._room_at_seconds: dict[str, float] = {}

    def resize(self, resize: Resize) -> Outcome:
        """Applied once the API server has accepted it; `ActuationError` when we do not lead."""
        said = self._resize(resize)
        return Outcome(resize, said.result, said.detail)

    def waits_for(self, kind: LimitKind, namespace: str) -> bool:
        """Whether a change of these may let through what they have refused."""
        return self._in_vain.waits_for(kind, namespace)

    def move(self, move: Move) -> MoveOutcome:
        """Begin it; `applied` once it is begun, `ActuationError` when we do not lead."""
        return self._mover(move)

    def restore(self, job_uid: str, original: CpuAllocation) -> Restored:
        """Give a pod what it had before our first change; `applied` once its kubelet reports both sides in effect.

        `accepted` until then, and `deferred` once that takes too long: a kubelet that is down carries nothing out,
        whatever the API server has accepted. A limit that was added stays, and its detail says so. A request whose room
        somebody else took meanwhile is asked for again and again, with pauses in which it blocks nobody: `deferred`
        until it is back.
        """
        self._check_leading()
        managed = self._roster.find(job_uid) or self._context.unwatched(job_uid)
        if managed is None:
            return Restored("gone", "its pod is gone")
        pod = managed.pod
        if MANAGED_LABEL not in pod.labels and not self._context.restores_unlabelled:
            return Restored("infeasible", label_removed(managed))
        if pod.ended or pod.deleting:
            return Restored("gone", "its pod has ended" if pod.ended else "its pod is being deleted")
        if pod.foreign_resizers:
            return Restored("infeasible", f"{_names(pod.foreign_resizers)} resizes it now, and it keeps what that gave")
        goal = resources.restored(managed, original, self._settings)
        if managed.container.wished == goal.allocation:
            return self._look_after(managed, goal)
        return self._ask_back(managed, goal)

    def _resize(self, resize: Resize) -> _Said:
        self._check_leading()
        managed = self._roster.find(resize.job_uid)
        if managed is None:
            return _Said("failed", POD_GONE, gone=True)
        original = self._originals(resize.job_uid)
        if original is None:
            return _Said("failed", "its original resources could not be stored, so it is not changed yet")
        waits = _not_now(managed)
        if waits is not None:
            return waits
        return self._carry_out(managed, lambda pod: resources.resized(pod, resize, original, self._settings))

    # --- restoring ------------------------------------------------------------------------------------------

    def _ask_back(self, managed: ManagedPod, goal: resources.Goal) -> Restored:
        paused = self._room_at_seconds.get(managed.job_uid, 0.0) - self._clock.monotonic()
        if paused > 0:
            return Restored("deferred", f"its request waits for room on {managed.pod.node}; tried in {paused:.0f} s")
        said = self._carry_out(managed, lambda _: goal.allocation)
        if said.result == "applied":
            return Restored("accepted", f"the API server has accepted it; {managed.pod.node} has not reported it yet")
        return Restored("gone" if said.gone else said.result, said.detail)

    def _look_after(self, managed: ManagedPod, goal: resources.Goal) -> Restored:
        """It is accepted. Whether the kubelet follows shows in what it reports; a wish that waits is taken back."""
        pod, container, pending = managed.pod, managed.container, managed.pod.pending
        if pending is None and container.follows and not pod.unobserved:
            self._room_at_seconds.pop(managed.job_uid, None)
            return Restored("applied", goal.note)
        if pending is None:
            return self._wait_for_kubelet(managed)
        if pending.kind == "Error":
            return Restored("deferred", f"waits for {pod.node}: {pending.message}")
        request = goal.allocation.request_millicores
        said_back = self._carry_out(managed, lambda pod: resources.without_room(pod, goal.allocation))
        if said_back.result != "applied":
            return Restored("deferred", said_back.detail)
        self._room_at_seconds[managed.job_uid] = self._clock.monotonic() + ROOM_RETRY_SECONDS
        return Restored(
            "deferred",
            f"{managed.pod.node} has no room for its request of {request}m ({pending.message}); "
            f"tried again after {ROOM_RETRY_SECONDS:.0f} s",
        )

    def _wait_for_kubelet(self, managed: ManagedPod) -> Restored:
        """A kubelet that is down is waited for, and that is trouble; one that was asked a moment ago is not late."""
        found = unconfirmed(managed, self._context.waited_seconds(managed.pod.uid))
        return Restored("deferred" if found.late else "accepted", found.detail)

    # --- one patch ------------------------------------------------------------------------------------------

    def _carry_out(self, managed: ManagedPod, plan: Plan) -> _Said:
        """Send what the plan says, unless nothing changes, it is known to be refused, or it is not our turn."""
        wanted = _wanted(managed, plan)
        if isinstance(wanted, _Said):
            return wanted
        refused = self._in_vain.find(managed, wanted)
        if refused is not None:
            return _as_said(refused)
        wait = self._turns.take(managed.pod.node or "", managed.pod.namespace)
        return _Said("deferred", wait) if wait is not None else self._send(managed, plan)

    def _send(self, managed: ManagedPod, plan: Plan) -> _Said:
        """One patch; after a conflict the pod is read and thought over, and then there is one more."""
        said = self._patch(managed, plan)
        if said is not None:
            return said
        fresh = self._read_again(managed)
        if isinstance(fresh, _Said):
            return fresh
        said = self._patch(fresh, plan)
        return said or _Said("failed", "its pod changes faster than it can be read; tried again in the next pass")

    def _patch(self, managed: ManagedPod, plan: Plan) -> _Said | None:
        """None: a conflict, and nothing was changed."""
        wanted = _wanted(managed, plan)
        if isinstance(wanted, _Said):
            return wanted
        body = resources.patch_body(managed.pod, managed.container, wanted)
        path = f"{_path(managed)}/resize"
        before = self._in_vain.changes(managed.pod.namespace)
        self._check_leading()
        try:
            answer = self._api.patch(path, body, STRATEGIC_MERGE_PATCH, {"fieldManager": FIELD_MANAGER})
        except ApiError as error:
            return None if error.is_conflict else self._explain(managed, wanted, error, before)
        if MANAGED_LABEL in managed.pod.labels:  # of others the stores know nothing
            self._on_written(answer)
        return _Said("applied")

    def _explain(self, managed: ManagedPod, wanted: CpuAllocation, error: ApiError, before: Changes) -> _Said:
        if error.maybe_done:
            return self._find_out(managed, wanted, error)
        return _as_said(self._in_vain.remember(managed, wanted, meaning(error), before))

    def _find_out(self, managed: ManagedPod, wanted: CpuAllocation, error: ApiError) -> _Said:
        """A patch without an answer may have been carried out: only the pod itself knows."""
        fresh = self._read(managed)
        if isinstance(fresh, _Said):
            return _Said("failed", f"not known whether it was done ({error.message}); the next pass will see")
        if fresh.container.wished == wanted:
            return _Said("applied", "the API server's answer was lost; the pod has it")
        return _Said("failed", f"it was not done ({error.message}); tried again in the next pass")

    def _read_again(self, managed: ManagedPod) -> ManagedPod | _Said:
        """The same pod as it is now, if it still is what was decided on."""
        fresh = self._read(managed)
        if isinstance(fresh, _Said):
            return fresh
        has, had = fresh.container.wished, managed.container.wished
        if MANAGED_LABEL not in fresh.pod.labels and not self._context.restores_unlabelled:
            return _Said("infeasible", label_removed(fresh))
        if fresh.pod.foreign_resizers:
            return _Said("failed", f"{_names(fresh.pod.foreign_resizers)} has resized it; it is left to that")
        if has != had:
            return _Said("failed", "somebody has changed its CPU meanwhile; decided on anew in the next pass")
        return fresh

    def _read(self, managed: ManagedPod) -> ManagedPod | _Said:
        """The pod from the API server; a sentence when it is another one, is ending, or cannot be read."""
        try:
            raw = self._api.get(_path(managed))
            pod = parse_pod(raw)
        except ApiError as error:
            return replace(_as_said(meaning(error)), result="failed")
        except ValueError as error:
            return _Said("failed", str(error))
        if pod.uid != managed.pod.uid or pod.owner != managed.pod.owner:
            return _Said("failed", POD_REPLACED, gone=True)
        if MANAGED_LABEL in pod.labels:
            self._on_written(raw)
        container = next((each for each in pod.containers if each.name == managed.container.name), None)
        if container is None or pod.deleting or pod.ended:
            return _Said("failed", POD_ENDING, gone=True)
        return replace(managed, pod=pod, container=container)

    def _check_leading(self) -> None:
        if not self._may_write():
            raise ActuationError("this replica does not lead any more; nothing was sent")


def _wanted(managed: ManagedPod, plan: Plan) -> CpuAllocation | _Said:
    """What is to be written; a sentence when there is nothing to write, or when it cannot be."""
    wanted = plan(managed)
    if isinstance(wanted, Impossible):
        return _Said("infeasible", wanted.reason)
    return _Said("applied", "it has that already") if wanted == managed.container.wished else wanted


def _as_said(refusal: Refusal) -> _Said:
    return _Said(refusal.result, refusal.detail, refusal.gone)


def _not_now(managed: ManagedPod) -> _Said | None:
    """Only running, ready containers are resized: one that is being OOM-killed, say, resizes badly."""
    pod, container = managed.pod, managed.container
    if pod.deleting or pod.ended:
        return _Said("failed", POD_ENDING, gone=True)
    if pod.foreign_resizers:
        return _Said("failed", f"{_names(pod.foreign_resizers)} has resized it; it is left to that")
    if pod.phase != "Running" or container.running_since_seconds is None or not container.ready:
        return _Said("deferred", f"its container {container.name} is starting or not ready; tried in the next pass")
    return None


def label_removed(managed: ManagedPod) -> str:
    """What is to be said of a pod whose label was taken off."""
    return (
        f"its label {MANAGED_LABEL} was taken off, so it may not be changed any more and keeps "
        f'{in_words(managed.container.wished)}; set the label to "false" to give it back what it came with'
    )


def _names(managers: tuple[str, ...]) -> str:
    return " and ".join(managers)


def _path(managed: ManagedPod) -> str:
    return path_of("v1", "pods", managed.pod.namespace, managed.pod.name)
