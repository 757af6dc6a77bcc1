"""The Actuator port of a cluster: one patch of `pods/resize` for each resize, and a message for its outcome.

`resize/target.py` computes the patch, `meanings.py` explains errors. Nothing is sent without the lease, under a Freeze
(`fencing.py`), or without a stored original and a token of the rate limiter. A patch is repeated only after a read has
shown what the first one did. The next pass reads in `Job.actual` and `Job.pending` what the kubelet made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from msgspec import structs

from slopewise.adapters.kube.cache.parsing import parse_pod
from slopewise.adapters.kube.cache.records import MANAGED_LABEL, ManagedPod, Resources
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.fencing import FrozenError, raise_if_frozen, unless
from slopewise.adapters.kube.client.meanings import POD_GONE, POD_REPLACED, Refused, explain
from slopewise.adapters.kube.client.protocol import PARAMS, STRATEGIC_MERGE_PATCH, Api, Json, TakeTurn, path_of
from slopewise.adapters.kube.client.retry import update
from slopewise.adapters.kube.resize import target
from slopewise.adapters.kube.resize.api_refusals import RefusalCache
from slopewise.adapters.kube.resize.progress import WaitedSeconds, in_words, unconfirmed
from slopewise.adapters.kube.resize.target import Impossible, RestoreGoal
from slopewise.adapters.kube.state.freezes import frozen_reason
from slopewise.adapters.kube.workloads.owners import JobIndex
from slopewise.adapters.pauses import GRANT_SECONDS
from slopewise.config.training_policy import ResourceSettings
from slopewise.model import (
    NO_FREEZES,
    CpuAllocation,
    Decision,
    Freezes,
    MemoryAllocation,
    Migrate,
    Move,
    Outcome,
    OutcomeResult,
    Place,
    Resize,
    ResizeMemory,
    Restored,
    Stop,
)
from slopewise.ports import Clock

POD_ENDING = "its pod is ending; there is nothing to resize"

Originals = Callable[[str], CpuAllocation | str]
"""A job's stored original CPU, or why it is not stored: then the job is not changed."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The result of one attempt."""

    result: OutcomeResult
    detail: str = ""
    gone: bool = False
    """The pod is deleted or replaced: nothing of it is left to restore."""


Plan = Callable[[ManagedPod], Resources | Impossible]
"""The desired CPU and memory of a pod's container, computed from the newest read."""


Mover = Callable[[Move | Stop], Outcome[Decision]]
"""Begins a move, or stops a job at its target (`dispatch.KubeMover.begin`)."""


def moves_nothing(decision: Move | Stop) -> Outcome[Decision]:
    """The mover where only resources are restored."""
    return Outcome(decision, "infeasible", "nothing is moved or stopped while a policy is finalized")


