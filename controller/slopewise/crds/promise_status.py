"""What a JobGrowth shows of promises: column, figures, conditions, and which changes of them are events. Pure.

`estimators/objectives.py` computes the figures. All that is a transition here is confirmed there, so that one noisy
figure is neither a write at once nor an event.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from slopewise.crds.conditions import Condition, Wanted, timestamp
from slopewise.crds.job_growth import UNKNOWN, JobGrowthStatus
from slopewise.model import DeadlineStatus, Objectives, ObjectiveStatus, QoeStatus, TargetStatus
from slopewise.text import duration

OBJECTIVE_MISSED, HOPELESS, DELIVERABLE, TARGET_REACHED = "ObjectiveMissed", "Hopeless", "Deliverable", "TargetReached"
TYPES = frozenset({OBJECTIVE_MISSED, HOPELESS, DELIVERABLE, TARGET_REACHED})
DEADLINE_MISSED = "DeadlineMissed"
"""Reason of the condition Hopeless once the deadline has passed; also an event."""

NOTHING_ASKED = ObjectiveStatus()


class Change(NamedTuple):
    """A change of an objective status, as an event."""

    reason: str
    note: str
    warning: bool


_FIGURES = ("objective_seconds", "took_seconds", "deviation_ratio", "deadline", "slack_seconds")


def worst(statuses: Iterable[ObjectiveStatus]) -> ObjectiveStatus:
    """The status of a workload: of each promise that of the pod that keeps it least."""
    if not (several := list(statuses)):
        return NOTHING_ASKED
    return ObjectiveStatus(
        max((each.qoe for each in several if each.qoe), key=_qoe_trouble, default=None),
        max((each.deadline for each in several if each.deadline), key=_deadline_trouble, default=None),
        next((each.target for each in several if each.target), None),
    )


def _qoe_trouble(qoe: QoeStatus) -> tuple[bool, bool, float]:
    return qoe.missed, qoe.deviation is not None, -(qoe.deviation or 0.0)


def _deadline_trouble(deadline: DeadlineStatus) -> tuple[bool, bool, bool, float]:
    slack = deadline.slack_seconds
    return deadline.missed, deadline.confirmed_hopeless, slack is not None, -(slack or 0.0)


def shown(status: ObjectiveStatus) -> dict[str, Any]:
    """The fields of the status of a running job; figures are rounded, so that noise is not written again."""
    qoe, deadline = status.qoe, status.deadline
    slack = deadline.slack_seconds if deadline else None
    return {
        "promise": _column(status) or UNKNOWN,
        "objective_seconds": rounded(qoe.objective_seconds) if qoe else None,
        "took_seconds": rounded(qoe.took_seconds) if qoe else None,
        "deviation_ratio": rounded(qoe.deviation) if qoe else None,
        "deadline": timestamp(deadline.at_seconds) if deadline else None,
        "slack_seconds": None if slack is None else round(slack),
    }


def shown_of_arrival(objectives: Objectives, now_seconds: float) -> dict[str, Any]:
    """Those of an arrival that has not run yet: what its owner asks."""
    asked, at = objectives.qoe_seconds, objectives.deadline_at_seconds
    qoe = None if asked is None else QoeStatus(asked)
    deadline = None if at is None else DeadlineStatus(at, at - now_seconds)
    return shown(ObjectiveStatus(qoe, deadline))


def shown_of_ended(target: TargetStatus | None, previous: JobGrowthStatus, *, succeeded: bool) -> dict[str, Any]:
    """Those of an ended job: the figures are the last ones."""
    promise = _column_of_ended(target, previous.conditions, succeeded=succeeded) or UNKNOWN
    return {"promise": promise, **{name: getattr(previous, name) for name in _FIGURES}}


def shown_of_departed() -> dict[str, Any]:
    """Those of a job that no policy manages: nothing is known of it any more."""
    return {"promise": UNKNOWN, **dict.fromkeys(_FIGURES)}


def rounded(value: float | None) -> float | None:
    """Four digits are enough for people, and a figure that did not change is not written again."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


