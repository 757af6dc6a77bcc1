"""Computes the next patch of a Job that is moved by suspension: its steps, pins and resumption. Pure.

`suspend/begin.py` sends the first patch (`begun`), `suspend/controller.py` the others (`next_change`), the sweeper
those of `freed`. An annotation of the Job stores the step (`suspend/annotation.py`), and every patch changes the step
together with the spec. So no crash falls between two writes, and the next leader reads the step and continues.

    begun      suspend: true                     -> leaving    its pods save and end
    leaving    no pod is left: affinity to the
               target, suspend: false            -> pinning    its pods start on the target
    pinning    all pods run on the target        -> pinned     over; the annotation stays as long as the pin
    pinning,   a pod is unschedulable for 20 s,
    pinned     or the node is gone: suspend      -> unpinning  its pods end
    unpinning  no pod is left: the affinity that
               its owner wrote, suspend: false   -> (no annotation) the default scheduler places it

After a crash the next leader (or the sweeper) continues by the step:

- `leaving` or `unpinning` with pods waits as before; without pods it sends the resuming patch.
- A patch whose response was lost is recognized by its step.
- `pinning` and `pinned` run by themselves, and are only watched. A Job that is suspended in one of these was suspended
  by others, since our suspension changes the step, and stays suspended: at `pinning` it is unpinned, at `pinned` it
  keeps the pin until its node is deleted or a pod of it finds no room.
- A template without a pin (the owner of a copy has edited it) stays as it is, and only the annotation is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from slopewise.adapters.kube.cache.records import MOVE, PodRecord
from slopewise.adapters.kube.client.protocol import Json
from slopewise.adapters.kube.moves.node_predicates import is_pinned_to, pinned
from slopewise.adapters.kube.moves.recreation import has_condition, is_finished
from slopewise.adapters.kube.moves.stop_note import note_on
from slopewise.adapters.kube.moves.suspend.annotation import JobMove, move_on

UNSCHEDULABLE_SECONDS = 20.0
"""A pinned pod without room for so long is released. A node frees up within a second when a pod ends, not later."""

ARRIVAL_SECONDS = 600.0
"""A move counts as over after so long, whatever its pods do: an image that cannot be pulled must not block all
moves."""

# --- what a Job shows -------------------------------------------------------------------------------------


def affinity_of(job: Json) -> Json:
    """Of its template, as it is now."""
    affinity: Json = job["spec"]["template"]["spec"].get("affinity") or {}
    return affinity


def owners_node_affinity(job: Json) -> Json | None:
    """The owner's node affinity: of a pinned Job, the stored one."""
    move = move_on(job)
    if move is not None and _pin(move, job) is not None:
        return move.node_affinity
    node_affinity: Json | None = affinity_of(job).get("nodeAffinity")
    return node_affinity


def pin_in(affinity: Json, move: JobMove) -> str | None:
    """The node that a template's affinity is pinned to, by this move or the last one; None: it is the owner's own."""
    return next((node for node in (move.to_node, move.from_node) if is_pinned_to(affinity, node)), None)


def _pin(move: JobMove, job: Json) -> str | None:
    return pin_in(affinity_of(job), move)


def is_suspended(job: Json) -> bool:
    """Whether its spec suspends it."""
    return bool(job["spec"].get("suspend"))


def has_stopped(job: Json) -> bool:
    """Whether the Job controller has carried that out: before, the template is frozen, and pods may appear."""
    return has_condition(job, ("Suspended",)) and not job["status"].get("active")


# --- what comes next --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of a Job that is being moved, at one moment."""

    job: Json
    """As it was just read."""
    live: tuple[PodRecord, ...]
    """Its pods that have not ended; without those whose node was deleted long ago."""
    unschedulable_seconds: float = 0.0
    """For how long one of them has found no room."""
    target_trouble: str | None = None
    """Why nothing can start on the target (it was deleted, for example); None: it can, as far as is known."""
    target_gone: bool = False


MoveEnd = Literal["cancelled", "released"]
"""The Job is not moved; or it is no longer pinned after a move."""


@dataclass(frozen=True, slots=True)
class Change:
    """One patch, and its meaning."""

    body: Json
    after: JobMove | None
    """None: the annotation is removed, and with it the pin."""
    message: str
    warning: bool = False
    ended: MoveEnd | None = None
    """What the Job's history keeps; None: nothing."""


def begun(job: Json, move: JobMove) -> Json:
    """The patch that begins a move: it suspends the Job and stores the step."""
    return _patch(job, move, {"suspend": True})


def next_change(move: JobMove, facts: Facts, now_seconds: float) -> Change | None:
    """The next patch; None: wait."""
    if facts.job["metadata"].get("deletionTimestamp"):
        return None
    if is_finished(facts.job):
        return Change(_patch(facts.job, None), None, "it has ended, so nothing is left to move")
    if move.step in ("leaving", "unpinning"):
        return _after_ending(move, facts, now_seconds)
    return _after_starting(move, facts, now_seconds)


def _after_ending(move: JobMove, facts: Facts, now: float) -> Change | None:
    """The next step of a Job that we suspended."""
    if not is_suspended(facts.job):
        left, message = _as_it_is(move, facts.job, now), "somebody else has resumed it, so it is not moved"
        return Change(_patch(facts.job, left), left, message, warning=True, ended="cancelled")
    if facts.live or not has_stopped(facts.job):
        return None
    if move.step == "unpinning":
        return _resume_anywhere(
            facts.job, move, f"it starts wherever the scheduler puts it, no longer on {move.to_node}"
        )
    if facts.target_trouble is not None:
        reason = f"not moved to {move.to_node}: {facts.target_trouble}; it starts wherever the scheduler puts it"
        return _resume_anywhere(facts.job, move, reason, ended="cancelled")
    after = move.at("pinning", now)
    pin = pinned({"nodeAffinity": move.node_affinity}, move.to_node)["nodeAffinity"]
    spec = {"suspend": False, **_template(facts.job, pin)}
    return Change(_patch(facts.job, after, spec), after, f"its pods have ended; it starts on {move.to_node}")


