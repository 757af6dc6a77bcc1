"""Objective status: how each job stands to its objective (QoE), its deadline and its targets, under whatever policy.

`statuses` computes that from the figures that every policy has: paces, evaluations, counted targets. `confirm` runs
between `pace.measure` and `decide` and keeps in the memory whether an objective is missed or a deadline hopeless, so
that neither changes by one noisy figure. Metrics, conditions, events and alerts read both.

Sources: q and the classes G, S and B of DQoES; slack and hopeless as in `policies/deadline.py` (IJCNN 2019, a
reconstruction); targets as in TRADL (`targets.py`).

Worked example: asked 10 s, the newest response took 12 s: q = -0.2, class B, missed once that has held for two
intervals. Asked 10 s, 12 requests in flight and no success for 40 s: a response takes 40 s at least, q = -3. 900 steps
and 1000 s left at 1 s a step: a slack of 100 s; hopeless at 2 CPU-seconds a step and one thread.
"""

from __future__ import annotations

import math

from slopewise.estimators import targets
from slopewise.estimators.growth import EARLY_RATIO
from slopewise.estimators.pace import QOE_TOLERANCE_RATIO
from slopewise.estimators.speed import measured_speed, steps_left, useful_cores
from slopewise.model import (
    NO_OBJECTIVES,
    ClusterSnapshot,
    Confirmed,
    DeadlineStatus,
    Job,
    JobMemory,
    MemoryState,
    Node,
    ObjectiveStatus,
    QoeClass,
    QoeStatus,
    TargetStatus,
)

OVER: QoeClass = "G"
SATISFIED: QoeClass = "S"
BELOW: QoeClass = "B"

CONFIRMING_INTERVALS = 2
"""For so long each pass has to find the same before it counts: three measurements in a row, one an interval."""

_UNKNOWN = JobMemory()
_NOTHING_ASKED = ObjectiveStatus()


def statuses(snapshot: ClusterSnapshot, memory: MemoryState) -> dict[str, ObjectiveStatus]:
    """How each job stands whose owner asks something of it, by uid; pure.

    An objective or a deadline that is not a finite time is none.
    """
    largest = max(snapshot.nodes, key=lambda node: node.cpu_cores, default=None)
    found = {}
    for job in snapshot.jobs:
        if job.objectives is NO_OBJECTIVES or job.objectives == NO_OBJECTIVES:
            continue
        known = memory.jobs.get(job.uid, _UNKNOWN)
        status = ObjectiveStatus(_qoe(job, known), _deadline(job, known, snapshot, largest), _target(job, known))
        if status != _NOTHING_ASKED:
            found[job.uid] = status
    return found


def confirm(snapshot: ClusterSnapshot, memory: MemoryState, interval_seconds: float) -> MemoryState:
    """The memory with what was found of objectives and deadlines now; of an ended job the last finding stays."""
    now, found = snapshot.taken_at_seconds, statuses(snapshot, memory)
    enough_seconds = CONFIRMING_INTERVALS * EARLY_RATIO * interval_seconds
    changed = {}
    for job in snapshot.jobs:
        known, status = memory.jobs.get(job.uid, _UNKNOWN), found.get(job.uid)
        asked = known.objectives
        if job.state.ended or (status is None and asked.missed is None and asked.hopeless is None):
            continue
        missed = _is_below(status.qoe if status else None)
        hopeless = status.deadline.hopeless if status and status.deadline else None
        after = asked.altered(
            missed=_confirmed(asked.missed, enough_seconds, now, found=missed),
            hopeless=_confirmed(asked.hopeless, enough_seconds, now, found=hopeless),
        )
        if after != asked:
            changed[job.uid] = known.altered(objectives=after)
    return memory.with_jobs(changed)


def deviation(asked_seconds: float, took_seconds: float) -> float:
    """DQoES's q: 0.2 when 8 s were taken of the 10 s asked."""
    return (asked_seconds - took_seconds) / asked_seconds


def listed_as(relative: float, alpha: float) -> QoeClass:
    """G, S or B, by relative deviation; what is at `alpha` exactly is satisfied."""
    if relative > alpha:
        return OVER
    return BELOW if relative < -alpha else SATISFIED


def _qoe(job: Job, known: JobMemory) -> QoeStatus | None:
    asked = job.objectives.qoe_seconds
    if asked is None or not (0 < asked < math.inf) or job.state.ended:
        return None
    missed = known.objectives.missed is not None and known.objectives.missed.holds
    waited = _waited_seconds(job, known, missed=missed)
    if (late := deviation(asked, waited)) < -QOE_TOLERANCE_RATIO:
        in_flight = 0.0 if job.responses is None else job.responses.in_flight
        return QoeStatus(asked, waited, late, BELOW, missed, in_flight or 0.0)
    took = known.paces[-1].seconds if known.paces else None
    if took is None or not math.isfinite(took):
        return QoeStatus(asked)
    relative = deviation(asked, took)
    return QoeStatus(asked, took, relative, listed_as(relative, QOE_TOLERANCE_RATIO), missed)


def _waited_seconds(job: Job, known: JobMemory, *, missed: bool) -> float:
    """For how long requests were in flight and none succeeded, up to the newest measurement; 0: not so, or not known.

    Counters that are not scraped stand still, as those of a server that hangs do: an outage neither makes an objective
    a missed one, nor ends that.
    """
    since = None if known.timing.answering is None else known.timing.answering.in_flight_since_seconds
    if since is None or known.timing.anchor is None or (job.responses is None and not missed):
        return 0.0
    return known.timing.anchor.at_seconds - since


def _deadline(job: Job, known: JobMemory, snapshot: ClusterSnapshot, largest: Node | None) -> DeadlineStatus | None:
    at = job.objectives.deadline_at_seconds
    if at is None or not math.isfinite(at) or job.state.ended:
        return None
    left, todo = at - snapshot.taken_at_seconds, steps_left(job)
    over = left <= 0
    if todo is None or not known.paces:
        return DeadlineStatus(at, left, hopeless=over, confirmed_hopeless=over)
    todo, speed = max(0.0, todo), measured_speed(known)
    alone = 0.0 if speed is None or largest is None else todo * speed.seconds_at(useful_cores(job, largest))
    confirmed = over or (known.objectives.hopeless is not None and known.objectives.hopeless.holds)
    return DeadlineStatus(at, left, left - todo * known.paces[-1].seconds, over or alone > left, confirmed)


def _target(job: Job, known: JobMemory) -> TargetStatus | None:
    objectives = job.objectives
    deliverable, target = objectives.deliverable_level is not None, objectives.target_level is not None
    if not deliverable and not target:
        return None
    hits = known.objectives.targets or targets.UNCOUNTED
    return TargetStatus(hits.is_deliverable if deliverable else None, hits.is_final if target else None)


def _is_below(qoe: QoeStatus | None) -> bool | None:
    """None: no objective, or not timed yet."""
    return None if qoe is None or qoe.listed is None else qoe.listed == BELOW


def _confirmed(before: Confirmed | None, enough_seconds: float, now: float, *, found: bool | None) -> Confirmed | None:
    """The finding after this pass; it changes once the opposite was found by each pass for `enough_seconds`."""
    if found is None:
        return None
    finding = before or Confirmed()
    if finding.holds == found:
        return finding if finding.doubted_since_seconds is None else Confirmed(found)
    if finding.doubted_since_seconds is None:
        return Confirmed(finding.holds, now)
    return Confirmed(found) if now - finding.doubted_since_seconds >= enough_seconds else finding