def _column(status: ObjectiveStatus) -> str:
    """`missed: 12s of 10s, slack 4m10s, deliverable`; empty where nothing is asked."""
    parts = [] if status.qoe is None else [_qoe_text(status.qoe)]
    parts += [] if status.deadline is None else [_deadline_text(status.deadline)]
    parts += [] if status.target is None else [_target_text(status.target)]
    return ", ".join(parts)


def _column_of_ended(target: TargetStatus | None, previous: Sequence[Condition], *, succeeded: bool) -> str:
    """By the last conditions: `objective kept, deadline missed, target reached`."""
    last = {condition.type: condition for condition in previous}
    parts = []
    if (objective := last.get(OBJECTIVE_MISSED)) is not None:
        parts.append("objective missed" if objective.status == "True" else "objective kept")
    if (deadline := last.get(HOPELESS)) is not None:
        kept = succeeded and deadline.reason != DEADLINE_MISSED
        parts.append("deadline kept" if kept else "deadline missed")
    if target is not None:
        parts.append(_target_text(target))
    return ", ".join(parts)


def _qoe_text(qoe: QoeStatus) -> str:
    if qoe.took_seconds is None:
        return f"not timed yet, {qoe.objective_seconds:.3g}s asked"
    least = "" if qoe.in_flight is None else "over "
    figures = f"{least}{qoe.took_seconds:.3g}s of {qoe.objective_seconds:.3g}s"
    if qoe.missed:
        return f"missed: {figures}"
    return figures if qoe.listed == "B" else f"kept: {figures}"  # too slow, and not confirmed: neither


def _deadline_text(deadline: DeadlineStatus) -> str:
    if deadline.missed:
        return "deadline missed"
    if deadline.confirmed_hopeless:
        return f"hopeless, due in {duration(deadline.left_seconds)}"
    slack = deadline.slack_seconds
    if slack is None:
        return f"due in {duration(deadline.left_seconds)}"
    return f"slack {duration(slack)}" if slack >= 0 else f"late by {duration(-slack)}"


def _target_text(target: TargetStatus) -> str:
    if target.target_reached:
        return "target reached"
    return "deliverable" if target.deliverable_reached else "target open"


def conditions(status: ObjectiveStatus) -> tuple[Wanted, ...]:
    """One for each promise that is stated, and none for others."""
    found = []
    if status.qoe is not None:
        found.append(_objective_missed(status.qoe))
    if status.deadline is not None:
        found.append(_hopeless(status.deadline))
    if status.target is not None:
        reached = ((DELIVERABLE, status.target.deliverable_reached), (TARGET_REACHED, status.target.target_reached))
        found += [_reached(kind, holds=holds) for kind, holds in reached if holds is not None]
    return tuple(found)


def last_conditions(previous: Sequence[Condition], now: Sequence[Condition]) -> tuple[Condition, ...]:
    """Conditions about promises that stay as they were: of a job that has ended, or has no pod on a node."""
    there = {condition.type for condition in now}
    return tuple(each for each in previous if each.type in TYPES - there)


def _objective_missed(qoe: QoeStatus) -> Wanted:
    if qoe.took_seconds is None:
        asked = f"{qoe.objective_seconds:.3g} s asked; not timed yet"
        return Wanted(OBJECTIVE_MISSED, "Unknown", "NotTimedYet", asked)
    if qoe.missed:
        return Wanted(OBJECTIVE_MISSED, "True", "TooSlow" if qoe.in_flight is None else "Unanswered", _took(qoe))
    if qoe.in_flight is not None:  # not confirmed, and "kept" would be wrong
        return Wanted(OBJECTIVE_MISSED, "Unknown", "NotTimedYet", _took(qoe))
    return Wanted(OBJECTIVE_MISSED, "False", "Kept", _took(qoe))


def _took(qoe: QoeStatus) -> str:
    """`takes 12 s of 10 s, 20% slower than asked`; `no request succeeded in 40 s while 2 are in flight, 10 s asked`."""
    if qoe.in_flight is not None:
        there = f" while {qoe.in_flight:.0f} {'is' if qoe.in_flight == 1 else 'are'} in flight" if qoe.in_flight else ""
        return f"no request succeeded in {qoe.took_seconds or 0.0:.0f} s{there}, {qoe.objective_seconds:.3g} s asked"
    deviation = qoe.deviation or 0.0
    how = f"{abs(deviation):.0%} {'slower' if deviation < 0 else 'faster'} than asked"
    return f"takes {qoe.took_seconds or 0.0:.3g} s of {qoe.objective_seconds:.3g} s, {how}"


