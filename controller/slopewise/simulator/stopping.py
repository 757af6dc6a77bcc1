"""Rules of search tools that stop trials, as they would divide one node: ASHA, the median rule; and an oracle.

Trials share the CPU evenly; between two moments at which one ends, pauses or is stopped all go on at one rate, so
nothing is stepped. The oracle stops none: it serves the trial that will be the best first, and else the most advanced,
because only the end of one lets the next one begin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from slopewise.allocation import down_an_order, water_filling
from slopewise.reports.trials import RUNGS, best_third

MEDIAN_FROM, MEDIAN_EVERY = 0.2, 0.1
"""The median rule stops a trial whose lowest loss is above the median of the others' at the same step: from a fifth of
the plan on, at each tenth, as Google Vizier does."""

FLOOR_RATIO = 0.1
"""What the oracle leaves the other trials, of the even share: as `marginal`."""

Losses = Sequence[float]


@dataclass(frozen=True, slots=True)
class Setting:
    """One node and what runs on it."""

    cores: float
    work_cpu_seconds: float
    """Of each trial."""
    running: int
    """Trials at once."""
    threads: float
    """That a trial can use."""
    within_ratio: float
    """The best trial is found when its loss is so near to its final one."""


class Stopped(NamedTuple):
    """A study under a rule."""

    best_found_seconds: float | None
    ended_seconds: float
    best_loss: float
    stopped: int


def best_of(losses: Sequence[Losses]) -> int:
    """The trial whose final loss is the lowest; one has a finite one."""
    finite = [number for number, each in enumerate(losses) if math.isfinite(each[-1])]
    return min(finite, key=lambda number: losses[number][-1])


def near(loss: float, within_ratio: float) -> float:
    """The level that counts as this loss; above it, also where losses are negative, as log likelihoods are."""
    return loss + within_ratio * abs(loss)


def reached(losses: Losses, level: float) -> float | None:
    """The part of the plan after which a trial's loss is first at this level; None: never."""
    return next((at / (len(losses) - 1) for at, loss in enumerate(losses) if loss <= level), None)


def loss_at(losses: Losses, done: float) -> float:
    """What was reported last after this part of the plan; infinite where it was not finite."""
    loss = losses[math.floor(done * (len(losses) - 1) + 1e-9)]
    return loss if math.isfinite(loss) else math.inf


Share = Callable[[Sequence[int]], Sequence[float]]
"""Cores of each of the trials that run."""


class _Node:
    """The trials on one node: how far each is, and when the best one was found."""

    def __init__(self, losses: Sequence[Losses], setting: Setting, share: Share | None = None) -> None:
        self.losses = losses
        self.setting = setting
        self._share = share or (lambda running: self.even(len(running)))
        self._best = best_of(losses)
        self._found_at = reached(losses[self._best], near(losses[self._best][-1], setting.within_ratio)) or 0.0
        self.found_seconds: float | None = None
        self.now_seconds = 0.0
        self.done = [0.0] * len(losses)
        self.until: dict[int, float] = {}
        """Of each running trial, how far it goes before it is looked at."""

    def even(self, trials: int) -> list[float]:
        return water_filling([self.setting.threads] * trials, self.setting.cores)

    def go_on(self) -> list[int]:
        """Let time pass until trials are where they go; these no longer run."""
        running = list(self.until)
        rates = [cores / self.setting.work_cpu_seconds for cores in self._share(running)]
        span = min((self.until[each] - self.done[each]) / rate for each, rate in zip(running, rates, strict=True))
        for each, rate in zip(running, rates, strict=True):
            if each == self._best and self.found_seconds is None:
                seconds = max(0.0, self._found_at - self.done[each]) / rate
                self.found_seconds = self.now_seconds + seconds if seconds <= span * (1 + 1e-9) else None
            self.done[each] += rate * span
        self.now_seconds += span
        there = [each for each in running if self.done[each] >= self.until[each] - 1e-9]
        for each in there:
            self.done[each] = self.until.pop(each)
        return there

    def result(self) -> Stopped:
        ended = [each[-1] for each, done in zip(self.losses, self.done, strict=True) if done >= 1 - 1e-9]
        best = min(filter(math.isfinite, ended), default=math.nan)
        return Stopped(self.found_seconds, self.now_seconds, best, len(self.losses) - len(ended))


