"""The order of one node's jobs under `marginal`: by index, as long as no job ends later than under fair sharing.

Worked example: on one core two jobs are due in 100 s and in 300 s and have 80 and 100 core-seconds left. The first has
a slack of 20 s, the second 300 - 180 = 120 s. With half an interval of 10 s both are admissible, and the index decides;
once the first has waited for 15 s, its slack of 5 s admits it alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest

from slopewise.model import Ends
from slopewise.policies.shared.prospects import Prospect


@dataclass(frozen=True, slots=True)
class Order:
    """The jobs of a node, first to last, and why."""

    uids: Sequence[str]
    slack_seconds: Mapping[str, float]
    """Until the node could not end this job, and those due before it, in time any more."""
    admissible: frozenset[str]
    critical: str | None = None
    """Goes first: it cannot use the whole node, and has longer left than all jobs together."""
    tightest: Sequence[tuple[float, str]] = ()
    """The two least slacks, with whose they are."""

    def least_slack_beside(self, uid: str) -> float:
        """Of all jobs but this one; infinite where there is no other."""
        return next((slack for slack, other in self.tightest if other != uid), math.inf)


def order(
    jobs: Sequence[Prospect],
    due: Mapping[str, float],
    cores: Mapping[str, float],
    capacity: float,
    reserve_seconds: float,
) -> Order:
    """`due`: seconds from now until each job's end under fair sharing; `cores`: what each can use here.

    `reserve_seconds`: a slack of less admits nothing that is due later.
    """
    by_due = sorted(jobs, key=lambda each: (due[each.job.uid], each.job.uid))
    slack, before = {}, 0.0
    for each in by_due:
        uid, left = each.job.uid, each.low_left
        before += left
        slack[uid] = due[uid] - max(before / capacity, left / cores[uid])
    admissible, tight = set(), math.inf
    for each in by_due:
        uid = each.job.uid
        if tight >= reserve_seconds:
            admissible.add(uid)
        tight = min(tight, slack[uid])
    first = sorted((each for each in jobs if each.job.uid in admissible), key=lambda each: (-each.index, each.job.uid))
    uids = [each.job.uid for each in first] + [each.job.uid for each in by_due if each.job.uid not in admissible]
    critical = _critical(jobs, cores, capacity)
    if critical is not None:
        uids.remove(critical)
        uids.insert(0, critical)
    tightest = nsmallest(2, ((seconds, uid) for uid, seconds in slack.items()))
    return Order(uids, slack, frozenset(admissible), critical, tightest)


def _critical(jobs: Sequence[Prospect], cores: Mapping[str, float], capacity: float) -> str | None:
    """The job that the node waits for in the end, whatever else it does."""
    total = math.fsum(each.left for each in jobs) / capacity
    longest = max(
        ((each.most_left / cores[each.job.uid], each.job.uid) for each in jobs if cores[each.job.uid] < capacity),
        default=(0.0, ""),
    )
    return longest[1] if longest[0] > total and longest[1] else None


def handed_down(
    uids: Sequence[str], floors: Mapping[str, float], cores: Mapping[str, float], capacity: float
) -> dict[str, float]:
    """Cores by uid: each its floor, and the rest down the order, up to what each can use.

    Floors of more than the node are scaled down.
    """
    least = {uid: min(floors[uid], cores[uid]) for uid in uids}
    total = math.fsum(least.values())
    if total > capacity:
        least = {uid: each * capacity / total for uid, each in least.items()}
        total = capacity
    left, given = capacity - total, {}
    for uid in uids:
        more = min(left, cores[uid] - least[uid])
        given[uid] = least[uid] + more
        left -= more
    return given


def expected_ends(
    uids: Sequence[str],
    jobs: Mapping[str, Prospect],
    cores: Mapping[str, float],
    capacity: float,
    now_seconds: float,
) -> dict[str, Ends]:
    """When each job ends if all go on in this order; what is left of one is independent of the others.

    Worked example: on one core 60 core-seconds are left of the first job, 50 to 72 with 80 % probability, and 100 of
    the second, 80 to 120. The first ends in 60 s, 50 to 72 s; the second in 160 s, 138 to 183: sqrt(12^2 + 20^2) = 23.
    """
    found, before, sooner, later = {}, 0.0, 0.0, 0.0
    for uid in uids:
        job = jobs[uid]
        before += job.left
        sooner += (job.left - job.low_left) ** 2
        later += (job.high_left - job.left) ** 2
        at = max(before / capacity, job.left / cores[uid])
        earliest = max((before - math.sqrt(sooner)) / capacity, job.low_left / cores[uid])
        latest = max((before + math.sqrt(later)) / capacity, job.high_left / cores[uid])
        found[uid] = Ends(*(round(now_seconds + each, 1) for each in (at, min(at, earliest), max(at, latest))))
    return found
