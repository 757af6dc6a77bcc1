"""Moving a Job by suspending it: what is written on it, and what comes next. Pure: nothing is sent, no clock is read.

`suspending.py` sends the first patch (`begun`); `following.py` reads a Job and its pods, asks `next_change` and sends
the others; the sweeper asks `freed`. How far a move is stands in an annotation of the Job (`job_moves.py`), and every
patch changes that together with what it is about. So there is no moment between two writes: whoever comes after a crash
reads the step and goes on.

    begun      suspend: true                     -> leaving    its pods save and end
    leaving    no pod is left: affinity to the
               target, suspend: false            -> pinning    its pods start on the target
    pinning    all pods run on the target        -> pinned     over; the annotation stays as long as the pin
    pinning,   a pod is unschedulable for 20 s,
    pinned     or the node is gone: suspend      -> unpinning  its pods end
    unpinning  no pod is left: the affinity that
               its owner wrote, suspend: false   -> (no annotation) the default scheduler places it

Crashes, by what the next leader (or the sweeper) finds: `leaving` or `unpinning` with pods: it waits as before; without
pods: it sends the resuming patch, which the crash may have kept from being sent. A patch that was sent and whose answer
was lost is seen by its step. `pinning` and `pinned` run on their own, and are only watched. A Job that is suspended at
one of these was suspended by somebody else, since ours changes the step too, and stays suspended: at `pinning` it is
unpinned, at `pinned` it keeps the pin, for nobody looks at it until its node is gone or a pod of it finds no room. A
template that is not pinned (the owner of a copy has edited it) has nothing to be taken back: only the annotation goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from controller.adapters.kube.contracts import Json
from controller.adapters.kube.job_moves import JobMove, move_on
from controller.adapters.kube.pinning import is_pinned_to, pinned
from controller.adapters.kube.records import MOVE, PodRecord

UNSCHEDULABLE_SECONDS = 20.0
"""A pinned pod that finds no room for so long is let go. Nodes free up within a second when a pod ends, not later."""

ARRIVAL_SECONDS = 600.0
"""A move counts as over after so long, whatever its pods do: an image that cannot be pulled must not end all moves."""

_FAILED = ("Failed", "FailureTarget")
_FINISHED = ("Complete", "SuccessCriteriaMet", *_FAILED)


# --- what a Job shows -------------------------------------------------------------------------------------


def affinity_of(job: Json) -> Json:
    """Of its template, as it is now."""
    affinity: Json = job["spec"]["template"]["spec"].get("affinity") or {}
    return affinity


def owners_node_affinity(job: Json) -> Json | None:
    """What its owner wrote: of a Job that is pinned already, what we have kept of it."""
    move = move_on(job)
    if move is not None and _pin(move, job) is not None:
        return move.node_affinity
    node_affinity: Json | None = affinity_of(job).get("nodeAffinity")
    return node_affinity


def pin_in(affinity: Json, move: JobMove) -> str | None:
    """The node to which a template of this affinity is tied, by this move or by the one before; None: it is as its
    owner wrote it."""
    return next((node for node in (move.to_node, move.from_node) if is_pinned_to(affinity, node)), None)


def _pin(move: JobMove, job: Json) -> str | None:
    return pin_in(affinity_of(job), move)


def is_suspended(job: Json) -> bool:
    """Whether it is asked to have no pods."""
    return bool(job["spec"].get("suspend"))


def has_stopped(job: Json) -> bool:
    """Whether the Job controller has seen that: before, the template is frozen, and a pod may still be created."""
    return _has_condition(job, ("Suspended",)) and not job["status"].get("active")


def is_finished(job: Json) -> bool:
    """Whether it has ended, or is about to."""
    return _has_condition(job, _FINISHED)


def ends_with_failure(job: Json) -> bool:
    """Whether it has failed for good, or is about to."""
    return _has_condition(job, _FAILED)


def _has_condition(job: Json, kinds: tuple[str, ...]) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(each["type"] in kinds and each["status"] == "True" for each in conditions)


# --- what comes next --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Facts:
    """What the cluster shows of a Job that is being moved, at one moment."""

    job: Json
    """As it was just read."""
    live: tuple[PodRecord, ...]
    """Its pods that have not ended; without those whose node has been gone for so long that they count as ended."""
    unschedulable_seconds: float = 0.0
    """For how long one of them has found no room."""
    target_trouble: str | None = None
    """Why nothing can start on the target any more (it is gone, say); None: it can, as far as is known."""
    target_gone: bool = False


MoveEnd = Literal["cancelled", "released"]
"""The Job is not moved after all; or it is tied to no node any more after a move."""


@dataclass(frozen=True, slots=True)
class Change:
    """One patch, and what it means."""

    body: Json
    after: JobMove | None
    """None: the annotation goes, and with it the pin."""
    told: str
    warning: bool = False
    ended: MoveEnd | None = None
    """What is kept of it in the Job's history; None: nothing."""


