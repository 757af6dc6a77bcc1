"""Compares the pace of each job of a node with its objective; both variants of `dqoes` begin with it."""

from __future__ import annotations

from dataclasses import dataclass

from slopewise.estimators.promises import BELOW, OVER, SATISFIED, deviation, listed_as
from slopewise.model import Answering, Job, JobMemory, Node
from slopewise.policies.shared.pace_models import speed
from slopewise.policies.shared.promise_policy import PromiseCase
from slopewise.policies.shared.shares import useful_cores

__all__ = ["BELOW", "NO_OBJECTIVE", "OVER", "SATISFIED", "UNKNOWN", "ObjectiveCase", "assess"]

UNKNOWN, NO_OBJECTIVE = "unknown", "no objective"


@dataclass(slots=True)
class ObjectiveCase(PromiseCase):
    """One job, its objective and its pace; its need is the least limit with which it counts as satisfied."""

    deviation: float = 0.0
    """q = (asked - took) / asked: above 0 it is faster than asked."""
    wants_cores: float | None = None
    """L*, the limit that just meets the objective; None: no CPU does, or nothing is known."""


def assess(job: Job, known: JobMemory, node: Node, had_cores: float, alpha: float, margin: float) -> ObjectiveCase:
    """Compare the job's newest pace with its objective, and compute the limits that meet it."""
    one = ObjectiveCase(job, known, useful_cores(job, node), NO_OBJECTIVE)
    asked, found = job.objectives.qoe_seconds, speed(known, had_cores)
    if asked is not None and found is None:
        one.listed = UNKNOWN
    elif asked is not None and found is not None:
        one.deviation = deviation(asked, known.paces[-1].seconds)
        one.listed = listed_as(one.deviation, alpha)
        one.wants_cores, one.needs_cores = found.limit_for(asked), found.limit_for(asked * (1 + alpha - margin))
    return one


def pace_message(one: ObjectiveCase, now_seconds: float) -> str:
    """What was asked and what was measured, and how a served model fails to answer.

    E.g. `0.21 s of 0.5 s asked, 40% of responses fail`, `0.5 s asked, no responses for 75 s, requests that wait: 12`.
    """
    asked, known = one.job.objectives.qoe_seconds, one.known
    if asked is None:
        return "shares evenly what the others leave"
    failing = _failing(known.answering)
    if known.paces:
        return f"{known.paces[-1].seconds:.3g} s of {asked:.3g} s asked{failing}"
    since = None if known.answering is None else known.answering.unanswered_since_seconds
    if since is None:
        return f"{asked:.3g} s asked, not timed yet"
    return f"{asked:.3g} s asked, no responses for {now_seconds - since:.0f} s{failing}{_waiting(one.job)}"


def _failing(answering: Answering | None) -> str:
    if answering is None or answering.failed_ratio == 0:
        return ""
    return (
        ", all responses fail" if answering.failed_ratio == 1 else f", {answering.failed_ratio:.0%} of responses fail"
    )


def _waiting(job: Job) -> str:
    in_flight = None if job.responses is None else job.responses.in_flight
    return f", requests that wait: {in_flight:.0f}" if in_flight else ""
