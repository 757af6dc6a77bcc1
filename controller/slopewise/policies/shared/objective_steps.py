"""The `step` variant of `dqoes`: each evaluation moves CPU from jobs that are too fast to those that are too slow.

With `beta` = 0.1 a job of class G shrinks by the factor 1 - beta·q/(sum of q over G), one of class B grows by
1 + beta·q/(sum of q over B); the others keep what they have, within [C/(2n), C]. Worked example: G jobs with q of 0.2
and 0.6 and 0.5 cores each: 0.4875 and 0.4625.

Our readings: a job starts from an even share C/n. Limits that add up to more than C are cut back over B, in
proportion to what each has above C/(2n), and over the others only where that is not enough (as after an arrival). Jobs
without an objective share what is left evenly, and have C/(2n) at least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from slopewise.allocation import water_filling
from slopewise.model import Node, NodeMemory
from slopewise.policies.shared.objectives import BELOW, NO_OBJECTIVE, OVER, SATISFIED, ObjectiveCase


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
    rooms = [
        max(0.0, one.useful_cores - limit) if nothing else 0.0
        for one, limit, nothing in zip(cases, limits, unasked, strict=True)
    ]
    more = water_filling(rooms, node.cpu_cores - math.fsum(limits))
    return [limit + extra for limit, extra in zip(limits, more, strict=True)]


def _stepped(cases: Sequence[ObjectiveCase], even_cores: float, beta: float) -> list[float]:
    """Every limit after one step, before any bound."""
    total = {listed: math.fsum(one.deviation for one in cases if one.listed == listed) for listed in (OVER, BELOW)}
    limits = []
    for one in cases:
        now = even_cores if one.known.wanted_cores is None else one.known.wanted_cores
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
    cases: Sequence[ObjectiveCase], last: NodeMemory | None, first_seconds: float, max_ratio: float
) -> float:
    """Seconds until the next evaluation.

    They double while the classes stay; when it gets worse, the first value holds again.
    Worse: the set of jobs changed, fewer are satisfied or more are below target than at the evaluation before. A change
    for the better alone keeps the interval.
    """
    now = [one.listed for one in cases]
    before = [one.known.job_class for one in cases]
    changed = last is None or {one.job.uid for one in cases} != last.job_uids
    worse = now.count(SATISFIED) < before.count(SATISFIED) or now.count(BELOW) > before.count(BELOW)
    if last is None or changed or worse:
        return first_seconds
    if now == before:
        return min(2 * last.interval_seconds, max_ratio * first_seconds)
    return last.interval_seconds
