"""The order of one node's jobs: by index, as long as no job ends later than under fair sharing; and CPU down the order.

Worked example: on one core two jobs are due in 100 s and in 300 s and have 80 and 100 core-seconds left. The first has
a slack of 20 s, the second 300 - 180 = 120 s. With a reserve of 10 s the index decides; once the first has waited for
15 s, it goes before all that are due later.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slopewise.allocation import down_an_order
from slopewise.model import Ends
from slopewise.policies.marginal.forecast import Forecast


@dataclass(frozen=True, slots=True)
class Order:
    """The jobs of a node, first to last, and why."""

    jobs: Sequence[Forecast]
    slack_seconds: Mapping[str, float]
    """How long each, and those due before it, can wait and still be in time."""
    by_index: frozenset[str]
    """Jobs beside which all that are due sooner can wait."""


def order(claims: Sequence[Forecast], due: Mapping[str, float], capacity: float, reserve_seconds: float) -> Order:
    """`due`: seconds from now until each job's end under fair sharing; `reserve_seconds`: slack that each keeps."""
    by_due = sorted(claims, key=lambda each: (due[each.job.uid], each.sure_left, each.job.uid))
    slack, free, before, least = {}, set(), 0.0, math.inf
    for each in by_due:
        if least >= reserve_seconds:
            free.add(each.job.uid)
        before += each.sure_left
        slack[each.job.uid] = due[each.job.uid] - before / capacity
        least = min(least, slack[each.job.uid])
    by_index = sorted(claims, key=lambda each: (-each.index, each.job.uid))
    first = [each for each in by_index if each.job.uid in free]
    return Order([*first, *(each for each in by_due if each.job.uid not in free)], slack, frozenset(free))


def down(
    uids: Sequence[str], floors: Mapping[str, float], cores: Mapping[str, float], capacity: float
) -> dict[str, float]:
    """Cores by uid: each its floor, and the rest down the order, up to what each can use."""
    return down_an_order(floors, [[uid] for uid in uids], cores, capacity)


def expected_ends(
    jobs: Sequence[Forecast], due: Mapping[str, float], cores: Mapping[str, float], capacity: float, now_seconds: float
) -> dict[str, Ends]:
    """When each job ends if its node goes down this order; at the earliest, served alone; at the latest, when due.

    Of each job before it no more counts than its own work left: before it has done that, the order has changed.
    Worked example: behind a job with a plan of 10^9 steps, one with 60 core-seconds left ends in 120 s on one core.
    """
    found, lefts = {}, [each.left for each in jobs]
    for place, (each, left) in enumerate(zip(jobs, lefts, strict=True)):
        uid = each.job.uid
        alone = left / cores[uid]
        before = math.fsum([min(other, left) for other in lefts[:place]])
        expected = max(alone, (before + left) / capacity)
        latest = max(expected, due[uid]) if due[uid] < math.inf else expected
        fair = round(now_seconds + due[uid], 1) if due[uid] < math.inf else None
        at, earliest, latest = (round(now_seconds + seconds, 1) for seconds in (expected, alone, latest))
        found[uid] = Ends(at, earliest, latest, fair)
    return found
