"""The `step` variant of `dqoes`: from look to look, CPU moves from jobs that are too fast to those that are too slow.

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

from controller.model import Node, NodeMemory
from controller.policies._qoe import BELOW, OVER, SATISFIED, UNASKED, Standing
from controller.policies._speed import handed_out


def step_limits(standings: Sequence[Standing], node: Node, beta: float) -> list[float]:
    """The next limits in cores, shape (jobs,); they add up to the node's CPU at most."""
    if not standings:
        return []
    even = node.cpu_cores / len(standings)
    floor = even / 2
    limits = [min(max(limit, floor), node.cpu_cores) for limit in _stepped(standings, even, beta)]
    unasked = [one.listed == UNASKED for one in standings]
    limits = [floor if nothing else limit for limit, nothing in zip(limits, unasked, strict=True)]
    below = [one.listed == BELOW for one in standings]
    limits = _cut_back(limits, below, floor, node.cpu_cores)
    limits = _cut_back(limits, [True] * len(limits), floor, node.cpu_cores)
    rooms = [
        max(0.0, one.useful_cores - limit) if nothing else 0.0
        for one, limit, nothing in zip(standings, limits, unasked, strict=True)
    ]
    more = handed_out(rooms, node.cpu_cores - math.fsum(limits))
    return [limit + extra for limit, extra in zip(limits, more, strict=True)]


def _stepped(standings: Sequence[Standing], even_cores: float, beta: float) -> list[float]:
    """Every limit after one step, before any bound."""
    total = {listed: math.fsum(one.deviation for one in standings if one.listed == listed) for listed in (OVER, BELOW)}
    limits = []
    for one in standings:
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
    standings: Sequence[Standing], last: NodeMemory | None, first_seconds: float, max_ratio: float
) -> float:
    """Seconds until the next look: twice as long while the classes stay, the first value again when it gets worse.

    Worse: the set of jobs changed, fewer are satisfied or more are below target than at the look before. A change for
    the better alone keeps the interval.
    """
    now = [one.listed for one in standings]
    before = [one.known.job_class for one in standings]
    changed = last is None or {one.job.uid for one in standings} != last.job_uids
    worse = now.count(SATISFIED) < before.count(SATISFIED) or now.count(BELOW) > before.count(BELOW)
    if last is None or changed or worse:
        return first_seconds
    if now == before:
        return min(2 * last.interval_seconds, max_ratio * first_seconds)
    return last.interval_seconds
