"""Hands out the CPU of a node beyond what satisfied jobs need at least; the `direct` variant of `dqoes`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from slopewise.allocation import water_filling
from slopewise.policies.shared.objectives import UNKNOWN, ObjectiveCase


def towards(wanted: Mapping[int, float], limits: Sequence[float], capacity_cores: float) -> list[float]:
    """The limits, those of the wanted ones raised towards what is wanted, all by the same part of the way."""
    way = [max(0.0, wanted.get(index, 0.0) - limit) for index, limit in enumerate(limits)]
    total, left = math.fsum(way), max(0.0, capacity_cores - math.fsum(limits))
    part = min(1.0, left / total) if total > 0 else 0.0
    return [limit + part * each for limit, each in zip(limits, way, strict=True)]


def rest_to_others(
    cases: Sequence[ObjectiveCase], limits: Sequence[float], chosen: Sequence[int], capacity_cores: float
) -> list[float]:
    """What is left evenly to those that are neither chosen nor still to be timed."""
    rooms = [
        0.0 if index in chosen or one.listed == UNKNOWN else max(0.0, one.useful_cores - limit)
        for index, (one, limit) in enumerate(zip(cases, limits, strict=True))
    ]
    more = water_filling(rooms, capacity_cores - math.fsum(limits))
    return [limit + extra for limit, extra in zip(limits, more, strict=True)]


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
