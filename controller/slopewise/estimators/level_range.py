"""The range that growth is measured against: the first and the best level of a job, which no spike must get into.

`growth` divides by the range. Plain arithmetic on one job's levels.

- The first level is settled by the first three different ones: it may be the loss of a first batch.
- From then on a level far outside of all before it (`FAR` ranges) is an outlier: it is held back, and the interval goes
  on. It is confirmed by another level as far outside, a window later; a level that stays exactly the same is one sample
  that a slow step leaves standing, and is confirmed after five windows. A confirmed jump widens the range; a level that
  comes back to where the job was before puts the former range back.
- The best level is one that two different levels in a row have reached.

Worked example: levels 2.3, 2.2, 2.1, 1e12, 1.9: the fourth is held back, and the growth at the fifth is 0.2 of a range
of 0.4, over two intervals. With 1e12 first, and 2.2 and 2.1 after it, the first level becomes 2.2 + 0.1.
"""

from __future__ import annotations

from msgspec.structs import replace

from slopewise.model import Doubts, Levels, Objective, Outlier

FAR = 10.0
"""Ranges beyond the first, the best and the last level. Noise of levels is far below one range, except at a plateau at
the start, where the range is its floor of 1 % of the first level: there this is a tenth of the first level."""

FIRST_IS_FAR = 50.0
"""Times the change between the second and the third level: an honest loss does that where it falls by 98 % of what is
left in one interval, and then has converged whatever its first level was."""

SETTLED_BY = 3
"""Different levels; one more where two steps of about the same size may be one: a window that held half of a spike."""

SAME_STEP = 4.0
"""Times: steps within it are of about the same size."""

HELD_WINDOWS = 5
"""Windows after which also a level that stays exactly the same is taken for true."""

FLOOR_RATIO = 0.01
"""The range is never smaller than 1 % of the first value: a job that has not moved yet has no range."""

SMALLEST_RANGE = 1e-9
"""A first value of exactly 0 has no 1 %; dividing by this keeps every figure finite."""

_SETTLED = Doubts()


def begin(levels: Levels, level: float) -> Levels:
    """The levels of a series at its first one."""
    return levels.altered(first=level, best=level, doubts=Doubts(early=(level,)))


def is_held_back(levels: Levels) -> bool:
    """Whether the job's newest level is an outlier that nothing has confirmed: it is not used yet."""
    return levels.doubts is not None and levels.doubts.outlier is not None


def check_outlier(
    levels: Levels, level: float, objective: Objective, at_seconds: float, window_seconds: float
) -> Levels:
    """The job's memory with this level classified as an outlier or not.

    The range is as it was, wider after a jump that was confirmed, or as before the jump from which the level is back.
    """
    first, best, doubts = levels.first, levels.best, levels.doubts or _SETTLED
    if first is None or best is None or 0 < len(doubts.early) < SETTLED_BY:
        return levels
    if doubts is _SETTLED and (first >= level >= best or first <= level <= best):
        return levels
    if doubts.former is not None and not _is_far(level, *doubts.former, None):
        first, best = doubts.former
        return levels.altered(first=first, best=best, doubts=None)
    if not _is_far(level, first, best, levels.anchor.level if levels.anchor else None):
        return levels if doubts.outlier is None else _with(levels, replace(doubts, outlier=None))
    if doubts.outlier is None:
        return _with(levels, replace(doubts, outlier=Outlier(at_seconds, level)))
    held_windows = (at_seconds - doubts.outlier.at_seconds) / window_seconds
    if held_windows < (HELD_WINDOWS if level == doubts.outlier.level else 1):
        return levels
    wider = levels.altered(first=worse(first, level, objective), best=better(best, level, objective))
    return _with(wider, Doubts(former=doubts.former or (first, best)))


def _is_far(level: float, first: float, best: float, last: float | None) -> bool:
    """Whether a level lies far outside of what is between the first, the best and the last one."""
    if first >= level >= best or first <= level <= best:
        return False  # as nearly always
    within = (first, best) if last is None else (first, best, last)
    highest, lowest = max(within), min(within)
    reach = FAR * max(highest - lowest, FLOOR_RATIO * abs(first), SMALLEST_RANGE)
    return level > highest + reach or level < lowest - reach


def learn(levels: Levels, level: float, objective: Objective) -> Levels:
    """The range with the level at the end of an interval that began at the anchor."""
    if levels.anchor is None or levels.best is None:
        return levels
    if levels.doubts is not None and levels.doubts.early:
        return _settle(levels, levels.doubts, level, objective)
    start, first, best = levels.anchor.level, levels.first, levels.best
    if level == start:
        return levels
    if first is not None and _is_far(start, first, best, None) and _is_far(level, first, best, None):
        return levels  # the end of a spike that began while the first level was settled: no level like it was confirmed
    best = better(best, worse(start, level, objective), objective)
    return levels if best == levels.best else levels.altered(best=best)


def _settle(levels: Levels, doubts: Doubts, level: float, objective: Objective) -> Levels:
    """The first level, once there are three different ones to judge it by; the best is then the second best of them."""
    early = doubts.early if level in doubts.early else (*doubts.early, level)
    if len(early) < SETTLED_BY:
        best = level if levels.best is None else better(levels.best, level, objective)
        return _with(levels.altered(best=best), replace(doubts, early=early))
    one, two, three = early[:SETTLED_BY]
    if len(early) == SETTLED_BY:
        if (
            abs(one - two) / SAME_STEP < abs(two - three) < abs(one - two) * SAME_STEP
            and (one - two) * (two - three) > 0
        ):
            best = worse(two, three, objective)
            return _with(levels.altered(best=best), replace(doubts, early=early))
    elif abs(two - three) > FIRST_IS_FAR * abs(three - early[SETTLED_BY]):
        one, two, three = two, three, early[SETTLED_BY]
    first, best = one, sorted((one, two, three))[1]
    if abs(one - two) > FIRST_IS_FAR * abs(two - three):
        step = abs(two - three)
        first, best = (two - step if objective == "max" else two + step), worse(two, three, objective)
    elif one == better(
        one, better(two, three, objective), objective
    ):  # it has got worse since, or its first level was too good
        first = best = better(two, three, objective)
    return _with(levels.altered(first=first, best=best), replace(doubts, early=()))


def _with(levels: Levels, doubts: Doubts) -> Levels:
    return levels.altered(doubts=None if doubts == _SETTLED else doubts)


def ends(levels: Levels, level: float, objective: Objective) -> tuple[float, float] | None:
    """First and best level to measure an interval against that ends with this level; None: nothing is known yet.

    Both ends of the interval are within them, so that no interval counts for more than the whole range.
    """
    if levels.anchor is None or levels.first is None or levels.best is None:
        return None
    first, best, start = levels.first, levels.best, levels.anchor.level
    if objective == "max":
        return min(first, start, level), max(best, start, level)
    return max(first, start, level), min(best, start, level)


def better(one: float, other: float, objective: Objective) -> float:
    """The better of two levels."""
    return max(one, other) if objective == "max" else min(one, other)


def worse(one: float, other: float, objective: Objective) -> float:
    """The worse of two levels."""
    return min(one, other) if objective == "max" else max(one, other)