class KubeActuator:
    """Resizes pods in place and restores original resources; a mover begins moves and stops."""

    def __init__(
        self,
        api: Api,
        index: JobIndex,
        settings: ResourceSettings,
        take_turn: TakeTurn,
        clock: Clock,
        originals: Originals,
        on_written: Callable[[Json], None] = lambda _: None,
        mover: Mover = moves_nothing,
        waited_seconds: WaitedSeconds = lambda _: None,
        freezes: Callable[[], Freezes] = lambda: NO_FREEZES,
    ) -> None:
        """`on_written` gets each pod that was read or written here, so that the stores need not wait for the watch.

        `waited_seconds`: since when accepted CPU is not in effect (`ResizeProgress`).
        `freezes`: those now; ApiError when they cannot be read. They are read before the first write of a decision.
        """
        self._mover = mover
        self._freezes = freezes
        self._api = api
        self._index = index
        self._settings = settings
        self._take_turn = take_turn
        self._clock = clock
        self._originals = originals
        self._on_written = on_written
        self._waited_seconds = waited_seconds
        self._refusals = RefusalCache(clock)
        self._room_at_seconds: dict[str, float] = {}
        self._kept_limits: dict[str, str] = {}
        """Pods, by uid, whose raised memory limit cannot be restored, and why."""

    def carry_out(self, decision: Decision) -> Outcome[Decision]:
        """Applied once the API server has accepted it, or the move is begun; NotLeadingError without the lease.

        The kubelet reports later what it has no room for. `deferred`, and nothing sent, under a freeze, also of the
        node that a job leaves; the next pass withholds the decision by its guard.
        """
        nodes = (decision.node, decision.from_node) if isinstance(decision, Migrate) else (decision.node,)
        try:
            with unless(lambda: frozen_reason(self._freezes, self._index.find(decision.job_uid), nodes)):
                return self._carry_out_now(decision)
        except FrozenError as error:
            return Outcome(decision, "deferred", str(error))

    def _carry_out_now(self, decision: Decision) -> Outcome[Decision]:
        match decision:
            case Resize():
                attempt = self._attempt(
                    decision.job_uid,
                    lambda pod, original: _with_cpu(pod, target.resized(pod, decision, original, self._settings)),
                )
            case ResizeMemory():
                attempt = self._attempt(decision.job_uid, lambda pod, _: target.with_memory(pod, decision))
            case Place() | Migrate() | Stop():
                return self._mover(decision)
        return Outcome(decision, attempt.result, attempt.detail)

    def restore(self, job_uid: str, original: CpuAllocation, memory: MemoryAllocation | None = None) -> Restored:
        """Restore a pod's original CPU and memory; `applied` once its kubelet reports requests and limits in effect.

        `accepted` until then, and `deferred` once that takes too long: a kubelet that is down carries nothing out. A
        limit that was added stays, and the detail says so. A request that finds no room is retried with pauses, in
        which it blocks no other pod: `deferred` until it is in effect. A memory limit that cannot go down stays. A
        freeze of the effect Freeze defers it; Recommend is there to restore.
        """
        managed = self._index.find(job_uid)
        if managed is None:
            return Restored("gone", "its pod is gone")
        try:
            with unless(lambda: frozen_reason(self._freezes, managed, (managed.pod.node or "",), "Freeze")):
                return self._restore(managed, original, memory)
        except FrozenError as error:
            return Restored("deferred", str(error))

    def _restore(self, managed: ManagedPod, original: CpuAllocation, memory: MemoryAllocation | None) -> Restored:
        pod = managed.pod
        if pod.ended or pod.deleting:
            return Restored("gone", "its pod has ended" if pod.ended else "its pod is being deleted")
        if pod.foreign_resizers:
            return Restored("infeasible", f"{_names(pod.foreign_resizers)} resizes it now, and it keeps what that gave")
        goal = target.restored(managed, original, memory, self._settings)
        if pod.uid in self._kept_limits:
            goal = goal.with_limit_of(managed, self._kept_limits[pod.uid])
        is_written = managed.container.resources == goal.resources
        if not is_written or pod.pending is not None:
            raise_if_frozen()  # before each try takes a turn, which others on its node wait for
        return self._watch(managed, goal) if is_written else self._send_restore(managed, goal)

    def _attempt(self, job_uid: str, change: Callable[[ManagedPod, CpuAllocation], Resources | Impossible]) -> _Attempt:
        managed = self._index.find(job_uid)
        if managed is None:
            return _Attempt("failed", POD_GONE, gone=True)
        original = self._originals(job_uid)
        if isinstance(original, str):
            return _Attempt("failed", original)
        waits = _not_now(managed)
        if waits is not None:
            return waits
        return self._carry_out(managed, lambda pod: change(pod, original))

    # --- restoring ------------------------------------------------------------------------------------------

    def _send_restore(self, managed: ManagedPod, goal: RestoreGoal) -> Restored:
        paused = self._room_at_seconds.get(managed.job_uid, 0.0) - self._clock.monotonic()
        if paused > 0:
            return Restored("deferred", f"its request waits for room on {managed.pod.node}; tried in {paused:.0f} s")
        attempt = self._carry_out(managed, lambda _: goal.resources)
        if attempt.result == "infeasible" and goal.lowers_limit(managed):  # before 1.34 no memory limit goes down
            self._kept_limits[managed.pod.uid] = attempt.detail
            attempt = self._carry_out(managed, lambda _: goal.with_limit_of(managed, "").resources)
        if attempt.result == "applied":
            return Restored("accepted", f"the API server has accepted it; {managed.pod.node} has not reported it yet")
        return Restored("gone" if attempt.gone else attempt.result, attempt.detail)

    def _watch(self, managed: ManagedPod, goal: RestoreGoal) -> Restored:
        """The result of an accepted restore, by its kubelet's report; a request without room is withdrawn."""
        pod, container, pending = managed.pod, managed.container, managed.pod.pending
        if pending is None and container.matches_spec and not pod.unobserved:
            self._room_at_seconds.pop(managed.job_uid, None)
            return Restored("applied", goal.note)
        if pending is None:  # in time, or late
            found = unconfirmed(managed, self._waited_seconds(managed.pod.uid))
            return Restored("deferred" if found.late else "accepted", found.detail)
        if pending.kind == "Error":
            return self._after_error(managed, pending.message)
        request, of_memory = goal.resources.cpu.request_millicores, not container.memory_matches_spec
        attempt = self._carry_out(managed, goal.without_room)
        if attempt.result != "applied":
            return Restored("deferred", attempt.detail)
        self._room_at_seconds[managed.job_uid] = self._clock.monotonic() + GRANT_SECONDS
        return Restored(
            "deferred",
            f"{pod.node} has no room for its request of {request}m{' and its memory' if of_memory else ''} "
            f"({pending.message}); tried again after {GRANT_SECONDS:.0f} s",
        )

    def _after_error(self, managed: ManagedPod, message: str) -> Restored:
        """A kubelet lowers no memory limit below the use of a container: that limit is taken back, and stays."""
        reported, desired = managed.container.reported_memory, managed.container.memory
        waits = Restored("deferred", f"waits for {managed.pod.node}: {message}")
        has = None if reported is None else reported.limit_bytes
        if has is None or desired.limit_bytes is None or has <= desired.limit_bytes:
            return waits
        memory = desired.altered("limit", has)
        attempt = self._carry_out(managed, lambda pod: Resources(pod.container.desired, memory))
        if attempt.result == "applied":
            self._kept_limits[managed.pod.uid] = message
        return waits

    # --- one patch ------------------------------------------------------------------------------------------

    def _carry_out(self, managed: ManagedPod, plan: Plan) -> _Attempt:
        """Send the planned CPU, unless nothing changes, it is known to be refused, or no turn is free."""
        wanted = _planned(managed, plan)
        if isinstance(wanted, _Attempt):
            return wanted
        refused = self._refusals.find(managed, wanted)
        if refused is not None:
            return _attempt_of(refused)
        wait = self._take_turn(managed.pod.node or "", managed.pod.namespace)
        return _Attempt("deferred", wait) if wait is not None else self._send(managed, plan)

    def _send(self, managed: ManagedPod, plan: Plan) -> _Attempt:
        """One patch; after a conflict the pod is read, planned again and patched once more."""
        try:
            return update(partial(self._patch, plan=plan), partial(self._read_again, managed), managed)
        except ApiError as error:
            return _attempt_of(explain(error, "resize"))

    def _patch(self, managed: ManagedPod | _Attempt, plan: Plan) -> _Attempt:
        """ApiError for a conflict, and then nothing was changed."""
        if isinstance(managed, _Attempt):
            return managed
        wanted = _planned(managed, plan)
        if isinstance(wanted, _Attempt):
            return wanted
        body = target.patch_body(managed.pod, managed.container, wanted)
        path = f"{_path(managed)}/resize"
        try:
            answer = self._api.patch(path, body, STRATEGIC_MERGE_PATCH, PARAMS)
        except ApiError as error:
            if error.is_conflict:
                raise
            if error.maybe_done:
                return self._find_out(managed, wanted, error)
            return _attempt_of(self._refusals.remember(managed, wanted, explain(error, "resize")))
        if MANAGED_LABEL in managed.pod.labels:  # of others the stores know nothing
            self._on_written(answer)
        return _Attempt("applied")

    def _find_out(self, managed: ManagedPod, wanted: Resources, error: ApiError) -> _Attempt:
        """Read the pod after a patch without a response, which may have been carried out."""
        fresh = self._read(managed)
        if isinstance(fresh, _Attempt):
            return _Attempt("failed", f"not known whether it was done ({error.message}); the next pass will see")
        if fresh.container.resources == wanted:
            return _Attempt("applied", "the API server's answer was lost; the pod has it")
        return _Attempt("failed", f"it was not done ({error.message}); tried again in the next pass")

    def _read_again(self, managed: ManagedPod) -> ManagedPod | _Attempt:
        """The same pod as it is now, if the decision still applies to it."""
        fresh = self._read(managed)
        if isinstance(fresh, _Attempt):
            return fresh
        has, had = fresh.container.resources, managed.container.resources
        if MANAGED_LABEL not in fresh.pod.labels:
            return _Attempt("infeasible", label_removed(fresh))
        if fresh.pod.foreign_resizers:
            return _Attempt("failed", f"{_names(fresh.pod.foreign_resizers)} has resized it; it is left to that")
        if has != had:
            return _Attempt("failed", "somebody has changed its resources meanwhile; decided again in the next pass")
        return fresh

    def _read(self, managed: ManagedPod) -> ManagedPod | _Attempt:
        """The pod from the API server; a failed attempt when it is replaced, ending or unreadable."""
        try:
            raw = self._api.get(_path(managed))
            pod = parse_pod(raw)
        except ApiError as error:
            return replace(_attempt_of(explain(error, "resize")), result="failed")
        except ValueError as error:
            return _Attempt("failed", str(error))
        if pod.uid != managed.pod.uid or pod.owner != managed.pod.owner:
            return _Attempt("failed", POD_REPLACED, gone=True)
        if MANAGED_LABEL in pod.labels:
            self._on_written(raw)
        container = next((each for each in pod.containers if each.name == managed.container.name), None)
        if container is None or pod.deleting or pod.ended:
            return _Attempt("failed", POD_ENDING, gone=True)
        return structs.replace(managed, pod=pod, container=container)