def asha(losses: Sequence[Losses], setting: Setting) -> Stopped:
    """Asynchronous successive halving: a free place goes to a trial of the best third of a rung, else to a new one."""
    node = _Node(losses, setting)
    rungs = (*RUNGS, 1.0)
    seen: list[dict[int, float]] = [{} for _ in RUNGS]
    promoted: list[set[int]] = [set() for _ in RUNGS]
    waiting = list(range(len(losses)))

    def next_trial() -> tuple[int, int] | None:
        for rung in reversed(range(len(RUNGS))):
            if ready := [each for each in best_third(seen[rung]) if each not in promoted[rung]]:
                promoted[rung].add(ready[0])
                return ready[0], rung + 1
        return (waiting.pop(0), 0) if waiting else None

    at_rung: dict[int, int] = {}
    while True:
        while len(node.until) < setting.running and (found := next_trial()) is not None:
            at_rung[found[0]] = found[1]
            node.until[found[0]] = rungs[found[1]]
        if not node.until:
            return node.result()
        for each in node.go_on():
            if at_rung[each] < len(RUNGS):
                seen[at_rung[each]][each] = loss_at(losses[each], node.done[each])


def median_rule(losses: Sequence[Losses], setting: Setting) -> Stopped:
    """A trial is stopped where its lowest loss is above the median of what the others had at the same step."""
    node, waiting = _Node(losses, setting), list(range(len(losses)))
    lowest: dict[float, dict[int, float]] = {}
    checks = [MEDIAN_FROM + MEDIAN_EVERY * number for number in range(round((1 - MEDIAN_FROM) / MEDIAN_EVERY) + 1)]
    place = dict.fromkeys(waiting, 0)
    while True:
        while len(node.until) < setting.running and waiting:
            node.until[waiting.pop(0)] = checks[0]
        if not node.until:
            return node.result()
        for each in node.go_on():
            here = lowest.setdefault(checks[place[each]], {})
            steps = math.floor(node.done[each] * (len(losses[each]) - 1) + 1e-9) + 1
            own = min(filter(math.isfinite, losses[each][:steps]), default=math.inf)
            is_worse = bool(here) and own > median(here.values())
            here[each] = own
            place[each] += 1
            if not is_worse and place[each] < len(checks):
                node.until[each] = min(1.0, checks[place[each]])


def fair(losses: Sequence[Losses], setting: Setting) -> Stopped:
    """All that run share the CPU evenly, and none is stopped."""
    return _in_turn(_Node(losses, setting))


def _in_turn(node: _Node) -> Stopped:
    """Every trial to its end, in the order of the draw."""
    waiting = list(range(len(node.losses)))
    while True:
        while len(node.until) < node.setting.running and waiting:
            node.until[waiting.pop(0)] = 1.0
        if not node.until:
            return node.result()
        node.go_on()


def oracle(losses: Sequence[Losses], setting: Setting) -> Stopped:
    """The best trial of all first, then the most advanced, with the floors of `marginal`; none is stopped."""
    best = best_of(losses)
    node: _Node

    def share(running: Sequence[int]) -> list[float]:
        order: list[Collection[int]] = [[each] for each in sorted(running, key=lambda e: (e != best, -node.done[e], e))]
        floors = dict.fromkeys(running, FLOOR_RATIO * setting.cores / len(running))
        cores = down_an_order(floors, order, dict.fromkeys(running, setting.threads), setting.cores)
        return [cores[each] for each in running]

    node = _Node(losses, setting, share)
    return _in_turn(node)
