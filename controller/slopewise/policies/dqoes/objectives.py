"""Compares the pace of each job of a node with its objective, and divides the node by it, for `dqoes`.

With `beta` = 0.1 the variant `step` shrinks a job of class G by the factor 1 - beta·q/(sum of q over G), and grows one
of class B by 1 + beta·q/(sum of q over B); the others keep what they have, within [C/(2n), C]. Worked example: G jobs
with q of 0.2 and 0.6 and 0.5 cores each: 0.4875 and 0.4625.

Our readings: a job starts from an even share C/n. Limits that add up to more than C are cut back over B, in
proportion to what each has above C/(2n), and over the others only where that is not enough (as after an arrival). Jobs
without an objective share what is left evenly, and have C/(2n) at least.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

from slopewise.allocation import down_an_order, water_filling
from slopewise.estimators.objectives import BELOW, OVER, SATISFIED, deviation, listed_as
from slopewise.model import Answering, Job, JobMemory, Node, NodeMemory
from slopewise.policies.shared.need_policy import NeedCase
from slopewise.policies.shared.shares import speed, useful_cores

__all__ = ["BELOW", "NO_OBJECTIVE", "OVER", "SATISFIED", "UNKNOWN", "ObjectiveCase", "assess"]

UNKNOWN, NO_OBJECTIVE = "unknown", "no objective"


@dataclass(slots=True)
class ObjectiveCase(NeedCase):
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
    failing = _failing(known.timing.answering)
    if known.paces:
        return f"{known.paces[-1].seconds:.3g} s of {asked:.3g} s asked{failing}"
    since = None if known.timing.answering is None else known.timing.answering.unanswered_since_seconds
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


def step_limits(cases: Sequence[ObjectiveCase], node: Node, beta: float) -> list[float]:
    """The next limits in cores, shape (jobs,); they add up to the node's CPU at most."""
    if not cases:
        return []
    even = node.cpu_cores / len(cases)
    floor = even / 2
    limits = [min(max(limit, floor), node.cpu_cores) for limit in _stepped(cases, even, beta)]
    unasked = [one.listed == NO_OBJECTIVE for one in cases]
    limits = [floor if nothing else limit for limit, nothing in zip(limits, unasked, strict=True)]
    below = [one.listed == BELOW for one in cases]
    limits = _cut_back(limits, below, floor, node.cpu_cores)
    limits = _cut_back(limits, [True] * len(limits), floor, node.cpu_cores)
    return rest_to(list(compress(range(len(cases)), unasked)), cases, limits, node.cpu_cores)


def _stepped(cases: Sequence[ObjectiveCase], even_cores: float, beta: float) -> list[float]:
    """Every limit after one step, before any bound."""
    total = {listed: math.fsum(one.deviation for one in cases if one.listed == listed) for listed in (OVER, BELOW)}
    limits = []
    for one in cases:
        now = even_cores if one.known.decided.wanted_cores is None else one.known.decided.wanted_cores
        part = one.deviation / total[one.listed] if one.listed in total else 0.0
        limits.append(now * (1 - beta * part if one.listed == OVER else 1 + beta * part))
    return limits


def _cut_back(limits: Sequence[float], whose: Sequence[bool], floor: float, capacity_cores: float) -> list[float]:
    """The limits with what is too much taken from the marked ones, in proportion to what each has above the floor."""
    too_much = math.fsum(limits) - capacity_cores
    above = [limit - floor if marked else 0.0 for limit, marked in zip(limits, whose, strict=True)]
    if too_much <= 0 or not any(above):
        return list(limits)
    part = min(1.0, too_much / math.fsum(above))
    return [limit - part * each for limit, each in zip(limits, above, strict=True)]


def step_interval_seconds(
    cases: Sequence[ObjectiveCase], last: NodeMemory | None, first_seconds: float, longest_seconds: float
) -> float:
    """Seconds until the next evaluation.

    They double while the classes stay; when it gets worse, the first value holds again.
    Worse: the set of jobs changed, fewer are satisfied or more are below target than at the evaluation before. A change
    for the better alone keeps the interval.
    """
    now = [one.listed for one in cases]
    before = [one.known.decided.job_class for one in cases]
    changed = last is None or {one.job.uid for one in cases} != last.job_uids
    worse = now.count(SATISFIED) < before.count(SATISFIED) or now.count(BELOW) > before.count(BELOW)
    if last is None or changed or worse:
        return first_seconds
    if now == before:
        return min(2 * last.interval_seconds, longest_seconds)
    return last.interval_seconds


def towards(wanted: Mapping[int, float], limits: Sequence[float], capacity_cores: float) -> list[float]:
    """The limits, those of the wanted ones raised towards what is wanted, all by the same part of the way."""
    way = [max(0.0, wanted.get(index, 0.0) - limit) for index, limit in enumerate(limits)]
    total, left = math.fsum(way), max(0.0, capacity_cores - math.fsum(limits))
    part = min(1.0, left / total) if total > 0 else 0.0
    return [limit + part * each for limit, each in zip(limits, way, strict=True)]


def rest_to(
    whose: Collection[int], cases: Sequence[ObjectiveCase], limits: Sequence[float], capacity_cores: float
) -> list[float]:
    """The limits with what is left given evenly to some of the jobs, each up to what it can use."""
    useful = {index: one.useful_cores for index, one in enumerate(cases)}
    return list(down_an_order(dict(enumerate(limits)), [whose], useful, capacity_cores).values())


def rest_in_proportion(
    cases: Sequence[ObjectiveCase], limits: Sequence[float], chosen: Sequence[int], capacity_cores: float
) -> list[float]:
    """The chosen share what no other job can use, in proportion to what they have."""
    given = list(limits)
    have = [limits[index] for index in chosen]
    most = [max(limits[index], cases[index].useful_cores) for index in chosen]
    left = max(0.0, capacity_cores - math.fsum(limits))
    for index, cores in zip(chosen, water_filling(most, math.fsum(have) + left, have), strict=True):
        given[index] = cores
    return given