def _with_cpu(managed: ManagedPod, cpu: CpuAllocation | Impossible) -> Resources | Impossible:
    """The given CPU, and the memory as it is."""
    return cpu if isinstance(cpu, Impossible) else Resources(cpu, managed.container.memory)


def _planned(managed: ManagedPod, plan: Plan) -> Resources | _Attempt:
    """The resources to write; an attempt when there is nothing to write, or when it is impossible."""
    wanted = plan(managed)
    if isinstance(wanted, Impossible):
        return _Attempt("infeasible", wanted.reason)
    return _Attempt("applied", "it has that already") if wanted == managed.container.resources else wanted


def _attempt_of(refusal: Refused) -> _Attempt:
    return _Attempt(refusal.result, refusal.detail, refusal.gone)


def _not_now(managed: ManagedPod) -> _Attempt | None:
    """Only running, ready containers are resized: one that is being OOM-killed, for example, resizes badly."""
    pod, container = managed.pod, managed.container
    if pod.deleting or pod.ended:
        return _Attempt("failed", POD_ENDING, gone=True)
    if pod.foreign_resizers:
        return _Attempt("failed", f"{_names(pod.foreign_resizers)} has resized it; it is left to that")
    if pod.phase != "Running" or container.running_since_seconds is None or not container.ready:
        return _Attempt("deferred", f"its container {container.name} is starting or not ready; tried in the next pass")
    return None


def label_removed(managed: ManagedPod) -> str:
    """The message about a pod whose label was removed."""
    kept = in_words(managed.container.desired)
    return f"its label {MANAGED_LABEL} was taken off, so it may not be changed any more and keeps {kept}"


def _names(managers: tuple[str, ...]) -> str:
    return " and ".join(managers)


def _path(managed: ManagedPod) -> str:
    return path_of("v1", "pods", managed.pod.namespace, managed.pod.name)