def _hopeless(deadline: DeadlineStatus) -> Wanted:
    if deadline.missed:
        return Wanted(HOPELESS, "True", DEADLINE_MISSED, _deadline_note(deadline))
    if deadline.confirmed_hopeless:
        return Wanted(HOPELESS, "True", "NoCpuSuffices", _deadline_note(deadline))
    if deadline.slack_seconds is None:
        return Wanted(HOPELESS, "Unknown", "NotTimedYet", _deadline_note(deadline))
    return Wanted(HOPELESS, "False", "Feasible", _deadline_note(deadline))


def _deadline_note(deadline: DeadlineStatus) -> str:
    due = f"due {timestamp(deadline.at_seconds):%Y-%m-%dT%H:%M:%SZ}"
    if deadline.missed:
        return f"{due}, and it has not ended"
    slack = deadline.slack_seconds
    if slack is None:
        return f"{due}; its pace or its steps left are not known"
    pace = f"{duration(abs(slack))} {'to spare' if slack >= 0 else 'late'} at its present pace"
    suffix = "; all CPU of the largest node would not do" if deadline.confirmed_hopeless else ""
    return f"{due}, {pace}{suffix}"


def _reached(kind: str, *, holds: bool) -> Wanted:
    what = "the deliverable loss" if kind == DELIVERABLE else "the target loss"
    if holds:
        return Wanted(kind, "True", "Reached", f"{what} is reached")
    return Wanted(kind, "False", "NotReached", f"{what} is not reached")


def transitions(status: ObjectiveStatus) -> tuple[bool | None, ...]:
    """What makes a status worth writing at once, and an event: missed, timed, late, hopeless, reached, reached."""
    qoe, deadline, target = status.qoe, status.deadline, status.target
    return (
        qoe.missed if qoe else None,
        qoe.took_seconds is not None if qoe else None,
        deadline.missed if deadline else None,
        deadline.confirmed_hopeless if deadline else None,
        target.deliverable_reached if target else None,
        target.target_reached if target else None,
    )


def changes(before: ObjectiveStatus, now: ObjectiveStatus) -> list[Change]:
    """What has changed from one pass to the next; a promise that is no longer stated, or has ended, is no change."""
    found = []
    was_missed = before.qoe is not None and before.qoe.missed
    timed = now.qoe is not None and now.qoe.took_seconds is not None
    if now.qoe is not None and timed and now.qoe.missed != was_missed:
        reason = OBJECTIVE_MISSED if now.qoe.missed else "ObjectiveKept"
        found.append(Change(reason, _took(now.qoe), now.qoe.missed))
    if now.deadline is not None:
        found += _deadline_changes(before.deadline, now.deadline)
    if now.target is not None:
        found += _target_changes(before.target or TargetStatus(), now.target)
    return found


def _deadline_changes(before: DeadlineStatus | None, now: DeadlineStatus) -> list[Change]:
    was_missed, was_hopeless = before is not None and before.missed, before is not None and before.confirmed_hopeless
    if now.missed:
        return [] if was_missed else [Change(DEADLINE_MISSED, _deadline_note(now), warning=True)]
    if now.confirmed_hopeless == was_hopeless:
        return []
    reason = "DeadlineHopeless" if now.confirmed_hopeless else "DeadlineFeasible"
    return [Change(reason, _deadline_note(now), now.confirmed_hopeless)]


def _target_changes(before: TargetStatus, now: TargetStatus) -> list[Change]:
    """None where a target is not stated."""
    found = []
    for reached, lost, what, held, holds in (
        (DELIVERABLE, "DeliverableLost", "the deliverable loss", before.deliverable_reached, now.deliverable_reached),
        (TARGET_REACHED, "TargetLost", "the target loss", before.target_reached, now.target_reached),
    ):
        if holds is not None and holds != bool(held):
            note = f"{what} is {'reached' if holds else 'missed again'}"
            found.append(Change(reached if holds else lost, note, warning=not holds))
    return found