def _after_starting(move: JobMove, facts: Facts, now: float) -> Change | None:
    """The next step of a Job that we resumed with a pin."""
    if is_suspended(facts.job):
        return _suspended_by_others(move, facts)
    if _pin(move, facts.job) is None:
        return Change(_patch(facts.job, None), None, f"its template is not tied to {move.to_node}")
    if facts.target_gone:
        return _let_go(move, facts.job, f"{move.to_node} is gone", now)
    if facts.unschedulable_seconds >= UNSCHEDULABLE_SECONDS and not any(pod.deleting for pod in facts.live):
        # While a pod of it is ending, no other may start; on a lost node its owner has to end it.
        return _let_go(
            move, facts.job, f"{move.to_node} has had no place for it for {facts.unschedulable_seconds:.0f} s", now
        )
    if move.step == "pinned":
        return None
    after = move.at("pinned", now)
    if has_arrived(move, facts.live):
        return Change(_patch(facts.job, after), after, f"it runs on {move.to_node}")
    if now - move.step_since_seconds >= ARRIVAL_SECONDS:
        reason = (
            f"it does not run on {move.to_node} after {ARRIVAL_SECONDS:.0f} s; `kubectl describe` its pods to see why"
        )
        return Change(_patch(facts.job, after), after, reason, warning=True)
    return None


def has_arrived(move: JobMove, live: Sequence[PodRecord]) -> bool:
    """Whether all of its pods run on the target."""
    there = [pod for pod in live if pod.node == move.to_node and pod.phase == "Running"]
    return len(live) == len(there) >= len(move.job_uids)


def is_held(job: Json) -> bool:
    """Whether it stays suspended until we resume it; not one that has ended or is being deleted."""
    move = move_on(job)
    held = move is not None and move.step in ("leaving", "unpinning") and is_suspended(job)
    return held and not is_finished(job) and not job["metadata"].get("deletionTimestamp")


def freed(job: Json, *, live_pods: int, lost: bool, now_seconds: float) -> Json | None:
    """The patch that frees a Job whose controller is gone; None: there is nothing to free, or not yet.

    `live_pods`: of its pods, those that are neither Succeeded nor Failed; one that is being deleted counts, unless its
    node was deleted long ago. `lost`: a pod of it is unschedulable, or the node that it is pinned to is deleted.
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
    """Resume a Job whose template cannot be written, wherever that allows it to run."""
    if not is_suspended(job):
        return None
    left = _as_it_is(move, job, now_seconds)
    message = f"its template cannot be changed, so it is not moved to {move.to_node} and starts where that allows"
    return Change(_patch(job, left, {"suspend": False}), left, message, warning=True, ended="cancelled")


def _let_go(move: JobMove, job: Json, reason: str, now: float) -> Change:
    after = move.at("unpinning", now)
    message = f"{reason}: it ends, to start wherever the scheduler puts it"
    return Change(_patch(job, after, {"suspend": True}), after, message, warning=True, ended="released")


def _resume_anywhere(job: Json, move: JobMove, message: str, *, ended: MoveEnd | None = None) -> Change:
    body = _patch(job, None, {"suspend": False, **_unpinned(job, move)})
    return Change(body, None, message, warning=ended is not None, ended=ended)


def _as_it_is(move: JobMove, job: Json, now: float) -> JobMove | None:
    """The annotation of a Job whose template stays: an earlier move's pin is watched as before."""
    pin = _pin(move, job)
    return move.model_copy(update={"step": "pinned", "to_node": pin, "step_since_seconds": now}) if pin else None


def _suspended_by_others(move: JobMove, facts: Facts) -> Change | None:
    """Unpin it, so that it can run anywhere when it is resumed, and leave it suspended."""
    if facts.live or not has_stopped(facts.job):
        return None
    body = _patch(facts.job, None, _unpinned(facts.job, move))
    who = "somebody else has suspended it" if note_on(facts.job) is None else "it was stopped at its target"
    message = f"{who}; it is no longer tied to {move.to_node}"
    return Change(body, None, message, ended="cancelled" if move.step == "pinning" else "released")


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
    """Nothing where nothing is pinned: an owner's later edit stays."""
    return {} if _pin(move, job) is None else _template(job, move.node_affinity)


def _template(job: Json, node_affinity: Json | None) -> Json:
    """With this node affinity; pod affinity stays the owner's."""
    current = affinity_of(job)
    if node_affinity is None and current.keys() <= {"nodeAffinity"}:
        return {"template": {"spec": {"affinity": None}}}
    wanted = _replacing(current.get("nodeAffinity"), node_affinity)
    return {"template": {"spec": {"affinity": {"nodeAffinity": wanted}}}}


def _replacing(current: Any, wanted: Any) -> Any:
    """The merge patch that turns `current` into exactly `wanted`."""
    if not (isinstance(current, dict) and isinstance(wanted, dict)):
        return wanted
    removed = {key: None for key in current if key not in wanted}
    return {**removed, **{key: _replacing(current.get(key), value) for key, value in wanted.items()}}