def begun(job: Json, move: JobMove) -> Json:
    """The patch that begins a move: its pods are to end, and why stands beside it."""
    return _patch(job, move, {"suspend": True})


def next_change(move: JobMove, facts: Facts, now_seconds: float) -> Change | None:
    """What is to be written now; None: nothing, it waits."""
    if facts.job["metadata"].get("deletionTimestamp"):
        return None
    if is_finished(facts.job):
        return Change(_patch(facts.job, None), None, "it has ended, so nothing is left to move")
    if move.step in ("leaving", "unpinning"):
        return _after_ending(move, facts, now_seconds)
    return _after_starting(move, facts, now_seconds)


def _after_ending(move: JobMove, facts: Facts, now: float) -> Change | None:
    """It was suspended by us."""
    if not is_suspended(facts.job):
        return _resumed_by_others(move, facts.job, now)
    if facts.live or not has_stopped(facts.job):
        return None
    if move.step == "unpinning":
        return _resume_anywhere(facts.job, move, f"it starts wherever the scheduler puts it, no more on {move.to_node}")
    if facts.target_trouble is not None:
        why = f"not moved to {move.to_node}: {facts.target_trouble}; it starts wherever the scheduler puts it"
        return _resume_anywhere(facts.job, move, why, ended="cancelled")
    after = move.at("pinning", now)
    pin = pinned({"nodeAffinity": move.node_affinity}, move.to_node)["nodeAffinity"]
    spec = {"suspend": False, **_template(facts.job, pin)}
    return Change(_patch(facts.job, after, spec), after, f"its pods have ended; it starts on {move.to_node}")


def _after_starting(move: JobMove, facts: Facts, now: float) -> Change | None:
    """It was resumed by us, with a pin."""
    if is_suspended(facts.job):
        return _suspended_by_others(move, facts)
    if _pin(move, facts.job) is None:
        return Change(_patch(facts.job, None), None, f"its template is not tied to {move.to_node}")
    if facts.target_gone:
        return _let_go(move, facts.job, f"{move.to_node} is gone", now)
    if facts.unschedulable_seconds >= UNSCHEDULABLE_SECONDS and not any(pod.deleting for pod in facts.live):
        # While a pod of it is ending somewhere nobody may start another: on a lost node that is for its owner to end.
        return _let_go(
            move, facts.job, f"{move.to_node} has had no place for it for {facts.unschedulable_seconds:.0f} s", now
        )
    if move.step == "pinned":
        return None
    after = move.at("pinned", now)
    if has_arrived(move, facts.live):
        return Change(_patch(facts.job, after), after, f"it runs on {move.to_node}")
    if now - move.step_since_seconds >= ARRIVAL_SECONDS:
        why = f"it does not run on {move.to_node} after {ARRIVAL_SECONDS:.0f} s; `kubectl describe` its pods to see why"
        return Change(_patch(facts.job, after), after, why, warning=True)
    return None


def has_arrived(move: JobMove, live: Sequence[PodRecord]) -> bool:
    """Whether all of its pods run on the target."""
    there = [pod for pod in live if pod.node == move.to_node and pod.phase == "Running"]
    return len(live) == len(there) >= len(move.job_uids)


def is_held(job: Json) -> bool:
    """Whether it stays suspended until we resume it; not one that has ended, or that its owner deletes."""
    move = move_on(job)
    held = move is not None and move.step in ("leaving", "unpinning") and is_suspended(job)
    return held and not is_finished(job) and not job["metadata"].get("deletionTimestamp")


def freed(job: Json, *, live_pods: int, lost: bool, now_seconds: float) -> Json | None:
    """The patch that frees a Job whose mover is no more; None: there is nothing to free, or not yet.

    `live_pods`: of its pods, those that are neither Succeeded nor Failed; one that is being deleted counts, unless its
    node has been gone for long. `lost`: a pod of it is unschedulable, or the node that it is pinned to is gone.
    """
    move = move_on(job)
    if move is None or job["metadata"].get("deletionTimestamp") or is_finished(job):
        return None
    if move.step in ("leaving", "unpinning"):
        ready = is_suspended(job) and has_stopped(job) and not live_pods
        return _resume_anywhere(job, move, "").body if ready else None
    if lost and not is_suspended(job) and _pin(move, job) is not None:
        return _let_go(move, job, "", now_seconds).body
    return None


def resume_unchanged(move: JobMove, job: Json, now_seconds: float) -> Change | None:
    """The last resort for a Job whose template cannot be written: it runs again, wherever that lets it."""
    if not is_suspended(job):
        return None
    left = _as_it_is(move, job, now_seconds)
    told = f"its template cannot be changed, so it is not moved to {move.to_node} and starts where that allows"
    return Change(_patch(job, left, {"suspend": False}), left, told, warning=True, ended="cancelled")


def _let_go(move: JobMove, job: Json, why: str, now: float) -> Change:
    after = move.at("unpinning", now)
    told = f"{why}: it ends, to start wherever the scheduler puts it"
    return Change(_patch(job, after, {"suspend": True}), after, told, warning=True, ended="released")


def _resume_anywhere(job: Json, move: JobMove, told: str, *, ended: MoveEnd | None = None) -> Change:
    body = _patch(job, None, {"suspend": False, **_unpinned(job, move)})
    return Change(body, None, told, warning=ended is not None, ended=ended)


def _resumed_by_others(move: JobMove, job: Json, now: float) -> Change:
    left = _as_it_is(move, job, now)
    told = "somebody else has resumed it, so it is not moved"
    return Change(_patch(job, left), left, told, warning=True, ended="cancelled")


def _as_it_is(move: JobMove, job: Json, now: float) -> JobMove | None:
    """Of a Job whose template stays: one that an earlier move has pinned is watched as before."""
    pin = _pin(move, job)
    return move.model_copy(update={"step": "pinned", "to_node": pin, "step_since_seconds": now}) if pin else None


def _suspended_by_others(move: JobMove, facts: Facts) -> Change | None:
    """It stays suspended: that is for whoever did it. The pin would only be in the way when it is resumed."""
    if facts.live or not has_stopped(facts.job):
        return None
    body = _patch(facts.job, None, _unpinned(facts.job, move))
    told = f"somebody else has suspended it; it is no longer tied to {move.to_node}"
    return Change(body, None, told, ended="cancelled" if move.step == "pinning" else "released")


def _patch(job: Json, after: JobMove | None, spec: Json | None = None) -> Json:
    """A merge patch that holds only for the Job as it was read."""
    meta = job["metadata"]
    body: Json = {
        "metadata": {
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
            "annotations": {MOVE: None if after is None else after.written()},
        }
    }
    return {**body, "spec": spec} if spec else body


def _unpinned(job: Json, move: JobMove) -> Json:
    """Nothing is written where nothing is pinned: what an owner has written since is not for us to take back."""
    return {} if _pin(move, job) is None else _template(job, move.node_affinity)


def _template(job: Json, node_affinity: Json | None) -> Json:
    """Affinity between pods is its owner's, and stays as it is now."""
    current = affinity_of(job)
    if node_affinity is None and current.keys() <= {"nodeAffinity"}:
        return {"template": {"spec": {"affinity": None}}}
    wanted = _replacing(current.get("nodeAffinity"), node_affinity)
    return {"template": {"spec": {"affinity": {"nodeAffinity": wanted}}}}


def _replacing(current: Any, wanted: Any) -> Any:
    """What a merge patch must say so that `wanted` is there afterwards, and nothing of `current` beside it."""
    if not (isinstance(current, dict) and isinstance(wanted, dict)):
        return wanted
    removed = {key: None for key in current if key not in wanted}
    return {**removed, **{key: _replacing(current.get(key), value) for key, value in wanted.items()}}
